"""A program in a session of its own, ended with all that it started when its time is over."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, Any


def run_for(seconds: float, command: Sequence[str], errors: int | IO[Any]) -> tuple[str, int | None]:
    """What a command printed, and its exit status: None where it was cut off after ``seconds``.

    ``errors`` is where its standard error goes.  Raises :class:`OSError` for a command that cannot be started.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], None
    return said, process.returncode
