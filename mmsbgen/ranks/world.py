"""The ranks of a run, processes that MPI has started together, and the messages between them.

Rank 0 leads: it tells the others what to do, and they answer.  Nobody waits for a rank that is no more: every wait also
looks whether the others of this machine still live, and whether a rank has failed.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from mmsbgen.base.errors import MissingDependencyError, MmsbgenError

__all__ = ["Ended", "LostRankError", "Released", "World", "short"]

_NO_MPI = "several ranks need MPI; get it with: pip install 'mmsbgen[mpi]'"
#: Bytes of a message that is sent at once, and of an answer.
_SHORT, _ANSWER = 512, 4096
#: Bytes of an array sent at a time.
_PART = 1 << 26
_FAILED, _END, _DATA = 1, 2, 3
#: Exit code after Ctrl-C, as in shells.
_INTERRUPTED = 130
#: Seconds between looks at the other ranks; seconds of an exchange, and times the longest so far, that are too long.
_LOOK_S, _LIMIT_S, _TIMES = 0.1, 600.0, 20.0


def short(text: str) -> str:
    """The beginning of a text that fits in an answer."""
    return text.encode()[: _ANSWER // 2].decode(errors="ignore")


class LostRankError(MmsbgenError):
    """A rank has died, failed, or does not answer."""


class Released(Exception):  # noqa: N818
    """Rank 0 has ended the run; for the others this is no error."""


class Ended(Released):
    """Rank 0 has told the end, and all ranks end MPI together."""


def _mpi() -> Any:
    try:
        import mpi4py
    except ModuleNotFoundError:
        raise MissingDependencyError(_NO_MPI) from None
    mpi4py.rc.finalize = False
    mpi4py.rc.thread_level = "funneled"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingDependencyError(f"{_NO_MPI} ({error})") from None
    return MPI


class World:
    """The ranks of this run; leaving the context ends them.

    Attributes:
        rank: number of this rank; 0 leads.
        size: number of ranks.
        local_rank: number of this rank among those of its machine.
        names: name of every rank for messages; with its device once that is known.
        lost: whether ranks are no longer in step.
        has_swept: whether a sweep has been shared: kernels are built, so that ranks must answer in time.
    """

    def __init__(self) -> None:
        self.mpi = _mpi()
        self.comm = self.mpi.COMM_WORLD
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self.hosts = self.comm.allgather((self.mpi.Get_processor_name(), os.getpid()))
        host = self.hosts[self.rank][0]
        self.local_rank = [at for at, (name, _) in enumerate(self.hosts) if name == host].index(self.rank)
        self.names = [f"rank {at}" for at in range(self.size)]
        self.lost = self.has_swept = False
        watched = range(1, self.size) if self.rank == 0 else [0]
        self._watched = {at: psutil.Process(self.hosts[at][1]) for at in watched if self.hosts[at][0] == host}
        self._longest = 0.0
        self._sent: list[Any] = []
        self._held = list(range(1, self.size))

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            # The others may wait for something else than the end.
            self.release()
        self.close()

    def close(self) -> None:
        """End the other ranks, and MPI; after a loss MPI cannot be ended, and those that still live are released."""
        if self.mpi.Is_finalized():
            return
        if not self.lost:
            if self.rank == 0:
                self.tell("end")
            self.mpi.Finalize()
        else:
            self.release()

    def release(self) -> None:
        """Let the other ranks end: this one is lost to them, or one of them to it."""
        self.lost = True
        while self.rank == 0 and self._held:
            self._sent.append(self.comm.isend(None, self._held.pop(), _END))

    def ends_after(self, seconds: float, error: BaseException) -> threading.Timer:
        """A started timer that ends this process, on rank 0 with the message of ``error``, unless it is cancelled."""

        def end() -> None:
            asked = isinstance(error, KeyboardInterrupt)
            if self.rank == 0:
                told = "Interrupted.\n" if asked else f"Error: {error}\n"
                sys.stderr.write("\n".join([*getattr(error, "__notes__", ()), told]))
                sys.stderr.flush()
            os._exit(_INTERRUPTED if asked else LostRankError.exit_code)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        return timer

    # Waiting -------------------------------------------------------------------------------------------------

    def until(self, done: Callable[[], Any], limited: bool = False) -> None:
        """Wait until ``done`` returns true; ``limited`` waits are for ranks that must answer.

        Raises :class:`LostRankError`, and :class:`Released` on the others when rank 0 has ended the run.
        """
        try:
            self._until(done, limited)
        except BaseException:
            # Ranks are no longer in step.
            self.lost = True
            raise

    def _until(self, done: Callable[[], Any], limited: bool) -> None:
        begin = looked = time.monotonic()
        while not done():
            now = time.monotonic()
            if now - looked > _LOOK_S:
                looked = now
                self._look()
                watched = limited and self.has_swept and self.rank == 0
                if watched and now - begin > max(_LIMIT_S, _TIMES * self._longest):
                    raise LostRankError(f"no answer from the other ranks for {now - begin:.0f} s")
            # Waiting ranks leave the processor to those that compute on it.
            spent = now - begin
            time.sleep(0.0 if spent < 0.02 else 1e-4 if spent < 1.0 else 1e-3)
        if limited:
            self._longest = max(self._longest, time.monotonic() - begin)

    def _look(self) -> None:
        """Raise if a rank has failed or is no more."""
        if self.rank:
            if self.comm.Iprobe(0, _END):
                raise Released
            if self._gone():
                raise LostRankError(f"{self.names[0]} has died (process {self.hosts[0][1]} on {self.hosts[0][0]})")
            return
        if self.comm.Iprobe(self.mpi.ANY_SOURCE, _FAILED):
            status = self.mpi.Status()
            text = self.comm.recv(source=self.mpi.ANY_SOURCE, tag=_FAILED, status=status)
            raise LostRankError(f"{self.names[status.source]} failed: {text}")
        for at in self._gone():
            raise LostRankError(f"{self.names[at]} has died (process {self.hosts[at][1]} on {self.hosts[at][0]})")

    def _gone(self) -> list[int]:
        def lives(process: psutil.Process) -> bool:
            try:
                return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                return False

        return [at for at, process in self._watched.items() if not lives(process)]

    def failed(self, text: str) -> None:
        """Tell rank 0 that this rank cannot go on, and wait until it has ended the run."""
        self._sent.append(self.comm.isend(text[:_ANSWER], 0, _FAILED))
        with suppress(Released, LostRankError):
            self.until(lambda: False)

    def outlasted(self, seconds: float) -> None:
        """Wait for the end of rank 0's process: some launchers kill all when one ends first."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._gone():
            time.sleep(0.05)

    # Messages ------------------------------------------------------------------------------------------------

    def tell(self, what: str, *values: Any) -> None:
        """Tell all other ranks something; they :meth:`hear` it."""
        data = pickle.dumps((what, *values))
        head = np.zeros(_SHORT, np.uint8)
        head[:8].view(np.uint64)[0] = len(data)
        body = np.frombuffer(data, np.uint8)
        if len(data) <= _SHORT - 8:
            head[8 : 8 + len(data)] = body
        self._all(self.comm.Ibcast(head, 0))
        if len(data) > _SHORT - 8:
            self._all(self.comm.Ibcast(body.copy(), 0))

    def hear(self) -> tuple[Any, ...]:
        """What rank 0 tells; raises :class:`Ended` if that is the end."""
        head = np.empty(_SHORT, np.uint8)
        self._all(self.comm.Ibcast(head, 0))
        size = int(head[:8].view(np.uint64)[0])
        body = head[8 : 8 + size]
        if size > _SHORT - 8:
            body = np.empty(size, np.uint8)
            self._all(self.comm.Ibcast(body, 0))
        heard: tuple[Any, ...] = pickle.loads(body.tobytes())
        if heard[0] == "end":
            raise Ended
        return heard

    def answers(self, own: Any) -> list[Any]:
        """The answers of all ranks, on rank 0; ``own`` is that of this rank, and short."""
        mine = np.zeros(_ANSWER, np.uint8)
        data = pickle.dumps(own)
        mine[: len(data)] = np.frombuffer(data, np.uint8)
        all_of_them = np.empty((self.size, _ANSWER), np.uint8) if self.rank == 0 else None
        self._all(self.comm.Igather(mine, all_of_them, 0))
        return [] if all_of_them is None else [pickle.loads(row.tobytes()) for row in all_of_them]

    def send(self, array: npt.NDArray[Any], to: int) -> None:
        """Send a contiguous array to a rank, in parts."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for first in range(0, data.size, _PART):
            self._all(self.comm.Isend(data[first : first + _PART], to, _DATA))

    def receive(self, array: npt.NDArray[Any]) -> None:
        """Fill a contiguous array with what rank 0 sends."""
        data = array.reshape(-1).view(np.uint8)
        for first in range(0, data.size, _PART):
            self._all(self.comm.Irecv(data[first : first + _PART], 0, _DATA))

    def _all(self, request: Any) -> None:
        self.until(request.Test)
