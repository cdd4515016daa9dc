"""Conversion between records and database rows, and filters of queries of rows."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypedDict, get_type_hints

from sqlalchemy import Connection, Row, Select, Table, Text, func, select, type_coerce

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import stage
from mmsbgen.db.records.ranking import Candidate
from mmsbgen.db.records.tuning_records import (
    TRIAL_FIGURES,
    DeviceRecord,
    Key,
    QuarantineRecord,
    RoofRecord,
    RunRecord,
    TrialRecord,
)
from mmsbgen.db.store.schema import DEVICES, KERNELS, PARTS, PROBLEMS, QUARANTINE, ROOFS, RUNS, TRIALS

type_of_part: dict[Table, type[Any]] = {PARTS[name]: kind for name, kind in get_type_hints(Key).items()}
_CHUNK = 500


def insert_new(connection: Connection, table: Table, unique: str, rows: list[dict[str, Any]]) -> int:
    """Insert the rows whose value of ``unique`` is not in the table yet; return their number."""
    # The dialect's own, which is loaded: that of the other takes a tenth of a second.
    insert = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert
    statement = insert(table).on_conflict_do_nothing(index_elements=[unique]).returning(table.c[unique])
    new = 0
    with stage(f"storing {table.name}", len(rows), table.name) as told:
        for part in _chunks(rows):
            new += len(connection.execute(statement, part).all())
            told.tell(told.done + len(part))
    return new


def ids_of(connection: Connection, table: Table, unique: str, values: Iterable[str]) -> dict[str, int]:
    """The row ids of those ``values`` that are in the ``unique`` column of ``table``, by value."""
    column = table.c[unique]
    found: dict[str, int] = {}
    for part in _chunks(sorted(set(values))):
        query = select(column, table.c.id).where(column.in_(part))
        found.update({value: row_id for value, row_id in connection.execute(query)})
    return found


def part_ids(connection: Connection, table: Table, records: Iterable[Any]) -> dict[str, int]:
    """Row ids of devices, toolchains, kernels or problems by key; missing rows are inserted."""
    by_key = {record.key: record for record in records}
    found = ids_of(connection, table, "key", by_key)
    if new := sorted(by_key.keys() - found.keys()):
        insert_new(connection, table, "key", [{"key": key, **by_key[key].values()} for key in new])
        found |= ids_of(connection, table, "key", new)
    return found


def run_ids(connection: Connection, uuids: Iterable[str]) -> dict[str, int]:
    """Row ids of runs by uuid; raises ``InputError`` for a run that is not stored."""
    wanted = set(uuids)
    found = ids_of(connection, RUNS, "uuid", wanted)
    for missing in sorted(wanted - found.keys()):
        raise InputError(f"the tuning run {missing} is not in the database: begin it first")
    return found


def insert_trials(connection: Connection, trials: Iterable[TrialRecord]) -> int:
    """Insert new trials and the rows that they refer to; return the number of trials inserted."""
    new = {trial.uid: trial for trial in trials}
    for known in ids_of(connection, TRIALS, "uid", new):
        del new[known]
    runs = run_ids(connection, (t.run for t in new.values()))
    keys = _key_ids(connection, [t.key for t in new.values()])
    rows = [
        {
            **t.values("run", "key"),
            "uid": t.uid,
            "run_id": runs[t.run],
            **keys(t.key),
            **{name: getattr(t, name) for name in ("config_digest", *TRIAL_FIGURES)},
        }
        for t in new.values()
    ]
    return insert_new(connection, TRIALS, "uid", rows)


def insert_quarantined(connection: Connection, failures: Iterable[QuarantineRecord]) -> int:
    """Insert new failures and the rows that they refer to; return the number of failures inserted."""
    new = {failure.uid: failure for failure in failures}
    keys = _key_ids(connection, [f.key for f in new.values()])
    digests = ("config_digest", "recorded_digest", "uid")
    rows = [{**f.values("key"), **keys(f.key), **{name: getattr(f, name) for name in digests}} for f in new.values()]
    return insert_new(connection, QUARANTINE, "uid", rows)


def _key_ids(connection: Connection, keys: list[Key]) -> Callable[[Key], dict[str, int]]:
    """A function that returns the id columns of a key; missing parts of ``keys`` are inserted."""
    ids = {name: part_ids(connection, table, (getattr(k, name) for k in keys)) for name, table in PARTS.items()}
    return lambda key: {f"{name}_id": found[getattr(key, name).key] for name, found in ids.items()}


def insert_roofs(connection: Connection, roofs: Iterable[RoofRecord]) -> int:
    """Insert new roofs; return their number."""
    roofs = list(roofs)
    runs = run_ids(connection, (r.run for r in roofs))
    devices = part_ids(connection, DEVICES, (r.device for r in roofs))
    rows = [
        {**r.values("run", "device"), "uid": r.uid, "run_id": runs[r.run], "device_id": devices[r.device.key]}
        for r in roofs
    ]
    return insert_new(connection, ROOFS, "uid", rows)


class Parts:
    """Devices, toolchains, kernels, problems and run uuids by row id, read in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._parts = {table: dict(read_parts(connection, table)) for table in type_of_part}
        self.runs: dict[int, str] = {row_id: run for row_id, run in connection.execute(select(RUNS.c.id, RUNS.c.uuid))}
        self._keys: dict[tuple[int, ...], Key] = {}

    def device(self, row_id: int) -> DeviceRecord:
        """The device with this row id."""
        device: DeviceRecord = self._parts[DEVICES][row_id]
        return device

    def key(self, *ids: int) -> Key:
        """The key whose parts have these row ids, in the order of ``PARTS``; the same object for the same ids."""
        if ids not in self._keys:
            self._keys[ids] = Key(*(self._parts[table][id] for table, id in zip(PARTS.values(), ids, strict=True)))
        return self._keys[ids]

    def candidate(self, uid: str, run: int, round_: int, median_s: float, *texts: str) -> Candidate:
        """The candidate of a trial with status 'ok', from :data:`CANDIDATE_COLUMNS`."""
        config_digest, config, created_at, extra = texts
        program = str(json.loads(extra).get("program", ""))
        return Candidate(uid, self.runs[run], round_, median_s, config_digest, config, created_at, program)


