"""Rows of the job tables: queries, locks, conversion to values, and the end of an attempt."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from mmsbgen.db.records.canonical_json import canonical_json, storable_text, utc_timestamp
from mmsbgen.db.records.job_records import AREAS, ENDED, Job, Lease, LeaseLostError, RequestKeyError, UnknownJobError
from mmsbgen.db.store.schema import JOB_EVENTS, JOB_FILES, JOBS
from mmsbgen.jobs.job_files import NAME

_MARGIN_S = 1.0
"""Clocks of several machines, and those that are set right all the time, differ by less."""


def later(now: str, seconds: float) -> str:
    """``now`` plus ``seconds``."""
    return utc_timestamp((datetime.fromisoformat(now) + timedelta(seconds=seconds)).isoformat())


def tell(connection: Connection, job: int, attempt: int, kind: str, data: Mapping[str, Any], now: str) -> None:
    """Add an event of a job."""
    row = {"job_id": job, "attempt": attempt, "kind": kind, "data": dict(data), "created_at": now}
    connection.execute(insert(JOB_EVENTS).values(row))


def fenced(connection: Connection, lease: Lease, *, lock: bool = True) -> Row[Any]:
    """The job's row, locked for writing; raises :class:`LeaseLostError` otherwise."""
    query = by_id(lease.job.id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None or row.state != "running" or row.attempt != lease.attempt:
        now = "is gone" if row is None else f"is {row.state} with attempt {row.attempt}"
        raise LeaseLostError(f"attempt {lease.attempt} of the job {lease.job.id} has lost it: the job {now}")
    return row


def same_request(row: Row[Any], same: Mapping[str, Any], key: str) -> str:
    """The id of the job that a request key made; raises :class:`RequestKeyError` where that job is another."""
    for name, value in same.items():
        if canonical_json(getattr(row, name)) != canonical_json(value):
            raise RequestKeyError(
                f"the request key {key!r} belongs to the job {row.uuid}, whose {name} differs: use another key"
            )
    return str(row.uuid)


def by_id(id: str) -> Select[Any]:
    """The query for a job. Raises :class:`UnknownJobError` for a malformed id."""
    try:
        return select(JOBS).where(JOBS.c.uuid == uuid.UUID(id).hex)
    except (ValueError, AttributeError, TypeError):
        raise _unknown(id) from None


def row_of(connection: Connection, id: str, *, lock: bool = False) -> Row[Any]:
    """The row of a job, with ``lock`` locked for writing; raises :class:`UnknownJobError`."""
    query = by_id(id)
    if (row := connection.execute(query.with_for_update() if lock else query).first()) is None:
        raise _unknown(id)
    return row


def file_of(connection: Connection, id: str, area: str, name: str) -> tuple[Row[Any], dict[str, Any]]:
    """The row of a job and the entry of one of its files; raises :class:`UnknownJobError`."""
    row = row_of(connection, id)
    column = {"input": row.inputs, "checkpoint": row.checkpoint, "output": row.outputs}
    if area not in AREAS or name not in (column[area] or {}) or not NAME.fullmatch(name):
        raise UnknownJobError(f"the job {row.uuid} has no {area} file {name!r}")
    if area == "input" and row.state in ENDED:
        raise UnknownJobError(f"the job {row.uuid} has ended: its input files are not kept")
    return row, column[area][name]


def too_far_ahead(connection: Connection, now: str) -> dict[int, str]:
    """Running jobs whose lease ends too late because the clock was set back: their ids, and the latest end allowed."""
    query = select(JOBS.c.id, JOBS.c.lease_until, JOB_EVENTS.c.data).join(JOB_EVENTS, JOB_EVENTS.c.job_id == JOBS.c.id)
    query = query.where(JOBS.c.state == "running", JOB_EVENTS.c.kind == "state", JOB_EVENTS.c.attempt == JOBS.c.attempt)
    leases = [(id, until, data["lease_s"]) for id, until, data in connection.execute(query) if "lease_s" in data]
    return {id: later(now, lease) for id, until, lease in leases if until > later(now, lease + _MARGIN_S)}


def _unknown(id: object) -> UnknownJobError:
    return UnknownJobError(f"there is no job {id!r}")


def job_of(row: Row[Any]) -> Job:
    """The job in a row."""
    values = {name: value for name, value in row._mapping.items() if name not in ("id", "uuid")}
    return Job(id=row.uuid, **values)


VANISHED = 4
"""So many workers that vanish count as much as one process that dies."""


def end(connection: Connection, row: Row[Any], now: str, state: str, **changes: Any) -> str:
    """End the job and delete its files but those of its result.  Returns ``state``."""
    connection.execute(delete(JOB_FILES).where(JOB_FILES.c.job_id == row.id, JOB_FILES.c.area != "output"))
    changes |= {"state": state, "lease_until": None, "finished_at": now, "checkpoint": None}
    connection.execute(update(JOBS).where(JOBS.c.id == row.id).values({"error": None} | changes))
    told = {"state": state} | ({"error": changes["error"]} if "error" in changes else {})
    tell(connection, row.id, row.attempt, "state", told, now)
    return state


def requeue(connection: Connection, row: Row[Any], now: str, why: str, **more: Any) -> str:
    """Queue the job for its next attempt, or cancel it if that was asked for. Returns its state."""
    if row.cancel_at is not None:
        return end(connection, row, now, "cancelled")
    changes = {"state": "queued", "lease_until": None, "error": storable_text(why)}
    connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(changes))
    tell(connection, row.id, row.attempt, "state", {"state": "queued", "why": why, **more}, now)
    return "queued"


def lost(connection: Connection, row: Row[Any], now: str, why: str, by: str) -> str:
    """Count an attempt as lost by its 'process' or its 'worker'; the job waits for the next one, or fails."""
    connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(losses=row.losses + 1))
    # A key of the job's progress, to see whether attempts advance.
    at = " ".join(f"{name} {told['sha256']}" for name, told in sorted((row.checkpoint or {}).items()))
    query = select(JOB_EVENTS.c.data).where(JOB_EVENTS.c.job_id == row.id, JOB_EVENTS.c.kind == "state")
    alike = [data for data in connection.execute(query).scalars() if data.get("lost") == by]
    if by == "worker":  # of these only the ones since it has got no further
        count, most = 1 + sum(data["at"] == at for data in alike), VANISHED * row.max_losses
    else:
        count, most = 1 + len(alike), row.max_losses
    if count < most:
        return requeue(connection, row, now, why, lost=by, at=at)
    times = f"{count} attempts were lost" if count > 1 else "its attempt was lost"
    return end(connection, row, now, "failed", error=storable_text(f"{times}, so it is not tried again: {why}"))
