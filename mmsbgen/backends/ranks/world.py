"""The ranks of a run, processes that MPI has started together, and the messages between them.

Rank 0 leads: it tells the others what to do, and they answer.  Nobody waits for a rank that is no more: every wait also
looks whether the others of this machine still live, and whether a rank has failed.  In a long wait rank 0 asks the
others: one that answers is slow, and one that does not hangs.
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

_NO_MPI = "several ranks need MPI; get it with: pip install 'mmsbgen[mpi]'"
#: Bytes of a message that is sent at once, and of an answer.
_SHORT, _ANSWER = 512, 4096
#: Bytes of an array sent at a time.
_PART = 1 << 26
_FAILED, _END, _DATA, _ASK, _HERE = 1, 2, 3, 4, 5
#: Exit code after Ctrl-C, as in shells.
_INTERRUPTED = 130
#: Seconds between looks at the other ranks.
_LOOK_S = 0.1
#: Seconds of a wait, and times the longest so far, after which rank 0 asks the others; seconds after which a rank that
#: has not answered hangs, before the first sweep to build kernels; and after which a device that still computes hangs.
_ASK_S, _ASK_TIMES = 5.0, 2.0
_SILENT_S, _SILENT_TIMES, _BUILD_S = 30.0, 5.0, 600.0
_STUCK_S, _STUCK_TIMES = 600.0, 20.0
#: The same before the end of the first sweep.
_FIRST_S = 3600.0
#: Seconds that a rank waits for rank 0 on another machine, whose end it does not see.
_UNSEEN_S = 300.0


def _exit_code(error: BaseException) -> int:
    """The exit code of a process that ends with ``error``."""
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    found = error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", 1)
    return found if isinstance(found, int) else 1


def short(text: str) -> str:
    """The beginning of a text that fits in an answer."""
    return text.encode()[: _ANSWER // 2].decode(errors="ignore")


class LostRankError(MmsbgenError):
    """A rank has died, failed, or does not answer."""


class Released(Exception):  # noqa: N818
    """Rank 0 has ended the run; for the others this is no error.  They end with ``exit_code``, which rank 0 gives."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


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
        names: name of every rank for messages, with its host if there are several, and its device once that is known.
        lost: whether ranks are no longer in step.
        has_swept: whether a sweep has been shared: kernels are built, so that ranks answer at once.
        late: seconds of the longest wait for each rank that was late, since they were last cleared.
        computes: whether this rank's device has launches left of what was queued ahead.
    """

    def __init__(self) -> None:
        self.mpi = _mpi()
        self.comm = self.mpi.COMM_WORLD
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self.hosts = self.comm.allgather((self.mpi.Get_processor_name(), os.getpid()))
        host = self.hosts[self.rank][0]
        self.local_rank = [at for at, (name, _) in enumerate(self.hosts) if name == host].index(self.rank)
        several = len({name for name, _ in self.hosts}) > 1
        self.names = [f"rank {at} on {name}" if several else f"rank {at}" for at, (name, _) in enumerate(self.hosts)]
        self.lost = self.has_swept = False
        watched = range(1, self.size) if self.rank == 0 else [0]
        self._watched = {at: psutil.Process(self.hosts[at][1]) for at in watched if self.hosts[at][0] == host}
        self.late: dict[int, float] = {}
        self.computes: Callable[[], bool] = lambda: False
        self._longest = 0.0
        self._computes = False
        self._asked: dict[int, float] = {}
        self._busy: set[int] = set()
        self._silent: list[int] = []
        self._sent: list[Any] = []
        self._held = list(range(1, self.size))

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            # The others may wait for something else than the end.
            self.release(error)
        self.close()

    def close(self) -> None:
        """End the other ranks, and MPI; after a loss MPI cannot be ended, and those that still live are released."""
        if self.mpi.Is_finalized():
            return
        try:
            if not self.lost:
                if self.rank == 0:
                    self.tell("end")
                # Unlike the end of MPI this wait can be left.
                self._all(self.comm.Ibarrier())
                self.mpi.Finalize()
        except BaseException as error:
            self.release(error)
            raise
        finally:
            self._end_silent()

    def _end_silent(self) -> None:
        """Kill the ranks of this machine that hang: the launcher would wait for them."""
        for at in self._silent:
            with suppress(psutil.Error, KeyError):
                self._watched[at].kill()

    def release(self, error: BaseException) -> None:
        """Let the other ranks end, as this one does with ``error``: it is lost to them, or one of them to it."""
        self.lost = True
        while self.rank == 0 and self._held:
            self._post(_exit_code(error), self._held.pop(), _END)

    def ends_after(self, seconds: float, error: BaseException) -> threading.Timer:
        """A started timer that ends this process, on rank 0 with the message of ``error``, unless it is cancelled."""

        def end() -> None:
            if self.rank == 0:
                told = "Interrupted.\n" if isinstance(error, KeyboardInterrupt) else f"Error: {error}\n"
                sys.stderr.write("\n".join([*getattr(error, "__notes__", ()), told]))
                sys.stderr.flush()
            self._end_silent()
            os._exit(_exit_code(error))

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        return timer

    # Waiting -------------------------------------------------------------------------------------------------

    def until(self, done: Callable[[], Any], own: bool = False) -> None:
        """Wait until ``done`` returns true; ``own`` is whether only this rank's device is waited for.

        Raises :class:`LostRankError`, and :class:`Released` on the others when rank 0 has ended the run.
        """
        self._computes = own
        try:
            self._until(done)
        except BaseException:
            # Ranks are no longer in step.
            self.lost = True
            raise
        finally:
            self._computes = False

    def _until(self, done: Callable[[], Any]) -> None:
        begin = looked = time.monotonic()
        waited, ask_at = 0.0, max(_ASK_S, _ASK_TIMES * self._longest)
        self._asked, self._busy = dict.fromkeys(self._asked, 0.0), set()
        while not done():
            now = time.monotonic()
            if now - looked > _LOOK_S:
                # Seconds in which this process was stopped do not count.
                waited += min(now - looked, 10 * _LOOK_S)
                looked = now
                self._look()
                if self.rank == 0:
                    self._check_answers(waited)
                    if waited >= ask_at:
                        self._ask(waited)
                        ask_at += _ASK_S
            # Waiting ranks leave the processor to those that compute on it.
            spent = now - begin
            time.sleep(0.0 if spent < 0.02 else 1e-4 if spent < 1.0 else 1e-3)
        if self.has_swept and self.rank == 0:
            # An answer takes a look or two.
            silent = {at for at, since in self._asked.items() if waited - since > 10 * _LOOK_S}
            for at in silent | self._busy if waited >= _ASK_S and not self._computes else ():
                self.late[at] = max(self.late.get(at, 0.0), waited)
        if self.has_swept or self._computes:
            self._longest = max(self._longest, waited)

    def _ask(self, waited: float) -> None:
        """Ask the ranks that have no question to answer."""
        for at in set(range(1, self.size)) - self._asked.keys():
            self._post(None, at, _ASK)
            self._asked[at] = waited

    def _check_answers(self, waited: float) -> None:
        """Take the answers so far, and raise if a rank hangs."""
        status = self.mpi.Status()
        while self.comm.Iprobe(self.mpi.ANY_SOURCE, _HERE):
            computes = self.comm.recv(source=self.mpi.ANY_SOURCE, tag=_HERE, status=status)
            self._asked.pop(status.source, None)
            (self._busy.add if computes else self._busy.discard)(status.source)
        silent = max(_SILENT_S, _SILENT_TIMES * self._longest) if self.has_swept else _BUILD_S
        self._silent = [at for at, since in self._asked.items() if waited - since > silent]
        for at in self._silent:
            since = waited - self._asked[at]
            raise LostRankError(f"{self.names[at]} has not answered for {since:.0f} s{self._where(at)}")
        stuck = waited > max(_STUCK_S if self.has_swept else _FIRST_S, _STUCK_TIMES * self._longest)
        if stuck and (self._computes or self._busy):
            at = min(self._busy, default=0)
            raise LostRankError(f"{self.names[at]} has computed for {waited:.0f} s{self._where(at)}")

    def _post(self, message: object, to: int, tag: int) -> None:
        """Send a short message without waiting."""
        self._sent = [one for one in self._sent if not one.Test()]
        self._sent.append(self.comm.isend(message, to, tag))

    def _where(self, at: int) -> str:
        return f" (process {self.hosts[at][1]})"

    def _look(self) -> None:
        """Raise if a rank has failed or is no more."""
        if self.rank:
            if self.comm.Iprobe(0, _END):
                raise Released(self.comm.recv(source=0, tag=_END))
            if self._gone():
                raise LostRankError(f"{self.names[0]} has died{self._where(0)}")
            if self.comm.Iprobe(0, _ASK):
                self.comm.recv(source=0, tag=_ASK)
                self._post(self._computes or self.computes(), 0, _HERE)
            return
        if self.comm.Iprobe(self.mpi.ANY_SOURCE, _FAILED):
            status = self.mpi.Status()
            text = self.comm.recv(source=self.mpi.ANY_SOURCE, tag=_FAILED, status=status)
            raise LostRankError(f"{self.names[status.source]} failed: {text}")
        for at in self._gone():
            raise LostRankError(f"{self.names[at]} has died{self._where(at)}")

    def _gone(self) -> list[int]:
        def lives(process: psutil.Process) -> bool:
            try:
                return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                return False

        return [at for at, process in self._watched.items() if not lives(process)]

    def failed(self, text: str) -> int:
        """Tell rank 0 that this rank cannot go on, and wait until it has ended the run; returns the exit code."""
        self._post(text[:_ANSWER], 0, _FAILED)
        try:
            while True:
                self.until(lambda: False)
        except (Released, LostRankError) as error:
            return error.exit_code

    def outlasted(self, seconds: float) -> None:
        """Wait for the end of rank 0's process: some launchers kill all when one ends first.

        On another machine its end is not seen, and five minutes are waited.
        """
        end = time.monotonic() + (seconds if self._watched else _UNSEEN_S)
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

    def receive(self, array: npt.NDArray[Any], source: int = 0) -> None:
        """Fill a contiguous array with what the rank ``source`` sends."""
        data = array.reshape(-1).view(np.uint8)
        for first in range(0, data.size, _PART):
            self._all(self.comm.Irecv(data[first : first + _PART], source, _DATA))

    def _all(self, request: Any) -> None:
        self.until(request.Test)
