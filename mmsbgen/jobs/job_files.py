"""Files of jobs: what they are made of, and how they are read.

:mod:`mmsbgen.jobs.folder_files` keeps them beside a database that is a file, :mod:`mmsbgen.jobs.table_files` in the
database of a server, whose workers may share no folder.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mmsbgen.base.atomic_files import published
from mmsbgen.base.errors import InputError
from mmsbgen.db.store.store_errors import StoreError

PART_BYTES = 1 << 20
Source = Path | bytes | BinaryIO
"""What a file is made of: another file, its bytes, or an open file that can be read again from its start."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of files."""


@dataclass(frozen=True)
class StagedFile:
    """A file that is ready to be stored: its source, or a temporary copy, with its size and digest."""

    source: Source
    told: dict[str, Any]


def checked_name(name: str) -> str:
    """``name``; raises ``InputError`` if it cannot be the name of a job's file."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot be the name of a job's file: use letters, digits, dots and dashes")
    return name


def told_of(parts: Iterable[bytes], write: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """Size and SHA-256 of a file, each part of which is given to ``write``."""
    digest, size = hashlib.sha256(), 0
    for part in parts:
        digest.update(part)
        size += len(part)
        if write is not None:
            write(part)
    return {"bytes": size, "sha256": digest.hexdigest()}


def save(parts: Iterable[bytes], digest: str, path: Path, each: Callable[[], None] | None = None) -> None:
    """Write a file to ``path`` atomically; ``each`` is called after every part.

    Raises ``StoreError`` if its digest differs from the stored one.
    """
    check = hashlib.sha256()
    with published(path, make_folder=False) as partial, partial.open("wb") as file:
        for part in parts:
            check.update(part)
            file.write(part)
            if each is not None:
                each()
        if check.hexdigest() != digest:
            raise StoreError(f"the stored file {path.name} of a job is damaged: its digest is not that of its row")


def read_parts(source: Source) -> Iterator[bytes]:
    """The parts of a source.  Raises ``InputError`` if it cannot be read."""
    try:
        if isinstance(source, Path):
            with source.open("rb") as opened:
                yield from chunks(opened)
        else:
            yield from chunks(io.BytesIO(source) if isinstance(source, bytes) else source)
    except OSError as error:
        name = source if isinstance(source, Path) else "what was given"
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from error


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """The parts of an open file, from its start."""
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part
