"""Starts the ranks of a run on this machine, one for each device, with MPI's own launcher."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mmsbgen.base.errors import LaunchError, MissingDependencyError
from mmsbgen.base.processes import stopped_command
from mmsbgen.base.stop_signals import handling

#: Variables in which Open MPI and MPICH give the number of ranks.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
#: Variable with the path of the file into which rank 0 writes its process id once it can be asked to stop.
_READY = "MMSBGEN_READY_FILE"


def started_together() -> bool:
    """Whether MPI has started this process as one of several."""
    return bool(set_by_mpi())


def set_by_mpi() -> str:
    """The variable by which MPI says that this process is one of several, or ""."""
    several = (name for name in _SIZES if os.environ.get(name, "").isdecimal() and int(os.environ[name]) > 1)
    return next(several, "")


def tell_ready() -> None:
    """Tell the process that started the ranks that this one, rank 0, can be asked to stop."""
    if _READY in os.environ:
        Path(os.environ[_READY]).write_text(str(os.getpid()))


def start_ranks(count: int, arguments: Sequence[str]) -> int:
    """Run ``mmsbgen`` with ``arguments`` in ``count`` ranks; returns the exit code.

    A signal to stop goes to rank 0, which ends the run after a whole sweep.  The ranks end with this process.

    Raises :class:`MissingDependencyError` without MPI, :class:`LaunchError` if a signal ended the launcher, and
    KeyboardInterrupt if this process was asked to stop before rank 0 was ready.
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
    started: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []
    early = False

    def stop(number: int, frame: object) -> None:
        nonlocal early
        asked.append(number)
        if started and not _pass_on(number, ready):
            early = True
            started[0].terminate()

    with tempfile.TemporaryDirectory() as folder, handling(stop):
        ready = Path(folder) / "ready"
        more[_READY] = str(ready)
        started.append(subprocess.Popen(stopped_command(command), env=os.environ | more, start_new_session=True))
        if asked and not early:
            # Asked before there was a launcher to end.
            early = True
            started[0].terminate()
        code = started[0].wait()
    if early:
        raise KeyboardInterrupt
    if code < 0:
        raise LaunchError(f"MPI's launcher {launcher} was ended by {signal.Signals(-code).name}, and the ranks with it")
    return code


def _pass_on(number: int, ready: Path) -> bool:
    """Send a signal to rank 0; returns whether it is there and ready."""
    try:
        os.kill(int(ready.read_text()), number)
    except (OSError, ValueError):
        return False
    return True


def _launcher() -> str:
    """MPI's launcher: of this Python's environment, else of the system."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise MissingDependencyError("several devices need MPI's mpiexec; get it with: pip install 'mmsbgen[mpi]'")
    return found
