"""A child process that does one task, seen from its worker."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from mmsbgen.backends.opencl.compiler_caches import prepare
from mmsbgen.base.errors import InputError
from mmsbgen.base.processes import ChildProcess
from mmsbgen.worker.task import JobOutcome, Task

__all__ = ["Child", "ask_device"]

_WHO = "the process that did it"
_ASKS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child(ChildProcess):
    """A child that does ``task``."""

    def __init__(self, task: Task) -> None:
        # Here and not in the child, which may be killed: a temporary folder must not stay behind.
        prepare()
        super().__init__("mmsbgen.worker.job_process")
        # A child that died at once is found when it is listened to.
        with contextlib.suppress(OSError):
            self.connection.send(task)

    def hear(self, timeout_s: float) -> tuple[Any, ...] | None:
        """What it tells, None where that is nothing for so long, ``("died", how)`` when it is gone."""
        try:
            if not self.connection.poll(timeout_s):
                return None
            told: tuple[Any, ...] = self.connection.recv()
            return told
        except (EOFError, OSError):
            return ("died", self.ending(_WHO))

    def killed(self) -> str | None:
        """How it died where it was killed by a signal that does not ask, as where memory ran out; None otherwise."""
        code = self.exit_code()
        return self.ending(_WHO) if code is not None and code < 0 and -code not in _ASKS else None


def ask_device(device: str | None) -> dict[str, Any]:
    """Open a device in a child and tell its ``record``, its ``hardware`` and the ``spec`` that names it exactly.

    Raises :class:`InputError` where it cannot be opened.
    """
    child = Child(Task("device", device=device))
    try:
        while True:
            match child.hear(1.0):
                case ("done", JobOutcome() as outcome):
                    return outcome.result
                case ("error", text, _):
                    raise InputError(text)
                case ("died", how):
                    raise InputError(
                        f"the device {device or 'that is best'} cannot be opened: {how}\n{child.printed()}"
                    )
    finally:
        child.close()
