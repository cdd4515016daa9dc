"""Locks that let one process at a time measure on a device."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from mmsbgen.base.errors import InputError

PATIENT_S = 2.0
"""Seconds after which waiting for a device is reported."""


def device_lock(hardware: str) -> FileLock:
    """The lock of a device of this machine, for this user's processes.

    ``hardware`` is :attr:`mmsbgen.backends.base.Device.hardware`.  The operating system releases the lock when its
    holder dies.  Its file is in the user's cache folder, which several machines may share.  Where that cannot be
    written, it is in the folder for temporary files, which several users may share.

    Raises :class:`InputError` if neither folder can be written.
    """
    name = file_name(f"{platform.node()} {hardware}")
    folder = platformdirs.user_cache_path("mmsbgen") / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _usable(folder / f"{name}.lock")
    except OSError:
        file = Path(tempfile.gettempdir()) / f"mmsbgen-{os.getuid()}-{name}.lock"
    try:
        return _usable(file)
    except OSError as error:
        raise InputError(
            f"neither {folder} nor {file} can be written ({error.strerror}), which keeps others from measuring on the "
            "same device: name a folder of your own in XDG_CACHE_HOME or TMPDIR"
        ) from None


@contextlib.contextmanager
def having_device(hardware: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the device's lock; ``waiting`` is called once if another process has held it for two seconds."""
    lock = device_lock(hardware)
    try:
        lock.acquire(timeout=PATIENT_S)
    except Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def file_name(hardware: str) -> str:
    """A device's name with only characters that are safe in file names."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", hardware)


def _usable(file: Path) -> FileLock:
    """The lock in a file that can be written; raises :class:`OSError` where it cannot."""
    with file.open("a"):
        return FileLock(file)
