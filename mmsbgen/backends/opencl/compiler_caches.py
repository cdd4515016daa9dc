"""Workarounds for an unwritable cache folder of the OpenCL libraries.

PyOpenCL caches the Python code of its launches in the user's cache folder, and raises if it cannot write there.  PoCL
caches kernels there, and has no device if it cannot.  Call :func:`prepare` before either is loaded.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sqlite3
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

POCL_VARIABLE = "POCL_CACHE_DIR"
PYOPENCL_VARIABLE = "PYOPENCL_NO_CACHE"
_PROBE_BYTES = 1 << 16
"""More than the size of a new PyOpenCL database; a disk without this much space counts as full."""
log = logging.getLogger(__name__)


def prepare() -> list[str]:
    """Make PyOpenCL and PoCL work without a writable cache folder, and log one warning.

    PoCL then uses a temporary folder, which is deleted when this process ends; child processes share it.  Variables
    that the user has set are not changed.

    Returns:
        Hints if PoCL has no usable folder at all.  Never raises.
    """
    names = ("HOME", "XDG_CACHE_HOME", POCL_VARIABLE, PYOPENCL_VARIABLE)
    return list(_prepared(tuple(os.environ.get(name) for name in names)))


def kernel(pyopencl: Any, program: Any, name: str) -> Any:
    """A ``pyopencl.Kernel``; if PyOpenCL's cache fails, disables it with a warning and tries again."""
    try:
        return pyopencl.Kernel(program, name)
    except (OSError, sqlite3.Error) as error:
        _no_pyopencl_cache(pyopencl)
        log.warning("PyOpenCL's cache failed and is no longer used: %s. %s", error, _remedy())
        return pyopencl.Kernel(program, name)


def why_unwritable(folder: Path) -> str | None:
    """The reason why no file can be written in a folder, which need not exist yet; None if one can."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.strerror or str(error)
    return None


@lru_cache
def _prepared(variables: tuple[str | None, ...]) -> tuple[str, ...]:
    import platformdirs

    cache = platformdirs.user_cache_path()
    pyopencls, pocls = platformdirs.user_cache_path("pytools"), cache / "pocl" / "kcache"
    hints: list[str] = []
    lost: dict[Path, str] = {}
    if PYOPENCL_VARIABLE not in os.environ and (reason := why_unwritable(pyopencls)) is not None:
        _no_pyopencl_cache(sys.modules.get("pyopencl"))
        lost[pyopencls] = reason
    if (chosen := os.environ.get(POCL_VARIABLE)) is not None:
        if (reason := why_unwritable(Path(chosen))) is not None:
            hints.append(f"OpenCL: PoCL has no device, as {POCL_VARIABLE}={chosen} cannot be written: {reason}")
    elif (reason := why_unwritable(pocls)) is not None:
        lost[pocls] = reason
        try:
            os.environ[POCL_VARIABLE] = folder = tempfile.mkdtemp(prefix="mmsbgen-pocl-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        except OSError as error:
            hints.append(
                f"OpenCL: PoCL has no device, as neither {pocls} nor a temporary folder can be written: {error}"
            )
    if lost:
        if (reason := why_unwritable(cache)) is not None:
            lost = {cache: reason}
        told = " and ".join(f"{folder} ({reason})" for folder, reason in lost.items())
        log.warning("cannot write the cache folder %s: kernels are compiled again by every run. %s", told, _remedy())
    return tuple(hints)


def _no_pyopencl_cache(pyopencl: Any) -> None:
    os.environ[PYOPENCL_VARIABLE] = "true"
    if pyopencl is not None:
        # PyOpenCL reads the variable only when it is imported.
        pyopencl._PYOPENCL_NO_CACHE = True


def _remedy() -> str:
    import platformdirs

    return (
        f"Mend the permissions of {platformdirs.user_cache_path()}, free some space there, or name another folder in "
        "XDG_CACHE_HOME"
    )
