"""The worker: claims a job, runs it in a child process, renews its lease, and records the outcome."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import Timeout

from mmsbgen.backends.device_lock import device_lock
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.db.records.job_records import KINDS, Job, Lease, LeaseLostError, UnknownJobError
from mmsbgen.db.store.connect import Location
from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.jobs.queue import Queue
from mmsbgen.jobs.worker.job_child import Child, ask_device
from mmsbgen.jobs.worker.lease_renewal import LeaseRenewal
from mmsbgen.jobs.worker.task import JobOutcome, Task, WorkerSettings

CHECKPOINT = "checkpoint.npz"
OWNER = "database"
"""File in the folder of each job that names the job's database."""
_IDLE_S = 1.0
"""Seconds between an idle worker's looks at the queue."""
_AGAIN_S = 3.0
"""Seconds before a failed database is tried again."""
_UNFIT_S = 30.0
"""Seconds without claims after no job could begin on this machine."""
_REPEAT_S = 30.0
"""Least seconds between messages about an unreachable database."""
_LISTEN_S = 0.2
_ONE_REQUEST_S = 2.0
"""Signals within this time count as one request.

systemd and the service may both send one, and Linux may signal a child once for each thread of its parent that dies.
"""
_FOLDER = re.compile(r"[0-9a-f]{32}")


class _StoppedError(Exception):
    """The worker or the job was asked to end before the job began."""


class _UnfitError(InputError):
    """No job can begin on this machine now, for example because its disk is full; the job is not at fault."""


@dataclass
class _Attempt:
    """One attempt at a job, in progress."""

    lease: Lease
    folder: Path
    keeping: LeaseRenewal
    child: Child
    began: float = field(default_factory=time.monotonic)
    overdue: bool = False
    """Whether it was asked to stop because it takes too long."""
    stop_by: float | None = None
    """When the child is killed (:func:`time.monotonic`), once it was asked to stop."""


