"""Child processes that end with their parent, process groups, and threads."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, TypeVar

from mmsbgen.base.stop_signals import deferring

Part = TypeVar("Part")
Result = TypeVar("Result")

_ENDING_S = 10.0
#: Items of arrays that a thread takes at a time.
_ITEMS = 1 << 19
#: Leads a process group and runs a command in it; ends the group when its parent thread ends.  The first argument is
#: the parent's process id.  This is a program because functions that run between fork and exec may deadlock.
_GUARD = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    sys.exit(subprocess.call(sys.argv[2:]))
"""
#: Becomes a command that gets SIGTERM when its parent thread ends.
_STOPPED = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    """A thread a core, shared by all that works side by side: starting them takes longer than small parts do."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="parts")


# A child that is forked has none of the threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def side_by_side(function: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """The results of ``function`` for ``parts``, in their order; NumPy computes on them in threads, one a core.

    At most two parts a core and one more are computed ahead of the caller, which bounds the memory of the results, and
    of parts that are made one by one.  ``function`` must not call this itself: it would wait for threads that wait for
    it.
    """
    number, parts = cores(), iter(parts)
    begin = list(islice(parts, 2))
    together = min(number, len(begin)) > 1
    parts = chain((begin.pop(0) for _ in range(len(begin))), parts)  # parts that are done are given back
    if not together:
        yield from map(function, parts)
        return
    ahead: deque[Future[Result]] = deque()
    try:
        for part in parts:
            ahead.append(_pool().submit(function, part))
            if len(ahead) > 2 * number:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for waiting in ahead:
            waiting.cancel()


def run_side_by_side(function: Callable[[Part], object], parts: Iterable[Part]) -> None:
    """Call ``function``, which writes its results itself, for ``parts``, as :func:`side_by_side`."""
    for _ in side_by_side(function, parts):
        pass


def in_parts(of: Callable[[slice], tuple[Any, ...]], size: int) -> tuple[Any, ...]:
    """NumPy arrays of ``size`` items, which ``of`` gives for consecutive slices of them; made in threads."""
    import numpy as np

    whole = tuple(np.empty((size, *one.shape[1:]), one.dtype) for one in of(slice(0, min(size, 1))))

    def put(first: int) -> None:
        part = slice(first, min(first + _ITEMS, size))
        for array, given in zip(whole, of(part), strict=True):
            array[part] = given

    run_side_by_side(put, range(0, size, _ITEMS))
    return whole


def chosen_in_parts(of: Callable[[slice], tuple[Any, ...]], size: int) -> tuple[Any, ...]:
    """As :func:`in_parts`, where ``of`` gives arrays of any one length for each slice: of few of its items."""
    step = 8 * _ITEMS
    return joined(of, [slice(first, min(first + step, size)) for first in range(0, max(size, 1), step)])


def joined(of: Callable[[Part], tuple[Any, ...]], parts: Iterable[Part]) -> tuple[Any, ...]:
    """NumPy arrays one after another, which ``of`` gives for each of ``parts``, of one length each; in threads."""
    import numpy as np

    found = list(side_by_side(of, parts))
    ends = np.cumsum([0, *(len(arrays[0]) for arrays in found)])
    whole = tuple(np.empty((int(ends[-1]), *one.shape[1:]), one.dtype) for one in found[0])

    def put(number: int) -> None:
        for array, part in zip(whole, found[number], strict=True):
            array[ends[number] : ends[number + 1]] = part
        found[number] = ()

    run_side_by_side(put, range(len(found)))
    return whole


def python_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module; ``-P`` keeps the current folder off the module path."""
    return [sys.executable or "python", "-P", "-m", module, *map(str, arguments)]


def python_environment() -> dict[str, str]:
    """Environment variables that give a child the module path of this process.

    The standard library comes first, so that files in the current folder, which is on the path of an interactive
    Python, cannot shadow its modules.  The child's own Python processes leave the current folder out too.
    """
    standard = sysconfig.get_path("stdlib")
    paths = [standard, os.path.join(standard, "lib-dynload"), *(path or os.getcwd() for path in sys.path)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"}


def guarded_command(command: list[str]) -> list[str]:
    """A command that ends with the thread that starts it (Linux); start it with ``process_group=0``."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]


def stopped_command(command: list[str]) -> list[str]:
    """A command that gets SIGTERM when the thread that starts it ends (Linux); it begins with the path of a program."""
    return [sys.executable, "-I", "-S", "-c", _STOPPED, str(os.getpid()), *command]


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process group by its leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class ChildProcess:
    """A Python module in a child process with its own session, so that Ctrl-C does not reach it.

    The command is ``python -P -m module FD PARENT arguments``.  The module must call :func:`parent_connection`, which
    also makes it end with this process.  Linux kills it before other processes if memory runs out.  Its output goes to
    a temporary file.

    Args:
        module: The name of the module.
        arguments: Further arguments of the command line.
        stdin: Its standard input.
        address_space: Limit of its address space in bytes; 0 for no limit.

    Raises:
        OSError: The process or the temporary file cannot be created.
    """

    def __init__(
        self, module: str, *arguments: object, stdin: int | IO[bytes] = subprocess.DEVNULL, address_space: int = 0
    ) -> None:
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.connection, theirs = Pipe()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    python_command(module, theirs.fileno(), os.getpid(), *arguments),
                    pass_fds=[theirs.fileno()],
                    stdin=stdin,
                    stdout=self._printed,
                    stderr=self._printed,
                    start_new_session=True,
                    env=os.environ | python_environment(),
                )
        except BaseException:
            self._close()
            raise
        self.pid = self._process.pid
        try:
            if sys.platform == "linux":
                _limit(self.pid, address_space)
        except BaseException:
            self.close()
            raise

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal, or None while the process runs."""
        return self._process.poll()

    def interrupt(self) -> None:
        """Send it SIGINT."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def set_running(self, running: bool) -> None:
        """Continue its process group, or stop it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGCONT if running else signal.SIGSTOP)

    def kill(self) -> None:
        """Kill its process group and wait for its end; its output remains readable."""
        kill_group(self._process)
        self._process.wait()

    def close(self) -> None:
        """Kill its process group; close the connection and delete its output."""
        with deferring():
            self.kill()
            self._close()

    def printed(self, most: int = 2000) -> str:
        """The last ``most`` bytes of its output, as text."""
        self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, self._printed.tell() - most))
        return self._printed.read().decode(errors="replace").strip()

    def ending(self, name: str = "the process") -> str:
        """How the process ended, for messages after its connection closed: "the process died: SIGKILL"."""
        try:
            code = self._process.wait(timeout=_ENDING_S)
        except subprocess.TimeoutExpired:
            return f"{name} closed its connection"
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return f"{name} died: {how}"

    def _close(self) -> None:
        self.connection.close()
        self._printed.close()


def parent_connection() -> Connection:
    """In a :class:`ChildProcess`: returns the connection to the parent, and makes this process end with it.

    Removes the two arguments that the parent put before the others from ``sys.argv``.
    """
    descriptor, parent = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    end_with_parent(parent)
    return Connection(descriptor)


def end_with_parent(parent: int) -> None:
    """Make Linux kill this process when its parent process ends; ``parent`` is the parent's id."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _limit(pid: int, address_space: int) -> None:
    """Make a child the first that Linux kills when memory runs out, and limit its address space."""
    import resource

    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    if address_space:
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
            limit = address_space if hard == resource.RLIM_INFINITY else min(address_space, hard)
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
