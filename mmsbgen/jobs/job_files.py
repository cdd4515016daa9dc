"""Files of jobs: what they are made of, how they are read, and how the database of a server keeps them.

Workers of a server may share no folder.  :mod:`mmsbgen.jobs.folder_files` keeps files beside a database that is a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, delete, func, insert, select

from mmsbgen.base.atomic_files import published
from mmsbgen.base.errors import InputError
from mmsbgen.db.store.connect import Database
from mmsbgen.db.store.schema import JOB_FILES
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


class TableFiles:
    """The files in the table ``job_files``; rows of jobs that have ended are deleted with their transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def staged(self, sources: Mapping[str, Source]) -> Iterator[dict[str, StagedFile]]:
        """The sources themselves."""
        yield {checked_name(name): StagedFile(source, told_of(read_parts(source))) for name, source in sources.items()}

    def put(self, connection: Connection, job: int, uuid: str, area: str, files: Mapping[str, StagedFile]) -> None:
        """Insert the parts."""
        connection.execute(delete(JOB_FILES).where(JOB_FILES.c.job_id == job, JOB_FILES.c.area == area))
        for name, file in files.items():
            for number, part in enumerate(read_parts(file.source)):
                row = {"job_id": job, "area": area, "name": name, "part": number, "data": part}
                connection.execute(insert(JOB_FILES), [row])

    def parts(self, job: int, uuid: str, area: str, name: str, told: Mapping[str, Any]) -> Iterator[bytes]:
        """The parts, each read by itself, so that no transaction lasts as long as a transfer."""
        number = 0
        while (data := self._database.read(partial(_part, job, area, name, number))) is not None:
            yield data
            number += 1

    def stored(self) -> int:
        """Bytes of all files of all jobs."""
        query = select(func.sum(func.length(JOB_FILES.c.data)))
        return self._database.read(lambda connection: int(connection.execute(query).scalar() or 0))

    def tidy(self, uuids: Iterable[str] | None = None) -> None:
        """Nothing is left over."""


def _part(job: int, area: str, name: str, part: int, connection: Connection) -> bytes | None:
    """A part of a file; None after the last one."""
    query = select(JOB_FILES.c.data).where(
        JOB_FILES.c.job_id == job, JOB_FILES.c.area == area, JOB_FILES.c.name == name, JOB_FILES.c.part == part
    )
    found = connection.execute(query).scalar()
    return None if found is None else bytes(found)