class Worker:
    """Takes jobs for one device from the queue of the database at ``location``.

    ``say`` is called with messages for the user.  Workers on one device of a machine take turns: only one of them holds
    a job, so that no job waits with one while another device is free.

    Raises :class:`InputError` if the device cannot be opened or the folder for files cannot be written.
    """

    def __init__(self, queue: Queue, location: Location, settings: WorkerSettings, say: Callable[[str], None]) -> None:
        self.queue, self.settings, self.say = queue, settings, say
        self.signals = StopRequest(once_within_s=_ONE_REQUEST_S, interrupts=False)
        self._quiet_until = 0.0
        if location.url is None and location.path is None:
            raise InputError("a database in memory has no jobs: give a file or a server with --database")
        url = location.url
        self._database = str(location.path) if url is None else url.render_as_string(hide_password=False)
        self._owner = f"{location}\n"
        odd = [kind for kind in settings.kinds if kind not in KINDS]
        if odd or not settings.kinds:
            raise InputError(f"there are no jobs of kind {odd[0] if odd else ''!r}: give some of {', '.join(KINDS)}")
        self._jobs = settings.data / "jobs"
        try:
            self._jobs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self._jobs} cannot be made: {error.strerror}; name another folder with --data"
            ) from None
        found = ask_device(settings.device)
        self.record, self._hardware, self._device = found["record"], found["hardware"], found["spec"]
        self.name = f"{platform.node()} {os.getpid()} {self._device}"

    def run(self, *, most: int | None = None, drain: bool = False) -> int | None:
        """Do jobs until asked to end, until ``most`` are done, or with ``drain`` until none waits.

        Returns the number of the signal that asked, if any.  With ``most`` or ``drain``, raises :class:`StoreError`
        when the database fails and :class:`InputError` when no job can begin on this machine; otherwise it tries again
        later.
        """
        done = 0
        with self.signals.listening():
            self._sweep()
            self.say(f"taking jobs ({', '.join(self.settings.kinds)}) for {self.record.label}")
            while not self.signals and (most is None or done < most):
                try:
                    with self._turn() as ours:
                        kinds, seconds = self.settings.kinds, self.settings.lease
                        lease = self.queue.claim(self.name, seconds, kinds=kinds, device=self.record) if ours else None
                        if lease is not None:
                            self._do(lease)
                            self._sweep()
                            done += 1
                            continue
                except (StoreError, _UnfitError) as error:
                    if drain or most is not None:
                        raise
                    self.say(f"{error}; trying again")
                    self.signals.wait(_AGAIN_S if isinstance(error, StoreError) else _UNFIT_S)
                    continue
                if ours and drain:
                    break
                self.signals.wait(_IDLE_S)
        return self.signals.last

    @contextlib.contextmanager
    def _turn(self) -> Iterator[bool]:
        """Yield whether this worker may hold a job on its device now."""
        lock = device_lock(f"jobs {self._hardware}")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _do(self, lease: Lease) -> None:
        """Make one attempt at a job, from fetching its files to recording the outcome."""
        job = lease.job
        self.say(f"job {job.id[:8]} ({job.kind}), attempt {lease.attempt}")
        folder, keeping = self._jobs / job.id / str(lease.attempt), LeaseRenewal(self.queue, lease, self._failing)
        try:
            child = Child(self._task(keeping, folder))
        except LeaseLostError as error:
            self.say(str(error))
            self._tidy(job, folder, False)
            return
        except _StoppedError:
            ended = self._given_back(keeping)
            self._tidy(job, folder, ended)
            return
        except StoreError as error:
            why = str(error)
            self.say(why)
            self._persist(lambda: self.queue.fail(lease, why, retry=True))
            return
        except (InputError, OSError) as error:
            unfit = _UnfitError(f"the worker {self.name} could not begin: {error}")
            shutil.rmtree(folder, ignore_errors=True)
            self._persist(lambda: self.queue.release(lease, str(unfit)))
            raise unfit from error
        try:
            ended = self._watch(_Attempt(lease, folder, keeping, child))
        finally:
            child.close()
        self._tidy(job, folder, ended)

    def _task(self, keeping: LeaseRenewal, folder: Path) -> Task:
        """Fetch a job's files and renew its lease meanwhile; raises :class:`InputError` if they cannot be written."""
        job = keeping.lease.job

        def keep() -> None:
            if keeping.look() or self.signals:
                raise _StoppedError

        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder.parent / OWNER).write_text(self._owner)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {error.strerror}") from None
        for name in job.inputs:
            self.queue.save(job.id, "input", name, folder / name, keep)
        return Task(
            job.kind,
            job.payload,
            folder,
            {name: folder / name for name in job.inputs},
            self._checkpoint_of(job, folder, keep),
            self._device,
            self._hardware,
            self._database,
            self.settings.checkpoint_seconds,
        )

    def _checkpoint_of(self, job: Job, folder: Path, keep: Callable[[], None]) -> Path | None:
        """The checkpoint to resume from: the database's, else the newest here, which is too large for it."""
        if job.checkpoint and CHECKPOINT in job.checkpoint:
            place = folder / "before.npz"
            self.queue.save(job.id, "checkpoint", CHECKPOINT, place, keep)
            return place
        kept = [path for path in folder.parent.glob(f"*/{CHECKPOINT}") if path.parent.name.isdigit()]
        return max(kept, key=lambda path: int(path.parent.name), default=None)

    def _watch(self, attempt: _Attempt) -> bool:
        """Listen to the child and renew the lease until the attempt ends; returns whether the job has ended too."""
        lease, child = attempt.lease, attempt.child
        while True:
            try:
                self._keep(attempt)
                if attempt.stop_by is not None and time.monotonic() >= attempt.stop_by:
                    return self._stopped(attempt)
                match child.hear(_LISTEN_S):
                    case ("progress", data):
                        self._tell(lease, data, "progress")
                    case ("message", text):
                        self._tell(lease, {"text": text}, "message")
                    case ("checkpoint", path):
                        self._store(attempt, path)
                        if attempt.stop_by is not None:
                            return self._stopped(attempt)
                    case ("done", JobOutcome(result, outputs)):
                        self.say(f"job {lease.job.id[:8]} is done")
                        return self._finished(lease, result, outputs)
                    case ("stopped",):
                        return self._stopped(attempt)
                    case ("error", text, retry):
                        self.say(f"job {lease.job.id[:8]} failed: {text}")
                        if text.startswith("internal error"):
                            self.say(child.printed())
                        return self._failed(lease, text, retry)
                    case ("died", how):
                        if attempt.stop_by is not None:
                            return self._stopped(attempt)
                        words = child.printed()[-300:]
                        self.say(f"job {lease.job.id[:8]}: {how}")
                        return self._failed(lease, f"{how}; its last words: {words}" if words else how, True)
            except LeaseLostError as error:
                self.say(str(error))
                return False

    def _keep(self, attempt: _Attempt) -> None:
        """Renew the lease, and interrupt the child if a stop was requested.  Raises :class:`LeaseLostError`."""
        hours = (time.monotonic() - attempt.began) / 3600
        overdue = self.settings.max_hours is not None and hours > self.settings.max_hours
        if (attempt.keeping.look() or self.signals or overdue) and attempt.stop_by is None:
            attempt.overdue = overdue
            attempt.stop_by = time.monotonic() + self.settings.grace_s
            attempt.child.interrupt()
        if self.signals.count > 1:
            attempt.stop_by = 0.0

    def _stopped(self, attempt: _Attempt) -> bool:
        """Return a stopped job to the queue or record its cancellation; a killed child counts as a failed attempt."""
        how = attempt.child.killed()
        attempt.child.close()
        if attempt.overdue and not attempt.keeping.cancel:
            why = f"it ran for {self.settings.max_hours:.3g} hours, the most that this worker gives a job"
            self.say(f"job {attempt.lease.job.id[:8]} is ended: {why}")
            return self._failed(attempt.lease, why, False)
        if how and not attempt.keeping.cancel:
            self.say(f"job {attempt.lease.job.id[:8]}: {how}")
            return self._failed(attempt.lease, how, True)
        return self._given_back(attempt.keeping)

    def _given_back(self, keeping: LeaseRenewal) -> bool:
        """Return the job to the queue, or record its cancellation; returns whether the job has ended."""
        lease = keeping.lease
        if keeping.cancel:
            self.say(f"job {lease.job.id[:8]} is cancelled")
            return self._persist(lambda: self.queue.cancelled(lease))
        self.say(f"job {lease.job.id[:8]} goes back to the queue")
        return self._persist(lambda: self.queue.release(lease)) and False

    def _finished(self, lease: Lease, result: dict[str, Any], outputs: dict[str, Path]) -> bool:
        try:
            return self._persist(lambda: self.queue.finish(lease, result, outputs))
        except InputError as error:  # its files cannot be read any more
            return self._failed(lease, str(error), True)

    def _failed(self, lease: Lease, error: str, retry: bool) -> bool:
        states: list[str] = []
        self._persist(lambda: states.append(self.queue.fail(lease, error, retry)))
        return bool(states) and states[0] != "queued"

    def _store(self, attempt: _Attempt, path: Path) -> None:
        """Store a checkpoint in the database if it is small enough, and remove the folders of earlier attempts."""
        try:
            # The child may replace the file meanwhile; the opened one stays as it is.
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size <= self.settings.checkpoint_mib << 20:
                    self.queue.checkpoint(attempt.lease, {CHECKPOINT: file})
                    attempt.keeping.kept()
        except (OSError, InputError, StoreError) as error:
            self._failing(f"a checkpoint was not stored: {error}")
            return
        for folder in attempt.folder.parent.iterdir():
            if folder != attempt.folder and folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, lease: Lease, data: dict[str, Any], kind: str) -> None:
        try:
            self.queue.event(lease, data, kind)
        except StoreError as error:
            self._failing(f"progress was not stored: {error}")

    def _failing(self, text: str) -> None:
        """Report a database error, at most once in ``_REPEAT_S`` seconds."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _REPEAT_S
            self.say(text)

    def _persist(self, write: Callable[[], object]) -> bool:
        """Record an attempt's outcome, retrying while the database is away.

        False if the lease was lost or a second stop was requested.
        """
        while True:
            try:
                write()
                return True
            except LeaseLostError as error:
                self.say(str(error))
                return False
            except StoreError as error:
                self.say(f"{error}; trying again")
                if self.signals.count > 1:
                    return False
                time.sleep(_AGAIN_S)

    def _tidy(self, job: Job, folder: Path, ended: bool) -> None:
        """Remove files that are no longer needed."""
        if ended:
            shutil.rmtree(folder.parent, ignore_errors=True)
            return
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name != CHECKPOINT:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a checkpoint stays until the job has ended
            folder.rmdir()
            # Another worker may have begun the job's next attempt in this folder by now.
            owner = folder.parent / OWNER
            if not any(path.is_dir() for path in folder.parent.iterdir()):
                owner.unlink(missing_ok=True)
                try:
                    folder.parent.rmdir()
                except OSError:
                    owner.write_text(self._owner)

    def _sweep(self) -> None:
        """Remove the folders of jobs that have ended since their attempts were killed or returned them to the queue.

        A job that this database does not know was deleted, or belongs to another database whose workers share the
        folder.
        """
        self.queue.sweep()
        for folder in self._jobs.iterdir():
            if _FOLDER.fullmatch(folder.name):
                with contextlib.suppress(MmsbgenError, OSError, UnicodeDecodeError):
                    try:
                        over = self.queue.get(folder.name).ended
                    except UnknownJobError:
                        over = (folder / OWNER).read_text() == self._owner
                    if over:
                        shutil.rmtree(folder, ignore_errors=True)
