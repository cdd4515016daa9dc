"""The worker: it claims a job, lets a child do it, keeps the lease meanwhile, and records what came of it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import Timeout

from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.db.store.connect import Location
from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.jobs import KINDS, Job, Lease, LeaseLostError, Queue, UnknownJobError
from mmsbgen.tuner.measure.device_lock import device_lock
from mmsbgen.worker.job_child import Child, ask_device
from mmsbgen.worker.lease_renewal import LeaseRenewal
from mmsbgen.worker.task import JobOutcome, Task

__all__ = ["Worker", "WorkerSettings"]

CHECKPOINT = "checkpoint.npz"
OWNER = "database"
"""A file in the folder of each job: the database that the job is of."""
_IDLE_S = 1.0
"""How often an idle worker looks for jobs."""
_AGAIN_S = 3.0
"""How long to wait before a database that failed is asked again."""
_UNFIT_S = 30.0
"""How long to leave jobs to others where none can begin here."""
_REPEAT_S = 30.0
"""Between messages about a database that is away."""
_LISTEN_S = 0.2
_ONE_REQUEST_S = 2.0
"""Signals within so long are one request: systemd and the service may both send theirs, and Linux tells a child of the
death of its parent's threads one by one."""
_FOLDER = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class WorkerSettings:
    """How a worker works."""

    data: Path
    """Where the files of jobs lie while they run."""
    device: str | None = None
    kinds: Sequence[str] = KINDS
    lease_s: float = 60.0
    checkpoint_s: float = 60.0
    """Between checkpoints of a job."""
    checkpoint_bytes: int = 256 << 20
    """Larger checkpoints stay in ``data``: only a worker that has this folder goes on from them."""
    grace_s: float = 20.0
    """How long a job that is to stop may take to leave a checkpoint."""


class _StoppedError(Exception):
    """The worker or the job was asked to end before the job began."""


class _UnfitError(InputError):
    """No job can begin on this machine now, its disk or memory being full: that is no fault of the job."""


@dataclass
class _Attempt:
    """One attempt at a job, while it goes on."""

    lease: Lease
    folder: Path
    keeping: LeaseRenewal
    child: Child
    stop_by: float | None = None
    """When it is killed, once it was asked to stop."""


class Worker:
    """Takes jobs for one device from the queue of the database at ``location``.

    ``say`` is told in plain words what happens.  Workers on one device of a machine take turns: only one of them holds
    a job, so that no job waits with one while another device is free.

    Raises :class:`InputError` where the device cannot be opened or the folder for files cannot be written.
    """

    def __init__(self, queue: Queue, location: Location, settings: WorkerSettings, say: Callable[[str], None]) -> None:
        self.queue, self.settings, self.say = queue, settings, say
        self.signals = StopRequest(once_within_s=_ONE_REQUEST_S, interrupts=False)
        self._quiet_until = 0.0
        if location.url is None and location.path is None:
            raise InputError("a database in memory has no jobs: give a file or a server with --database")
        self._database = (
            str(location.path) if location.url is None else location.url.render_as_string(hide_password=False)
        )
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
        """Do jobs until asked to end, until ``most`` were done, or with ``drain`` until none waits.

        Returns the number of the signal that asked, if one did.  Where the worker was not to stay, raises
        :class:`StoreError` when the database fails and :class:`InputError` when no job can begin on this machine.
        """
        done = 0
        with self.signals.listening():
            self._sweep()
            self.say(f"taking jobs ({', '.join(self.settings.kinds)}) for {self.record.label}")
            while not self.signals and (most is None or done < most):
                try:
                    with self._turn() as ours:
                        lease = self._claim() if ours else None
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

    def _claim(self) -> Lease | None:
        return self.queue.claim(self.name, self.settings.lease_s, kinds=self.settings.kinds, device=self.record)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[bool]:
        """Whether this worker is the one that may have a job on its device now."""
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
        """One attempt at a job, from its files to what came of it."""
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
        """Fetch the files of a job and keep it meanwhile; raises :class:`InputError` where they cannot be written."""
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
            self.settings.checkpoint_s,
        )

    def _checkpoint_of(self, job: Job, folder: Path, keep: Callable[[], None]) -> Path | None:
        """The checkpoint to go on from: the database's, else one too large for it that lies here."""
        if job.checkpoint and CHECKPOINT in job.checkpoint:
            place = folder / "before.npz"
            self.queue.save(job.id, "checkpoint", CHECKPOINT, place, keep)
            return place
        kept = [path for path in folder.parent.glob(f"*/{CHECKPOINT}") if path.parent.name.isdigit()]
        return max(kept, key=lambda path: int(path.parent.name), default=None)

    def _watch(self, attempt: _Attempt) -> bool:
        """Listen to the child and keep the lease until one of them ends; whether the job has ended with that."""
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
        """Keep the job, and ask the child to stop where somebody asked for that.  Raises :class:`LeaseLostError`."""
        if (attempt.keeping.look() or self.signals) and attempt.stop_by is None:
            attempt.stop_by = time.monotonic() + self.settings.grace_s
            attempt.child.interrupt()
        if self.signals.count > 1:
            attempt.stop_by = 0.0

    def _stopped(self, attempt: _Attempt) -> bool:
        """Give the job back, or confirm that it was cancelled; what killed the child costs an attempt."""
        how = attempt.child.killed()
        attempt.child.close()
        if how and not attempt.keeping.cancel:
            self.say(f"job {attempt.lease.job.id[:8]}: {how}")
            return self._failed(attempt.lease, how, True)
        return self._given_back(attempt.keeping)

    def _given_back(self, keeping: LeaseRenewal) -> bool:
        """Give the job back, or confirm that it was cancelled, and so has ended."""
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
        """Put a checkpoint into the database where it is small enough; those of attempts before are not needed then."""
        try:
            # The child may replace the file meanwhile, but not what was opened.
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size <= self.settings.checkpoint_bytes:
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
        """Say now and then what fails many times a second while the database is away."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _REPEAT_S
            self.say(text)

    def _persist(self, write: Callable[[], object]) -> bool:
        """Record how an attempt ended, however long the database is away; False when the job is another's by then."""
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
        """Remove files that nobody needs any more."""
        if ended:
            shutil.rmtree(folder.parent, ignore_errors=True)
            return
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name != CHECKPOINT:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a checkpoint stays until the job has ended
            folder.rmdir()
            # Of a job that goes on another worker may have begun the next attempt in there by now.
            owner = folder.parent / OWNER
            if not any(path.is_dir() for path in folder.parent.iterdir()):
                owner.unlink(missing_ok=True)
                try:
                    folder.parent.rmdir()
                except OSError:
                    owner.write_text(self._owner)

    def _sweep(self) -> None:
        """Remove what attempts that were killed, or gave their job back, left of jobs that have ended since.

        A job that this database does not know was deleted, or is one of another database, whose workers may share the
        folder.
        """
        for folder in self._jobs.iterdir():
            if _FOLDER.fullmatch(folder.name):
                with contextlib.suppress(MmsbgenError):
                    try:
                        over = self.queue.get(folder.name).ended
                    except UnknownJobError:
                        over = _text(folder / OWNER) == self._owner
                    if over:
                        shutil.rmtree(folder, ignore_errors=True)


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