def read_parts(connection: Connection, table: Table) -> Iterator[tuple[int, Any]]:
    """Yields the row id and record of every row of devices, toolchains, kernels or problems."""
    for row in connection.execute(select(table)):
        values = dict(row._mapping)
        row_id = values.pop("id")
        del values["key"]
        yield row_id, type_of_part[table](**values)


_TRIAL_FIELDS = [f.name for f in fields(TrialRecord) if f.name not in ("run", "key")]
KEY_COLUMNS = [TRIALS.c[f"{name}_id"] for name in PARTS]
"""The columns that :meth:`Parts.key` needs."""
CANDIDATE_COLUMNS = (
    *(TRIALS.c.uid, TRIALS.c.run_id, TRIALS.c.round, TRIALS.c.median_s, TRIALS.c.config_digest),
    *(type_coerce(TRIALS.c.config, Text), TRIALS.c.created_at, type_coerce(TRIALS.c.extra, Text)),
)
"""The columns that :meth:`Parts.candidate` needs."""


def select_trials() -> Select[Any]:
    """A query of the columns that :func:`trial_record` needs."""
    return select(TRIALS.c.run_id, *KEY_COLUMNS, *(TRIALS.c[name] for name in _TRIAL_FIELDS))


def trial_record(row: Row[Any], parts: Parts) -> TrialRecord:
    """The trial in a row of :func:`select_trials`."""
    run_id, *values = tuple(row)
    key, values = parts.key(*values[: len(PARTS)]), values[len(PARTS) :]
    # Additional columns of a query come last.
    return TrialRecord(run=parts.runs[run_id], key=key, **dict(zip(_TRIAL_FIELDS, values, strict=False)))


_QUARANTINE_FIELDS = [f.name for f in fields(QuarantineRecord) if f.name != "key"]


def select_quarantined() -> Select[Any]:
    """A query of the columns that :func:`quarantine_record` needs."""
    return select(*(QUARANTINE.c[f"{name}_id"] for name in PARTS), *(QUARANTINE.c[name] for name in _QUARANTINE_FIELDS))


def quarantine_record(row: Row[Any], parts: Parts) -> QuarantineRecord:
    """The failure in a row of :func:`select_quarantined`."""
    values = tuple(row)
    key, values = parts.key(*values[: len(PARTS)]), values[len(PARTS) :]
    return QuarantineRecord(key=key, **dict(zip(_QUARANTINE_FIELDS, values, strict=True)))


