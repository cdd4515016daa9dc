"""Pages of trials, newest first, by keyset pagination."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Unpack

from sqlalchemy import Connection, func, select, tuple_

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.tuning_records import DeviceRecord, RunRecord, TrialRecord
from mmsbgen.db.store import record_rows
from mmsbgen.db.store.record_rows import TrialFilters, of_parts
from mmsbgen.db.store.schema import DEVICES, RUNS, TRIALS
from mmsbgen.db.store.tuning_store import Store

CURSOR = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{15}Z~[0-9]{1,18}$"
"""Pattern of a cursor: timestamp and id of the last row of a page."""


class TrialsPage(NamedTuple):
    """The trials of a page, and the cursor of the next page, None on the last one."""

    records: list[TrialRecord]
    cursor: str | None


def trials(store: Store, *, limit: int, cursor: str | None = None, **filters: Unpack[TrialFilters]) -> TrialsPage:
    """A page of the trials that pass all filters, newest first.

    Raises ``InputError`` for a malformed cursor.
    """
    place = (TRIALS.c.created_at, TRIALS.c.id)

    def work(connection: Connection) -> TrialsPage:
        parts = record_rows.Parts(connection)
        query = record_rows.select_trials().add_columns(TRIALS.c.id)
        query = of_parts(query, connection, filters)
        if cursor is not None:
            if not re.fullmatch(CURSOR, cursor):
                raise InputError(f"the cursor {cursor!r} is none: take the one that the page before gave")
            when, _, row_id = cursor.partition("~")
            query = query.where(tuple_(*place) < tuple_(when, int(row_id)))
        found = connection.execute(query.order_by(*(column.desc() for column in place)).limit(limit + 1)).all()
        last = f"{found[limit - 1].created_at}~{found[limit - 1].id}" if len(found) > limit else None
        return TrialsPage([record_rows.trial_record(row, parts) for row in found[:limit]], last)

    return store.database.read(work)


def trial(store: Store, uid: str) -> TrialRecord | None:
    """The trial with this uid, or None."""

    def work(connection: Connection) -> TrialRecord | None:
        row = connection.execute(record_rows.select_trials().where(TRIALS.c.uid == uid)).first()
        return None if row is None else record_rows.trial_record(row, record_rows.Parts(connection))

    return store.database.read(work)


def run_named(store: Store, text: str, others: Mapping[str, RunRecord] | None = None) -> RunRecord:
    """The tuning run whose uuid begins with ``text``, in the store or in ``others`` (by uuid).

    Raises ``InputError`` for fewer than eight digits, and unless exactly one run matches.
    """
    digits = text.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{8,32}", digits):
        raise InputError(f"{text!r} names no tuning run: give the first 8 digits of its name or more")

    def work(connection: Connection) -> list[RunRecord]:
        query = select(RUNS).where(RUNS.c.uuid.startswith(digits)).order_by(RUNS.c.started.desc()).limit(10)
        return [record_rows.run_record(row) for row in connection.execute(query)]

    found = {run.uuid: run for run in (others or {}).values() if run.uuid.startswith(digits)}
    found |= {run.uuid: run for run in store.database.read(work)}
    if len(found) > 1:
        raise InputError(f"{text!r} may be several tuning runs, give more digits: {', '.join(found)}")
    if not found:
        raise InputError(f"there is no tuning run {text}")
    return found.popitem()[1]


def count_by_device(store: Store) -> list[tuple[DeviceRecord, int]]:
    """All devices, each with the number of its trials."""

    def work(connection: Connection) -> list[tuple[DeviceRecord, int]]:
        query = select(TRIALS.c.device_id, func.count()).group_by(TRIALS.c.device_id)
        counts: dict[int, int] = {device: count for device, count in connection.execute(query)}
        return [(device, counts.get(row_id, 0)) for row_id, device in record_rows.read_parts(connection, DEVICES)]

    return store.database.read(work)
