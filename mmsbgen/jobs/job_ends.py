"""Ending an attempt at a job: updates its row, which the caller has locked, and adds an event."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from mmsbgen.db.records.canonical_json import storable_text
from mmsbgen.db.store.schema import JobEventRow, JobFileRow, JobRow
from mmsbgen.jobs.job_rows import tell

VANISHED = 4
"""So many workers that vanish count as much as one process that dies."""


def end(connection: Connection, row: Row[Any], now: str, state: str, **changes: Any) -> str:
    """End the job and delete its files but those of its result.  Returns ``state``."""
    connection.execute(delete(JobFileRow).where(JobFileRow.job_id == row.id, JobFileRow.area != "output"))
    changes |= {"state": state, "lease_until": None, "finished_at": now, "checkpoint": None}
    connection.execute(update(JobRow).where(JobRow.id == row.id).values({"error": None} | changes))
    told = {"state": state} | ({"error": changes["error"]} if "error" in changes else {})
    tell(connection, row.id, row.attempt, "state", told, now)
    return state


def requeue(connection: Connection, row: Row[Any], now: str, why: str, **more: Any) -> str:
    """Queue the job for its next attempt, or cancel it if that was asked for. Returns its state."""
    if row.cancel_at is not None:
        return end(connection, row, now, "cancelled")
    changes = {"state": "queued", "lease_until": None, "error": storable_text(why)}
    connection.execute(update(JobRow).where(JobRow.id == row.id).values(changes))
    tell(connection, row.id, row.attempt, "state", {"state": "queued", "why": why, **more}, now)
    return "queued"


def lost(connection: Connection, row: Row[Any], now: str, why: str, by: str) -> str:
    """Count an attempt as lost by its 'process' or its 'worker'; the job waits for the next one, or fails."""
    connection.execute(update(JobRow).where(JobRow.id == row.id).values(losses=row.losses + 1))
    # A key of the job's progress, to see whether attempts advance.
    at = " ".join(f"{name} {told['sha256']}" for name, told in sorted((row.checkpoint or {}).items()))
    query = select(JobEventRow.data).where(JobEventRow.job_id == row.id, JobEventRow.kind == "state")
    alike = [data for data in connection.execute(query).scalars() if data.get("lost") == by]
    if by == "worker":  # of these only the ones since it has got no further
        count, most = 1 + sum(data["at"] == at for data in alike), VANISHED * row.max_losses
    else:
        count, most = 1 + len(alike), row.max_losses
    if count < most:
        return requeue(connection, row, now, why, lost=by, at=at)
    times = f"{count} attempts were lost" if count > 1 else "its attempt was lost"
    return end(connection, row, now, "failed", error=storable_text(f"{times}, so it is not tried again: {why}"))
