"""Rows of the job tables: queries, locks and conversion to values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select

from mmsbgen.db.records.canonical_json import canonical_json, utc_timestamp
from mmsbgen.db.store.schema import JobEventRow, JobRow
from mmsbgen.jobs.job_errors import LeaseLostError, RequestKeyError, UnknownJobError
from mmsbgen.jobs.job_files import NAME
from mmsbgen.jobs.job_records import AREAS, ENDED, Job, Lease

_MARGIN_S = 1.0
"""Clocks of several machines, and those that are set right all the time, differ by less."""


def later(now: str, seconds: float) -> str:
    """``now`` plus ``seconds``."""
    return utc_timestamp((datetime.fromisoformat(now) + timedelta(seconds=seconds)).isoformat())


def tell(connection: Connection, job: int, attempt: int, kind: str, data: Mapping[str, Any], now: str) -> None:
    """Add an event of a job."""
    row = {"job_id": job, "attempt": attempt, "kind": kind, "data": dict(data), "created_at": now}
    connection.execute(insert(JobEventRow).values(row))


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
        return select(JobRow.__table__).where(JobRow.uuid == uuid.UUID(id).hex)
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
    query = select(JobRow.id, JobRow.lease_until, JobEventRow.data).join(JobEventRow, JobEventRow.job_id == JobRow.id)
    query = query.where(JobRow.state == "running", JobEventRow.kind == "state", JobEventRow.attempt == JobRow.attempt)
    leases = [(id, until, data["lease_s"]) for id, until, data in connection.execute(query) if "lease_s" in data]
    return {id: later(now, lease) for id, until, lease in leases if until > later(now, lease + _MARGIN_S)}


def _unknown(id: object) -> UnknownJobError:
    return UnknownJobError(f"there is no job {id!r}")


def job_of(row: Row[Any]) -> Job:
    """The job in a row."""
    values = {name: value for name, value in row._mapping.items() if name not in ("id", "uuid")}
    return Job(id=row.uuid, **values)
