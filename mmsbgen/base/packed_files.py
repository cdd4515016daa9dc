"""Whole files, read and written at once, packed or not."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from mmsbgen.base.errors import InputError


def write(text: str, path: Path) -> None:
    """Write a file at once, so that no half of one is ever seen; gzip when the name ends in ``.gz``.

    Raises ``InputError`` when it cannot be written.
    """
    data = text.encode("utf-8")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    temporary = None
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_bytes(data)
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(data)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> bytes:
    """What a file holds, unpacked.  Raises ``InputError`` for one that cannot be read or unpacked."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is a damaged gzip file: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
