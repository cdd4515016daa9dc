"""The caches of the OpenCL libraries: PoCL's also where the user's cache folder cannot be written, PyOpenCL's nowhere.

PyOpenCL caches the Python code of its launches in that folder, and raises if it cannot write there.  PoCL caches
kernels there, and has no device if it cannot.  Call :func:`prepare` before either is loaded.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

POCL_VARIABLE = "POCL_CACHE_DIR"
PYOPENCL_VARIABLE = "PYOPENCL_NO_CACHE"
_PROBE_BYTES = 1 << 16
"""A disk without this much space counts as full."""
log = logging.getLogger(__name__)


def prepare() -> list[str]:
    """Make PyOpenCL and PoCL work without a writable cache folder, and log a warning if kernels are not kept.

    PoCL then uses a temporary folder, which is deleted when this process ends; child processes share it.  Variables
    that the user has set are not changed.

    Returns:
        Hints if PoCL has no usable folder at all.  Never raises.
    """
    names = ("HOME", "XDG_CACHE_HOME", POCL_VARIABLE, PYOPENCL_VARIABLE)
    return list(_prepared(tuple(os.environ.get(name) for name in names)))


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

    # PyOpenCL makes the Python code of a launch as fast as it reads it.
    os.environ.setdefault(PYOPENCL_VARIABLE, "true")
    loaded = sys.modules.get("pyopencl")
    if loaded is not None and why_unwritable(platformdirs.user_cache_path("pytools")) is not None:
        loaded._PYOPENCL_NO_CACHE = True  # type: ignore[attr-defined]  # it has read the variable already
    if (chosen := os.environ.get(POCL_VARIABLE)) is not None:
        reason = why_unwritable(Path(chosen))
        told = f"OpenCL: PoCL has no device, as {POCL_VARIABLE}={chosen} cannot be written: {reason}"
        return () if reason is None else (told,)
    cache = platformdirs.user_cache_path()
    pocls = cache / "pocl" / "kcache"
    if (reason := why_unwritable(pocls)) is None:
        return ()
    lost = pocls if why_unwritable(cache) is None else cache
    log.warning(
        "cannot write the cache folder %s (%s): kernels are compiled again by every run. Mend the permissions of %s, "
        "free some space there, or name another folder in XDG_CACHE_HOME",
        *(lost, reason, cache),
    )
    try:
        os.environ[POCL_VARIABLE] = folder = tempfile.mkdtemp(prefix="mmsbgen-pocl-")
    except OSError as error:
        return (f"OpenCL: PoCL has no device, as neither {pocls} nor a temporary folder can be written: {error}",)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return ()
