"""A child process that does one task, seen from its worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from typing import IO, Any

from mmsbgen.backends.opencl.compiler_caches import prepare
from mmsbgen.base.errors import InputError
from mmsbgen.worker.task import Outcome, Task

__all__ = ["Child", "ask_device"]

_WORDS = 2000
_ASKS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """One child in a session of its own, so that Ctrl-C does not reach it.  It is killed when this process ends."""

    def __init__(self, task: Task) -> None:
        # Here and not in the child, which may be killed: a temporary folder must not stay behind.
        prepare()
        self._connection, theirs = Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mmsbgen.worker.job_process", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        # A child that died at once is found when it is listened to.
        with contextlib.suppress(OSError):
            self._connection.send(task)

    def hear(self, timeout_s: float) -> tuple[Any, ...] | None:
        """What it tells, None where that is nothing for so long, ``("died", how)`` when it is gone."""
        try:
            if not self._connection.poll(timeout_s):
                return None
            told: tuple[Any, ...] = self._connection.recv()
            return told
        except (EOFError, OSError):
            return ("died", self._ending())

    def killed(self) -> str | None:
        """How it died where it was killed by a signal that does not ask, as where memory ran out; None otherwise."""
        code = self._process.poll()
        return self._ending() if code is not None and code < 0 and -code not in _ASKS else None

    def interrupt(self) -> None:
        """Ask it to stop in an orderly way."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End it, at once, and what it started; those in sessions of their own end with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._said.close()

    def last_words(self) -> str:
        """The end of what it printed."""
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - _WORDS))
        return self._said.read().decode(errors="replace").strip()

    def _ending(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "the process that did it closed its connection"
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return f"the process that did it died: {how}"


def ask_device(device: str | None) -> dict[str, Any]:
    """Open a device in a child and tell its ``record``, its ``hardware`` and the ``spec`` that names it exactly.

    Raises :class:`InputError` where it cannot be opened.
    """
    child = Child(Task("device", device=device))
    try:
        while True:
            match child.hear(1.0):
                case ("done", Outcome() as outcome):
                    return outcome.result
                case ("error", text, _):
                    raise InputError(text)
                case ("died", how):
                    raise InputError(
                        f"the device {device or 'that is best'} cannot be opened: {how}\n{child.last_words()}"
                    )
    finally:
        child.close()
