"""Reads users' files, plain or gzip, with errors that name the file and the remedy."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from mmsbgen.base.errors import InputError


def read_bytes(file: Path, in_directory: str) -> bytes:
    """The content of a file; raises InputError if it cannot be read.

    ``in_directory`` is the advice in the message for a directory.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path") from None
    except ValueError as error:
        raise InputError(f"{str(file)!r} can be no path ({error}); check it") from None
    except IsADirectoryError:
        raise InputError(f"{file} is a directory; {in_directory}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; check the path and its permissions") from error


def unpacked(file: Path, raw: bytes) -> bytes:
    """The content ``raw`` of ``file``, decompressed if it is gzip; raises InputError if that is damaged."""
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{file} is a damaged or cut-off gzip file ({error}); fetch it again") from error


def read_unpacked(file: Path, in_directory: str = "give a file in it") -> bytes:
    """The content of a file, decompressed if it is gzip; raises as :func:`read_bytes` and :func:`unpacked`."""
    return unpacked(file, read_bytes(file, in_directory))
