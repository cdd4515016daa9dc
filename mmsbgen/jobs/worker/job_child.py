"""The child process of one task, seen from its worker."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from mmsbgen.backends.opencl.compiler_caches import prepare
from mmsbgen.base.errors import InputError
from mmsbgen.base.processes import ChildProcess
from mmsbgen.jobs.worker.task import JobOutcome, Task

_WHO = "the process that did it"
_ASKS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child(ChildProcess):
    """The child process that does ``task``."""

    def __init__(self, task: Task) -> None:
        # Prepared here, as a child that is killed would leave its temporary folder behind.
        prepare()
        super().__init__("mmsbgen.jobs.worker.job_process")
        # If the child has died already, :meth:`hear` reports it.
        with contextlib.suppress(OSError):
            self.connection.send(task)

    def hear(self, timeout_s: float) -> tuple[Any, ...] | None:
        """The child's next message; None after ``timeout_s`` without one, ``("died", how)`` if it has ended."""
        try:
            if not self.connection.poll(timeout_s):
                return None
            told: tuple[Any, ...] = self.connection.recv()
            return told
        except (EOFError, OSError):
            return ("died", self.ending(_WHO))

    def killed(self) -> str | None:
        """How the child died if a signal that is no request to stop killed it, as when memory ran out; else None."""
        code = self.exit_code()
        return self.ending(_WHO) if code is not None and code < 0 and -code not in _ASKS else None


def ask_device(device: str | None) -> dict[str, Any]:
    """Open a device in a child process and return its ``record``, ``hardware`` and exact ``spec``.

    Raises :class:`InputError` if it cannot be opened.
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
