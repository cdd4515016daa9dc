"""A finished chain in a temporary checkpoint file, from which rows of pi are read without a device."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import weakref
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from mmsbgen.base.atomic_files import array_header
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.sparse_rows import expanded
from mmsbgen.families.mmsb.numbers.storage import storage_named
from mmsbgen.families.mmsb.sparse.sparse_sizes import floor_of
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.diagnostics.explained_links import Ints, RowSource
from mmsbgen.sampler.diagnostics.memberships import Memberships, by_column, largest_of_parts
from mmsbgen.sampler.saved import checkpoint as checkpoints

_LOCAL_HEADER = 30
#: Elements of rows of pi processed at a time.
_ELEMENTS = 1 << 22


class SavedChain:
    """A checkpoint in a temporary file, which is deleted with the object.

    Deep copies and pickles contain the whole file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoint.npz"
        self._finalizer = weakref.finalize(self, _remove, folder, os.getpid())

    @classmethod
    def new(cls) -> SavedChain:
        """A new temporary folder for a chain that is not written yet."""
        try:
            return cls(Path(tempfile.mkdtemp(prefix="mmsbgen-")))
        except OSError as error:
            raise InputError(
                f"there is no place for the chain ({error}): name a folder for temporary files by TMPDIR, or do "
                "without by keep_chain=False"
            ) from error

    @classmethod
    def of_file(cls, file: IO[bytes]) -> SavedChain:
        """A copy of the rest of ``file``, from its current position."""
        made = cls.new()
        with open(made.path, "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        return made

    def __reduce__(self) -> tuple[Callable[..., SavedChain], tuple[bytes]]:
        return _of_bytes, (self.path.read_bytes(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> SavedChain:
        with open(self.path, "rb") as file:
            return SavedChain.of_file(file)

    @property
    def written(self) -> bool:
        """Whether the file exists."""
        return self.path.exists()

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    def rows(self, averaged: int, columns: Ints) -> RowSource:
        """A reader of the ``columns`` of pi, or of its mean over ``averaged`` samples, bitwise equal to the run's.

        If the run ended off its interval of evaluations, the file's mean lacks the last sample, which is the last
        state.
        """
        there = checkpoints.load(self.path)
        options, kept = there.options, there.meta["averaged"]
        real, stored = np.dtype(options.dtype), storage_named(options.storage, options.dtype)
        if options.sparse:
            k, floor = options.n_communities, floor_of(options.n_communities, real)
            communities, values = (mapped(self.path, name) for name in checkpoints.ENTRIES)

            def expanded_rows(vertices: Ints) -> Array:
                found = expanded(communities[vertices], values[vertices], k, floor)
                return by_column(found.astype(real), columns)

            return expanded_rows
        pi = mapped(self.path, "pi")
        mean = mapped(self.path, "mean") if averaged else None

        def rows(vertices: Ints) -> Array:
            if mean is None:
                return by_column(stored.values(np.asarray(pi[vertices])), columns)
            total: Array = np.asarray(mean[vertices])
            if averaged > kept:
                total = total + stored.values(np.asarray(pi[vertices]))
            found: Array = total / real.type(averaged)
            return by_column(found, columns)

        return rows


def with_largest(m: Memberships, rows: RowSource, r: int) -> Memberships:
    """``m`` with the ``r`` largest entries of each of ``rows``, without ``posterior``."""
    n, step = len(m.indices), max(1, _ELEMENTS // m.width)
    parts = (rows(np.arange(first, min(first + step, n))) for first in range(0, n, step))
    indices, values, rest, spread = largest_of_parts(parts, r, (n, m.width), m.values.dtype)
    return replace(m, indices=indices, values=values, rest=rest, spread=spread, posterior=None)


def _remove(folder: Path, process: int) -> None:
    # A forked process has a copy of the object, but must not delete its parent's file.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _of_bytes(content: bytes) -> SavedChain:
    made = SavedChain.new()
    made.path.write_bytes(content)
    return made


def mapped(path: Path, name: str) -> Array:
    """The array ``name`` of an uncompressed archive, mapped into memory, read-only."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        with archive.open(member) as file:
            shape, fortran, dtype = array_header(file)
            header = file.tell()
    if member.compress_type != zipfile.ZIP_STORED or fortran or dtype.hasobject:
        raise ValueError(f"{name} of {path} is compressed or no plain array")
    with open(path, "rb") as raw:
        raw.seek(member.header_offset)
        lengths = struct.unpack("<HH", raw.read(_LOCAL_HEADER)[26:])
    offset = member.header_offset + _LOCAL_HEADER + sum(lengths) + header
    return np.memmap(path, dtype, "r", offset, shape)
