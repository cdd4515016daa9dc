"""Files of jobs as parts in a table of a server: its workers need no other storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from mmsbgen.db.store.connect import Database
from mmsbgen.db.store.schema import JOB_FILES
from mmsbgen.jobs.job_files import Source, StagedFile, checked_name, read_parts, told_of


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
