"""Reads the uncompressed ``.npz`` archives that :class:`mmsbgen.base.atomic_files.ArchiveWriter` writes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

#: What reading a damaged archive raises.
DAMAGED = (zipfile.BadZipFile, zlib.error)
#: What reading the content of a foreign or forged archive raises.
FOREIGN = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)

_ENCRYPTED = 1


@contextmanager
def stored_arrays(file: IO[bytes]) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
    """Open the arrays of an archive; they take no more memory than the file has bytes.

    Raises BadZipFile for a file that is no whole archive, and ValueError for one with compressed or encrypted arrays.
    """
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile("it is no whole archive")
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
                raise ValueError(f"its {member.filename} is compressed or encrypted")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        yield arrays
