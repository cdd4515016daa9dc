"""A queue of jobs in one table: leases that run out, tokens that fence off who lost one, and files beside it.

Libraries for this serve one kind of server, or need a broker; the few rules are written out here instead:

* A job is ``queued``, ``running`` under a lease, or has ended as ``done``, ``failed`` or ``cancelled``.
* Whoever claims a job adds one to its ``attempt``.  Every write under a lease names the attempt and touches nothing
  when the job has another, or runs no more: so a worker that was thought dead cannot disturb the one after it.
* Files of an attempt become the job's in the transaction that ends it, so that no mixture is ever seen.
* An attempt whose process died or met an error that may pass counts as lost.  After ``max_losses`` of them the job
  fails, as it may be what kills them.
* An attempt whose lease ran out is lost with its worker, which was killed, or its machine.  That tells little of the
  job, which runs in a process of its own: it fails after ``VANISHED`` times as many in which it got no further.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import json_object, storable_text, utc_now, utc_timestamp
from mmsbgen.db.records.job_records import ENDED, KINDS, STATES, Job, JobEvent, Lease
from mmsbgen.db.records.tuning_records import DeviceRecord
from mmsbgen.db.store.schema import JOB_EVENTS, JOB_FILES, JOBS
from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.jobs import job_files, job_rows
from mmsbgen.jobs.folder_files import FolderFiles
from mmsbgen.jobs.job_files import Source, StagedFile, TableFiles
from mmsbgen.jobs.job_rows import fenced, file_of, job_of, later, row_of, same_request, tell, too_far_ahead

LEASE_SECONDS = 60.0
MAX_LOSSES = 3

T = TypeVar("T")


class Queue:
    """The jobs of a database.  Every method is one short transaction, retried on conflicts.

    ``store`` is open for writing and stays its owner's.  ``clock`` tells the present time; by default a server's own
    clock does, so that machines need not agree, and this machine's where the database is a file.

    All methods raise :class:`mmsbgen.db.store.store_errors.StoreError` when the database cannot be reached; those that
    take an id raise :class:`UnknownJobError`; those that take a lease raise :class:`LeaseLostError` and then have done
    nothing.
    """

    def __init__(self, store: Store, *, clock: Callable[[], datetime] | None = None) -> None:
        self.database = store.database
        self._clock = clock
        path = self.database.location.path
        self._files = TableFiles(self.database) if path is None else FolderFiles(self.database, path)

    def submit(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        inputs: Mapping[str, Source] | None = None,
        device: str | None = None,
        request_key: str | None = None,
        max_losses: int = MAX_LOSSES,
    ) -> str:
        """Queue a job with its input files, all or nothing; returns its id.

        The same ``request_key`` again gives the id of the job that it made, so that a request may be repeated; raises
        :class:`RequestKeyError` where that job is another.  ``device`` is a part of the name, platform, vendor or
        architecture of the device that the job is for.  Raises ``InputError`` for an unknown kind, a payload that JSON
        cannot hold and a file that cannot be read.
        """
        if kind not in KINDS:
            raise InputError(f"there are no jobs of kind {kind!r}: it is one of {', '.join(KINDS)}")
        if max_losses < 1:
            raise InputError(f"max_losses={max_losses}: a job needs at least one attempt")
        try:
            plain = json_object(payload)
        except (TypeError, ValueError) as error:
            raise InputError(f"the payload of a job must be JSON: {error}") from error
        with self._files.staged(inputs or {}) as files:
            told = {name: file.told for name, file in files.items()}
            same = {"kind": kind, "payload": plain, "inputs": told, "device": device}
            return self._submit(same, files, request_key, max_losses)

    def _submit(
        self, same: Mapping[str, Any], files: Mapping[str, StagedFile], request_key: str | None, max_losses: int
    ) -> str:
        id = uuid.uuid4().hex

        def work(connection: Connection) -> str:
            if request_key is not None:
                before = connection.execute(select(JOBS).where(JOBS.c.request_key == request_key)).first()
                if before is not None:
                    return same_request(before, same, request_key)
            now = self._now(connection)
            row = {
                **same,
                "uuid": id,
                "request_key": request_key,
                "state": "queued",
                "attempt": 0,
                "losses": 0,
                "max_losses": max_losses,
                "outputs": {},
                "created_at": now,
            }
            number = connection.execute(insert(JOBS).values(row).returning(JOBS.c.id)).scalar_one()
            self._files.put(connection, number, id, "input", files)
            tell(connection, number, 0, "state", {"state": "queued"}, now)
            return id

        try:
            return self.database.write(work)
        except IntegrityError:
            # The same request came twice at once: the other one made the job.
            return self.database.write(work)

    def requested(self, request_key: str) -> bool:
        """Whether a job was made by this request key."""
        query = select(JOBS.c.id).where(JOBS.c.request_key == request_key)
        return self.database.read(lambda connection: connection.execute(query).first()) is not None

    def claim(
        self,
        worker: str,
        lease_seconds: float = LEASE_SECONDS,
        *,
        kinds: Sequence[str] = KINDS,
        device: DeviceRecord | None = None,
    ) -> Lease | None:
        """Take the oldest job that waits for a worker of ``kinds`` on ``device``; None where there is none.

        Jobs whose leases ran out are given back first, see :meth:`expire`.
        """
        self.expire()

        def waiting(connection: Connection) -> Select[Any]:
            these = (JOBS.c.state == "queued", JOBS.c.kind.in_(kinds))
            wanted = connection.execute(select(JOBS.c.device).where(*these).distinct()).scalars()
            fit = [text for text in wanted if text is not None and device is not None and device.matches(text)]
            query = select(JOBS).where(*these, JOBS.c.device.is_(None) | JOBS.c.device.in_(fit))
            return query.order_by(JOBS.c.id).limit(1)

        def work(connection: Connection) -> Lease | None:
            row = connection.execute(waiting(connection).with_for_update(skip_locked=True)).first()
            if row is None:
                return None
            now, attempt = self._now(connection), row.attempt + 1
            changes = {
                "state": "running",
                "attempt": attempt,
                "worker": storable_text(worker),
                "lease_until": later(now, lease_seconds),
                "started_at": now,
                "progress": None,
                "error": None,
            }
            connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(changes))
            told = {"state": "running", "worker": worker, "lease_s": lease_seconds}
            tell(connection, row.id, attempt, "state", told, now)
            job = job_of(connection.execute(select(JOBS).where(JOBS.c.id == row.id)).one())
            return Lease(job, attempt, worker, lease_seconds)

        # Workers look often: where nothing waits they take no lock.
        if self.database.read(lambda connection: connection.execute(waiting(connection)).first()) is None:
            return None
        return self.database.write(work)

    def heartbeat(self, lease: Lease) -> bool:
        """Renew the lease for ``lease.seconds``. Returns True if the job should end, see :meth:`cancelled`."""

        def work(connection: Connection) -> bool:
            row = fenced(connection, lease)
            until = later(self._now(connection), lease.seconds)
            connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(lease_until=until))
            return row.cancel_at is not None

        return self.database.write(work)

    def look(self, lease: Lease) -> bool:
        """What :meth:`heartbeat` returns, without writing."""
        return self.database.read(lambda connection: fenced(connection, lease, lock=False)).cancel_at is not None

    def event(self, lease: Lease, data: Mapping[str, Any], kind: str = "progress") -> None:
        """Store a ``progress`` or ``message`` event."""
        plain = json_object(data)

        def work(connection: Connection) -> None:
            row = fenced(connection, lease)
            if kind == "progress":
                connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(progress=plain))
            tell(connection, row.id, lease.attempt, kind, plain, self._now(connection))

        self.database.write(work)

    def checkpoint(self, lease: Lease, sources: Mapping[str, Source]) -> None:
        """Replace the checkpoint that another attempt resumes from, and renew the lease."""
        with self._files.staged(sources) as files:

            def work(connection: Connection) -> None:
                row = fenced(connection, lease)
                self._files.put(connection, row.id, row.uuid, "checkpoint", files)
                told = {name: file.told for name, file in files.items()}
                until = later(self._now(connection), lease.seconds)
                connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(checkpoint=told, lease_until=until))

            self._tidied(lease.job.id, work)

    def finish(self, lease: Lease, result: Mapping[str, Any], outputs: Mapping[str, Source] | None = None) -> None:
        """End the job as done, with its result and files, all or nothing.  Its checkpoint is not kept."""
        plain = json_object(result)
        with self._files.staged(outputs or {}) as files:

            def work(connection: Connection) -> None:
                row = fenced(connection, lease)
                self._files.put(connection, row.id, row.uuid, "output", files)
                told = {name: file.told for name, file in files.items()}
                job_rows.end(connection, row, self._now(connection), "done", result=plain, outputs=told)

            self._tidied(lease.job.id, work)

    def fail(self, lease: Lease, error: str, retry: bool) -> str:
        """End the attempt for an error; with ``retry`` it counts as lost and the job waits for the next, if it may.

        Returns the state that the job has now: 'failed', 'queued', or 'cancelled' where that was asked for.
        """

        def work(connection: Connection) -> str:
            row = fenced(connection, lease)
            if retry:
                return job_rows.lost(connection, row, self._now(connection), error, "process")
            return job_rows.end(connection, row, self._now(connection), "failed", error=storable_text(error))

        return self._tidied(lease.job.id, work)

    def release(self, lease: Lease, why: str = "its worker was ended") -> str:
        """Return the job to the queue; this attempt does not count.  Returns 'queued' or 'cancelled'."""

        def work(connection: Connection) -> str:
            return job_rows.requeue(connection, fenced(connection, lease), self._now(connection), why)

        return self._tidied(lease.job.id, work)

    def cancelled(self, lease: Lease) -> None:
        """Confirm that the job was cancelled."""
        self._tidied(
            lease.job.id,
            lambda connection: job_rows.end(connection, fenced(connection, lease), self._now(connection), "cancelled"),
        )

    def cancel(self, id: str) -> Job:
        """Cancel the job: at once if it is queued, at the worker's next heartbeat if it runs.

        A job that has ended stays as it is.  Returns the job as it is now.
        """

        def work(connection: Connection) -> Job:
            row = row_of(connection, id, lock=True)
            if row.state == "queued":
                job_rows.end(connection, row, self._now(connection), "cancelled")
            elif row.state == "running" and row.cancel_at is None:
                now = self._now(connection)
                connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(cancel_at=now))
                tell(connection, row.id, row.attempt, "state", {"state": "running", "cancel": True}, now)
            return job_of(row_of(connection, id))

        return self._tidied(id, work)

    def expire(self) -> int:
        """Give back the jobs whose leases ran out, or fail those lost too often; returns how many there were.

        A lease never lasts longer than from now: where the clock was set back, it is shortened.
        """

        def over(connection: Connection) -> Select[Any]:
            return select(JOBS).where(JOBS.c.state == "running", JOBS.c.lease_until < self._now(connection))

        def work(connection: Connection) -> list[str]:
            late = connection.execute(over(connection).with_for_update(skip_locked=True)).all()
            for row in late:
                why = f"the worker {row.worker} was not heard of until {row.lease_until}"
                job_rows.lost(connection, row, self._now(connection), why, "worker")
            for id, until in too_far_ahead(connection, self._now(connection)).items():
                connection.execute(update(JOBS).where(JOBS.c.id == id).values(lease_until=until))
            return [row.uuid for row in late]

        def look(connection: Connection) -> bool:
            found = connection.execute(over(connection).limit(1)).first()
            return found is not None or bool(too_far_ahead(connection, self._now(connection)))

        if not self.database.read(look):  # most often, and looking takes no lock
            return 0
        late = self.database.write(work)
        self._tidy(late)
        return len(late)

    def get(self, id: str) -> Job:
        """The job."""
        return job_of(self.database.read(lambda connection: row_of(connection, id)))

    def list(
        self, *, kind: str | None = None, state: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[Job]:
        """Jobs that pass every filter, newest first; ``before`` is the last id of the page before."""

        def work(connection: Connection) -> Sequence[Job]:
            query = select(JOBS).order_by(JOBS.c.id.desc()).limit(limit)
            if kind is not None:
                query = query.where(JOBS.c.kind == kind)
            if state is not None:
                query = query.where(JOBS.c.state == state)
            if before is not None:
                query = query.where(JOBS.c.id < row_of(connection, before).id)
            return [job_of(row) for row in connection.execute(query)]

        return self.database.read(work)

    def events(self, id: str, after: int = 0, limit: int = 1000) -> Sequence[JobEvent]:
        """Events of the job after the given one, oldest first."""

        def work(connection: Connection) -> Sequence[JobEvent]:
            row = row_of(connection, id)
            query = select(JOB_EVENTS).where(JOB_EVENTS.c.job_id == row.id, JOB_EVENTS.c.id > after)
            found = connection.execute(query.order_by(JOB_EVENTS.c.id).limit(limit))
            return [JobEvent(e.id, row.uuid, e.attempt, e.kind, e.data, e.created_at) for e in found]

        return self.database.read(work)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        query = select(JOBS.c.state, func.count()).group_by(JOBS.c.state)
        found = self.database.read(lambda connection: connection.execute(query).all())
        return dict.fromkeys(STATES, 0) | {state: count for state, count in found}

    def stored(self) -> int:
        """Bytes of all files of all jobs."""
        return self._files.stored()

    def read(self, id: str, area: str, name: str) -> Iterator[bytes]:
        """A file of the job in parts of at most 1 MiB.  Raises :class:`UnknownJobError` at once when there is none.

        Input files and checkpoints are kept until the job ends.
        """
        row, told = self.database.read(lambda connection: file_of(connection, id, area, name))
        return self._files.parts(row.id, row.uuid, area, name, told)

    def save(self, id: str, area: str, name: str, path: Path, each: Callable[[], None] | None = None) -> None:
        """Write a file of the job to ``path``, whole or not at all; ``each`` is called after every part of 1 MiB.

        Raises ``StoreError`` where it is not what was stored, and what ``each`` raises.
        """
        row, told = self.database.read(lambda connection: file_of(connection, id, area, name))
        job_files.save(self._files.parts(row.id, row.uuid, area, name, told), told["sha256"], path, each)

    def remove(self, id: str) -> None:
        """Delete a job that has ended, with its events and files.  Raises ``InputError`` if it has not ended."""

        def work(connection: Connection) -> None:
            row = row_of(connection, id, lock=True)
            if row.state not in ENDED:
                raise InputError(f"the job {row.uuid} is {row.state}: cancel it first")
            for table in (JOB_FILES, JOB_EVENTS):
                connection.execute(delete(table).where(table.c.job_id == row.id))
            connection.execute(delete(JOBS).where(JOBS.c.id == row.id))

        self._tidied(id, work)

    def sweep(self) -> None:
        """Remove files that processes left which were killed."""
        self._tidy(None)

    def _tidied(self, id: str, work: Callable[[Connection], T]) -> T:
        """Write, and then remove the files of the job that its row names no more."""
        found = self.database.write(work)
        self._tidy([uuid.UUID(id).hex])
        return found

    def _tidy(self, ids: Sequence[str] | None) -> None:
        with suppress(StoreError):  # what is left now goes with the next sweep
            self._files.tidy(ids)

    def _now(self, connection: Connection) -> str:
        if self._clock is not None:
            return utc_timestamp(self._clock().isoformat())
        if connection.dialect.name == "postgresql":
            moment: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
            return utc_timestamp(moment.isoformat())
        return utc_now()
