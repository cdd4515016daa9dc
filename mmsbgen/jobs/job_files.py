"""Files of jobs, stored as parts in a table. A worker needs no other storage."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, delete, func, insert, select

from mmsbgen.base.atomic_files import published
from mmsbgen.base.errors import InputError
from mmsbgen.db.store.schema import JobFileRow
from mmsbgen.db.store.store_errors import StoreError

PART_BYTES = 1 << 20
Source = Path | bytes | BinaryIO
"""What a file is made of: another file, its bytes, or an open file that can be read again from its start."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def described(sources: Mapping[str, Source]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file, by name.  Raises ``InputError`` for an odd name or a file that cannot be read."""
    found = {}
    for name, source in sources.items():
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a job's file: use letters, digits, dots and dashes")
        digest, size = hashlib.sha256(), 0
        for part in _parts(source):
            digest.update(part)
            size += len(part)
        found[name] = {"bytes": size, "sha256": digest.hexdigest()}
    return found


def put(connection: Connection, job: int, area: str, sources: Mapping[str, Source]) -> None:
    """Replace the files of one area."""
    connection.execute(delete(JobFileRow).where(JobFileRow.job_id == job, JobFileRow.area == area))
    for name, source in sources.items():
        for number, part in enumerate(_parts(source)):
            row = {"job_id": job, "area": area, "name": name, "part": number, "data": part}
            connection.execute(insert(JobFileRow), [row])


def stored(connection: Connection) -> int:
    """Bytes of all files of all jobs."""
    return int(connection.execute(select(func.sum(func.length(JobFileRow.data)))).scalar() or 0)


def read_part(job: int, area: str, name: str, part: int, connection: Connection) -> bytes | None:
    """A part of a file; None after the last one."""
    query = select(JobFileRow.data).where(
        JobFileRow.job_id == job, JobFileRow.area == area, JobFileRow.name == name, JobFileRow.part == part
    )
    found = connection.execute(query).scalar()
    return None if found is None else bytes(found)


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
            raise StoreError(
                f"the file {path.name} of a job is damaged in the database: its digest is not the stored one"
            )


def _parts(source: Source) -> Iterator[bytes]:
    try:
        if isinstance(source, Path):
            with source.open("rb") as opened:
                yield from _chunks(opened)
        else:
            yield from _chunks(io.BytesIO(source) if isinstance(source, bytes) else source)
    except OSError as error:
        name = source if isinstance(source, Path) else "what was given"
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from error


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part
