"""The store of tuning results, with all its reads and writes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack

from sqlalchemy import Connection, Table, func, select, update

from mmsbgen.base.progress import stage
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import canonical_json, utc_now
from mmsbgen.db.records.ranking import Candidate, candidate, cost, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    QuarantineRecord,
    RoofRecord,
    RunRecord,
    TrialRecord,
)
from mmsbgen.db.store import connect as connections
from mmsbgen.db.store import record_rows
from mmsbgen.db.store.connect import Database, Location, check_pages, connect, locate
from mmsbgen.db.store.migrate import migrate, revision
from mmsbgen.db.store.record_rows import TrialFilters, of_key, of_parts
from mmsbgen.db.store.schema import DEVICES, KERNELS, METADATA, PARTS, PROBLEMS, QUARANTINE, ROOFS, RUNS, TRIALS

CONTRIBUTOR_VARIABLE = "MMSBGEN_CONTRIBUTOR"

T = TypeVar("T")


def open_store(url: str | Path | None = None, *, read_only: bool = False, when_used: bool = False) -> Store:
    """Open the tuning database, creating it first unless ``read_only``.

    Args:
        url: A path, or an SQLAlchemy URL of SQLite or PostgreSQL.  The default is ``MMSBGEN_DATABASE_URL``, else
            ``tuning.sqlite3`` in the user's data folder.
        read_only: Whether only to read.  A missing database is then not created; the store is empty and its
            ``missing`` is true.
        when_used: Whether to create the database only at the first use of the store.  An existing database
            is checked at once.

    Pages of an SQLite file are checked, if it is only read, up to 16 MiB.

    Raises:
        StoreError: The file is damaged.
        InputError: The file is no tuning database, the schema is of another version, the server cannot be reached, or
            the folder cannot be written.
    """
    location = locate(url)
    if not read_only:
        return _writable_when_used(location) if when_used else Store(_migrated(location), location)
    if not location.exists():
        return _empty_store(location)
    database = connect(location, read_only=True)
    _or_close(database, lambda opened: check_pages(opened, at_most=connections.QUICK_CHECK_BYTES))
    found = _or_close(database, revision)
    if found is not None:
        return Store(database, location, read_only=True)
    database.close()
    return _empty_store(location)


def _writable_when_used(location: Location) -> Store:
    if location.exists():
        database = connect(location)
        _or_close(database, revision)
        database.close()
    return Store(Database(location, lambda: _migrated(location).engine), location)


def _migrated(location: Location) -> Database:
    database = connect(location)
    _or_close(database, check_pages)
    _or_close(database, migrate)
    return database


def _or_close(database: Database, work: Callable[[Database], T]) -> T:
    try:
        return work(database)
    except BaseException:
        database.close()
        raise


def _empty_store(location: Location) -> Store:
    database = connect(Location())
    database.write(METADATA.create_all)
    return Store(database, location, read_only=True, missing=True)


class Store:
    """An open tuning database, returned by :func:`open_store`; a context manager that closes it.

    Every writing method is one short transaction, which is retried while another writer holds the database.  All of
    them are idempotent: existing records are not added again.
    """

    def __init__(self, database: Database, place: Location, *, read_only: bool = False, missing: bool = False) -> None:
        self.database = database
        self.place = place
        self.read_only = read_only
        self.missing = missing
        """Whether it was opened read-only and there is no database."""

    @property
    def location(self) -> str:
        """The location of the database for messages, without a password."""
        return str(self.place)

    def begin_run(self, run: RunRecord) -> None:
        """Store a run that starts, or update the status of one that resumes.

        If ``MMSBGEN_CONTRIBUTOR`` is set, its value is stored as ``who`` in the run's ``extra``.
        """
        who = os.environ.get(CONTRIBUTOR_VARIABLE)
        if who and "who" not in run.extra:
            run = replace(run, extra={**run.extra, "who": who})

        def work(connection: Connection) -> None:
            if not record_rows.insert_new(connection, RUNS, "uuid", [run.values()]):
                again = {"status": run.status, "finished": run.finished}
                connection.execute(update(RUNS).where(RUNS.c.uuid == run.uuid).values(again))

        self.database.write(work)

    def add_trial(self, trial: TrialRecord) -> bool:
        """Store a trial; returns False if it (by ``uid``) is stored already.

        Raises ``InputError`` if its run is not stored.
        """
        return bool(self.database.write(lambda connection: record_rows.insert_trials(connection, [trial])))

    def finish_run(self, uuid: str, *, status: str = "finished") -> None:
        """Set the final status of a run: 'finished', 'interrupted' or 'failed'; its end is now.

        Raises ``InputError`` if the run is not stored.
        """
        ended = RunRecord(uuid=uuid, strategy="", status=status, finished=utc_now())

        def work(connection: Connection) -> None:
            (run_id,) = record_rows.run_ids(connection, [ended.uuid]).values()
            end = {"status": ended.status, "finished": ended.finished}
            connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(end))

        self.database.write(work)

    def add_roofs(self, roofs: Iterable[RoofRecord]) -> None:
        """Store measured roofs; raises ``InputError`` if a run is not stored."""
        measured = list(roofs)
        self.database.write(lambda connection: record_rows.insert_roofs(connection, measured))

    def quarantine(self, failure: QuarantineRecord) -> None:
        """Store the failure of a selected configuration, even if this store was opened read-only.

        Raises ``InputError`` or ``StoreError`` if the database cannot be written.
        """
        if self.read_only and (self.place.path or self.place.url):
            with Store(_migrated(self.place), self.place) as writable:
                writable.quarantine(failure)
        else:
            self.database.write(lambda connection: record_rows.insert_quarantined(connection, [failure]))

    def quarantined(self, kernel: str | None = None) -> list[QuarantineRecord]:
        """The active failures, of a kernel as NAME or FAMILY/NAME; see :func:`mmsbgen.db.store.record_rows.active`."""
        return self.database.read(lambda c: record_rows.active(c, record_rows.Parts(c), kernel))

    def trials(
        self, *, key: Key | None = None, limit: int | None = None, **filters: Unpack[TrialFilters]
    ) -> list[TrialRecord]:
        """The trials that pass all given filters, newest first."""

        def work(connection: Connection) -> list[TrialRecord]:
            parts = record_rows.Parts(connection)
            query = record_rows.select_trials().order_by(TRIALS.c.created_at.desc(), TRIALS.c.id.desc()).limit(limit)
            query = of_parts(query, connection, filters)
            if key is not None:
                query = of_key(query, key)
            return [record_rows.trial_record(row, parts) for row in connection.execute(query)]

        return self.database.read(work)

    def devices(self) -> list[DeviceRecord]:
        """All devices, sorted by label and driver."""
        return sorted(self._parts(DEVICES), key=lambda d: (d.label, d.driver, d.key))

    def kernels(self) -> list[KernelRecord]:
        """All kernels, sorted by family and name, with one record for each template digest."""
        return sorted(self._parts(KERNELS), key=lambda k: (k.family, k.name, k.template_digest))

    def runs(self) -> list[RunRecord]:
        """All runs, newest first."""
        query = select(RUNS).order_by(RUNS.c.started.desc(), RUNS.c.id.desc())
        return self.database.read(lambda c: [record_rows.run_record(row) for row in c.execute(query)])

    def problems(self) -> list[ProblemRecord]:
        """All problems, sorted by family and parameters."""
        return sorted(self._parts(PROBLEMS), key=lambda p: (p.family, canonical_json(p.params)))

    def _parts(self, table: Table) -> list[Any]:
        return self.database.read(lambda c: [record for _, record in record_rows.read_parts(c, table)])

    def roofs(self, *, device: DeviceRecord | None = None) -> list[RoofRecord]:
        """Measured roofs, newest first."""

        def work(connection: Connection) -> list[RoofRecord]:
            parts = record_rows.Parts(connection)
            query = select(ROOFS).order_by(ROOFS.c.measured_at.desc(), ROOFS.c.id.desc())
            if device is not None:
                query = query.where(
                    ROOFS.c.device_id.in_(record_rows.ids_of(connection, DEVICES, "key", [device.key]).values())
                )
            return [record_rows.roof_record(row, parts) for row in connection.execute(query)]

        return self.database.read(work)

    def best(self, key: Key, objective: str = "time") -> TrialRecord | None:
        """The best trial for exactly this key, quarantined or not, or None.

        The order is that of :func:`mmsbgen.db.records.ranking.ranked`.  ``objective`` is one of
        :data:`mmsbgen.db.records.ranking.OBJECTIVES`; trials without a value of it are left out, as are those of older
        programs of their configuration.
        """
        found = of_newest_programs(self.trials(key=key, status="ok"))
        trials = {trial.uid: trial for trial in found if math.isfinite(cost(trial, objective))}
        order = ranked(candidate(trial, objective) for trial in trials.values())
        return trials[order[0].uid] if order else None

    def candidates(self, *, family: str, kernel: str) -> list[tuple[Key, Candidate]]:
        """All trials with status 'ok' of a kernel, for any program, as :class:`Index` stores them."""
        query = select(*record_rows.KEY_COLUMNS, *record_rows.CANDIDATE_COLUMNS)
        query = query.join(KERNELS, TRIALS.c.kernel_id == KERNELS.c.id)
        query = query.where(KERNELS.c.family == family, KERNELS.c.name == kernel, TRIALS.c.status == "ok")

        def work(connection: Connection) -> list[tuple[Key, Candidate]]:
            parts = record_rows.Parts(connection)
            found = []
            for row in connection.execute(query):
                values = tuple(row)
                found.append((parts.key(*values[: len(PARTS)]), parts.candidate(*values[len(PARTS) :])))
            return found

        return self.database.read(work)

    def bundle(self, **filters: Unpack[TrialFilters]) -> Bundle:
        """All runs, roofs, trials and failures, read in one transaction, or those of the trials that pass filters."""

        def work(connection: Connection) -> Bundle:
            parts = record_rows.Parts(connection)
            total = connection.execute(select(func.count()).select_from(TRIALS)).scalar_one()
            with stage(f"reading {self.location}", total, "trials") as told:
                trials = []
                for row in connection.execute(of_parts(record_rows.select_trials(), connection, filters)):
                    trials.append(record_rows.trial_record(row, parts))
                    told.tell(len(trials))
            failures = of_parts(record_rows.select_quarantined(), connection, filters, QUARANTINE)
            found = Bundle(
                runs=[record_rows.run_record(row) for row in connection.execute(select(RUNS))],
                roofs=[record_rows.roof_record(row, parts) for row in connection.execute(select(ROOFS))],
                trials=trials,
                quarantine=[record_rows.quarantine_record(row, parts) for row in connection.execute(failures)],
            )
            return found.of_trials(trials, found.quarantine) if any(filters.values()) else found

        return self.database.read(work)

    def add_bundle(self, bundle: Bundle) -> int:
        """Add the missing records in one transaction; return the number of trials added.

        A run that is 'running' here and has ended in ``bundle`` gets its final status.
        """
        return self.add_counted(bundle)["trials"]

    def add_counted(self, bundle: Bundle) -> dict[str, int]:
        """As :meth:`add_bundle`; return the numbers of 'runs', 'roofs', 'quarantined' and 'trials' added."""

        def work(connection: Connection) -> dict[str, int]:
            runs = [run.values() for run in bundle.runs]
            added = {"runs": record_rows.insert_new(connection, RUNS, "uuid", runs)}
            for run in bundle.runs:
                if run.status != "running":
                    here = update(RUNS).where(RUNS.c.uuid == run.uuid, RUNS.c.status == "running")
                    connection.execute(here.values(status=run.status, finished=run.finished))
            added["roofs"] = record_rows.insert_roofs(connection, bundle.roofs)
            added["quarantined"] = record_rows.insert_quarantined(connection, bundle.quarantine)
            return added | {"trials": record_rows.insert_trials(connection, bundle.trials)}

        return self.database.write(work)

    def export_jsonl(self, path: str | Path) -> int:
        """Write all records to a JSON-lines file (gzip for ``.gz``); return the number of trials, or raise an error."""
        bundle = self.bundle()
        jsonl.write(bundle, Path(path))
        return len(bundle.trials)

    def import_jsonl(self, path: str | Path) -> int:
        """Add what is missing from a file; return the number of trials, or raise InputError that names a line."""
        return self.add_bundle(jsonl.read(Path(path)))

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
