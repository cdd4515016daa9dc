"""Files of jobs as files beside a database that is a file itself.

A file's name is its SHA-256, in a folder for each job.  So the row of a job, which names the digests, decides in one
transaction which files it has:

* new files are written under temporary names, and renamed in the transaction that writes the row;
* what no row names is removed after it, in a transaction too, so that nobody renames meanwhile.

Whoever is killed in between leaves files that no row names, and never a row without its files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from mmsbgen.base.atomic_files import remove_unlocked
from mmsbgen.db.records.job_records import ENDED
from mmsbgen.db.store.connect import Database
from mmsbgen.db.store.schema import JOBS
from mmsbgen.db.store.store_errors import StoreError, damaged
from mmsbgen.jobs.job_files import Source, StagedFile, checked_name, chunks, read_parts, told_of

_NEW = ".new-"
_OF_JOB, _DIGEST = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")


class FolderFiles:
    """The files in the folder ``DATABASE.jobs``, which only its owner can read."""

    def __init__(self, database: Database, path: Path) -> None:
        self._database, self._path = database, path.resolve()  # as SQLite does with the files beside it
        self._folder = self._path.with_name(f"{self._path.name}.jobs")

    @contextlib.contextmanager
    def staged(self, sources: Mapping[str, Source]) -> Iterator[dict[str, StagedFile]]:
        """Copies under temporary names, locked, so that :meth:`tidy` leaves them alone."""
        with contextlib.ExitStack() as copies:
            yield {checked_name(name): copies.enter_context(self._copy(source)) for name, source in sources.items()}

    def put(self, connection: Connection, job: int, uuid: str, area: str, files: Mapping[str, StagedFile]) -> None:
        """Give the copies their names; may be called again where a transaction is tried again."""
        if not files:
            return
        folder = self._folder / uuid
        with self._explained():
            folder.mkdir(mode=0o700, exist_ok=True)
            for file in files.values():
                assert isinstance(file.source, Path)
                place = folder / file.told["sha256"]
                try:
                    os.replace(file.source, place)
                except FileNotFoundError:
                    if not place.exists():
                        raise
            for changed in (folder, self._folder):
                _sync(changed)

    def parts(self, job: int, uuid: str, area: str, name: str, told: Mapping[str, Any]) -> Iterator[bytes]:
        """The file's parts; it can be read to its end though it is removed meanwhile."""
        digest = str(told["sha256"])
        if not (_OF_JOB.fullmatch(uuid) and _DIGEST.fullmatch(digest)):
            raise damaged(str(self._path), f"the job {uuid:.40} has a file of digest {digest:.40}")
        with self._explained(), (self._folder / uuid / digest).open("rb") as file:
            yield from chunks(file)

    def stored(self) -> int:
        """Bytes of all files of all jobs."""
        size = 0
        with self._explained():
            for folder, _, names in os.walk(self._folder):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        size += os.stat(os.path.join(folder, name)).st_size
        return size

    def tidy(self, uuids: Iterable[str] | None = None) -> None:
        """Remove what no row names; without ``uuids`` also copies whose processes were killed."""
        with self._explained():
            if not self._folder.is_dir():
                return
            self._database.write(lambda connection: self._tidy(connection, uuids))

    def _tidy(self, connection: Connection, uuids: Iterable[str] | None) -> None:
        query = select(JOBS.c.uuid, JOBS.c.state, JOBS.c.inputs, JOBS.c.checkpoint, JOBS.c.outputs)
        if uuids is None:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.startswith(_NEW):
                        with contextlib.suppress(OSError):
                            remove_unlocked(entry)
            uuids = [path.name for path in self._folder.iterdir() if _OF_JOB.fullmatch(path.name)]
        else:
            uuids = list(uuids)
            query = query.where(JOBS.c.uuid.in_(uuids))
        named: dict[str, set[str]] = {}
        for uuid, state, inputs, checkpoint, outputs in connection.execute(query):
            areas = (outputs,) if state in ENDED else (inputs, checkpoint or {}, outputs)
            named[uuid] = {told["sha256"] for area in areas for told in area.values()}
        for uuid in uuids:
            folder, kept = self._folder / uuid, named.get(uuid, set())
            if not folder.is_dir():
                continue
            for path in folder.iterdir():
                if path.name not in kept and _DIGEST.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it has files
                folder.rmdir()

    @contextlib.contextmanager
    def _copy(self, source: Source) -> Iterator[StagedFile]:
        with self._explained():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_others()
            path = self._folder / f"{_NEW}{secrets.token_hex(8)}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with contextlib.suppress(OSError):  # not all file systems have locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self._explained(), open(descriptor, "wb", closefd=False) as file:
                told = told_of(read_parts(source), file.write)
                file.flush()
                os.fsync(descriptor)
            yield StagedFile(path, told)
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _refuse_others(self) -> None:
        """Raise ``StoreError`` for a folder, or a link to one, that another user has put there."""
        known = {0, os.geteuid(), self._path.stat().st_uid if self._path.exists() else 0}
        if {self._folder.lstat().st_uid, self._folder.stat().st_uid} - known:
            raise StoreError(f"the folder {self._folder} belongs to another user: remove it, or move the database")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the files of jobs in {self._folder} cannot be used: {error.strerror or error}; check its disk and "
                "its rights"
            ) from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
