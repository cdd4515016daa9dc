"""Starts the ranks of a run on this machine, one for each device, with MPI's own launcher."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mmsbgen.base.errors import MissingDependencyError
from mmsbgen.base.stop_signals import handling

__all__ = ["start_ranks", "started_together"]

#: Variables in which Open MPI and MPICH give the number of ranks.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def started_together() -> bool:
    """Whether MPI has started this process as one of several."""
    return any(os.environ.get(name, "").isdecimal() and int(os.environ[name]) > 1 for name in _SIZES)


def start_ranks(count: int, arguments: Sequence[str]) -> int:
    """Run ``mmsbgen`` with ``arguments`` in ``count`` ranks; returns the exit code.

    Ctrl-C reaches rank 0, which ends the run after a whole sweep.

    Raises :class:`MissingDependencyError` without MPI.
    """
    launcher = _launcher()
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    # Open MPI would kill rank 0 before it has written its checkpoint, when another rank dies.
    survive = ["--rtos", "recoverable"] if "Open MPI" in version and ") 4." not in version else []
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [launcher, *survive, "-n", str(count), sys.executable, "-m", "mmsbgen", *arguments]
    if "Open MPI" in version:
        # Ranks with GPUs wait on few cores; each opens its own device, which uses all of them.
        command[1:1] = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    process = subprocess.Popen(command, env=os.environ | more, start_new_session=True)
    with handling(lambda number, frame: process.send_signal(signal.SIGUSR1)):
        return process.wait()


def _launcher() -> str:
    """MPI's launcher: of this Python's environment, else of the system."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise MissingDependencyError("several devices need MPI's mpiexec; get it with: pip install 'mmsbgen[mpi]'")
    return found
