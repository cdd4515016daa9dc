"""One measurement at a time on a device, whatever processes want it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["device_lock"]


def device_lock(hardware: str) -> FileLock:
    """The lock of a device by :attr:`mmsbgen.backends.base.Device.hardware`, for all processes of this user.

    The operating system gives it back when its holder dies.  It lies in the user's cache folder, or in the folder for
    temporary files where that cannot be written.
    """
    folder = platformdirs.user_cache_path("mmsbgen") / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{file_name(hardware)}.lock"
        file.touch()
    except OSError:
        file = Path(tempfile.gettempdir()) / f"mmsbgen-{file_name(hardware)}.lock"
    return FileLock(file)


def file_name(hardware: str) -> str:
    """A device's name as a file's."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", hardware)