def run_record(row: Row[Any]) -> RunRecord:
    """The run in a row of all columns."""
    return RunRecord(**{name: value for name, value in row._mapping.items() if name != "id"})


def roof_record(row: Row[Any], parts: Parts) -> RoofRecord:
    """The roof in a row of all columns."""
    values = dict(row._mapping)
    run, device = parts.runs[values.pop("run_id")], parts.device(values.pop("device_id"))
    return RoofRecord(run=run, device=device, **{n: v for n, v in values.items() if n not in ("id", "uid")})


def _chunks(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def kernels_named(text: str) -> Select[Any]:
    """A query of the row ids of a kernel, as NAME or FAMILY/NAME."""
    family, _, name = text.rpartition("/")
    query = select(KERNELS.c.id).where(KERNELS.c.name == name)
    return query.where(KERNELS.c.family == family) if family else query


def active(connection: Connection, parts: Parts, kernel: str | None = None) -> list[QuarantineRecord]:
    """The active failures, newest first; at most one for each key and configuration.

    A later trial of the same key with status 'ok' ends a failure, for the configuration as used or as recorded.
    """
    query = select_quarantined()
    if kernel is not None:
        query = query.where(QUARANTINE.c.kernel_id.in_(kernels_named(kernel)))
    query = query.order_by(QUARANTINE.c.created_at.desc(), QUARANTINE.c.id.desc())
    failures = [quarantine_record(row, parts) for row in connection.execute(query)]
    if not failures:
        return []
    columns = (*KEY_COLUMNS, TRIALS.c.config_digest)
    later = (
        select(*columns, func.max(TRIALS.c.created_at))
        .where(TRIALS.c.status == "ok", TRIALS.c.kernel_id.in_(select(QUARANTINE.c.kernel_id)))
        .group_by(*columns)
    )
    succeeded: dict[tuple[str, str], str] = {}  # the last time, by key and digest of the configuration
    for *ids, digest, moment in connection.execute(later):
        succeeded[parts.key(*ids).key, digest] = moment
    left: dict[tuple[str, str], QuarantineRecord] = {}
    for failure in failures:
        key = failure.key.key
        moments = (succeeded.get((key, digest), "") for digest in (failure.config_digest, failure.recorded_digest))
        if max(moments) <= failure.created_at:
            left.setdefault((key, failure.config_digest), failure)
    return list(left.values())


def of_key(query: Select[Any], key: Key) -> Select[Any]:
    """Restricts a query of trials to exactly this key."""
    for name, table in PARTS.items():
        wanted = select(table.c.id).where(table.c.key == getattr(key, name).key).scalar_subquery()
        query = query.where(TRIALS.c[f"{name}_id"] == wanted)
    return query


class TrialFilters(TypedDict, total=False):
    """Filters of trials, all of which must hold; None is none.

    ``kernel`` is a name or ``family/name``.  ``device`` is a part of backend, name, platform, vendor or architecture,
    ignoring case.  ``problem`` has values of some parameters.  ``failed`` is any ``status`` but ``ok``.  ``run`` is a
    uuid.
    """

    kernel: str | None
    device: str | None
    problem: Mapping[str, Any] | None
    status: str | None
    run: str | None


def of_parts(query: Select[Any], connection: Connection, filters: TrialFilters, table: Table = TRIALS) -> Select[Any]:
    """Restricts a query of trials, or of what is in quarantine, which has neither status nor run."""
    if (kernel := filters.get("kernel")) is not None:
        query = query.where(table.c.kernel_id.in_(kernels_named(kernel)))
    if (device := filters.get("device")) is not None:
        devices = [i for i, d in read_parts(connection, DEVICES) if d.matches(device)]
        query = query.where(table.c.device_id.in_(devices))
    if problem := filters.get("problem"):
        problems = [i for i, p in read_parts(connection, PROBLEMS) if problem.items() <= p.params.items()]
        query = query.where(table.c.problem_id.in_(problems))
    if (status := filters.get("status")) is not None:
        query = query.where(TRIALS.c.status != "ok" if status == "failed" else TRIALS.c.status == status)
    if (run := filters.get("run")) is not None:
        query = query.where(TRIALS.c.run_id.in_(ids_of(connection, RUNS, "uuid", [run]).values()))
    return query
