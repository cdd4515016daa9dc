"""Moves the files of jobs out of a database that is a file, into the folder beside it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

from mmsbgen.base.progress import stage
from mmsbgen.db.store.store_errors import StoreError, damaged

revision = "0005"
down_revision = "0004"

_PARTS = "FROM job_files WHERE job_id = :job AND area = :area AND name = :name"


def upgrade() -> None:
    """Write the files, and delete their parts.  On a server, and in a copy in memory, they stay in the table."""
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    database = connection.exec_driver_sql("PRAGMA database_list").first()
    if database is None or not database.file:
        return
    jobs = connection.execute(sa.text("SELECT id, uuid, inputs, checkpoint, outputs FROM jobs")).all()
    folder = Path(f"{database.file}.jobs")
    try:
        with stage("moving files of jobs"):
            for job in jobs:
                for area, told in (("input", job.inputs), ("checkpoint", job.checkpoint), ("output", job.outputs)):
                    for name, entry in json.loads(told or "{}").items():
                        _move(connection, folder, str(job.uuid), {"job": job.id, "area": area, "name": name}, entry)
    except OSError as error:
        raise StoreError(f"the files of jobs cannot be moved to {folder}: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(database.file, f"the files of a job cannot be read: {error!r:.200}") from error
    connection.exec_driver_sql("DELETE FROM job_files")


def _move(connection: sa.Connection, jobs: Path, uuid: str, which: dict[str, object], entry: dict[str, Any]) -> None:
    digest, folder = str(entry["sha256"]), jobs / uuid
    # They become names of files, and the database may be of others.
    if not (re.fullmatch("[0-9a-f]{32}", uuid) and re.fullmatch("[0-9a-f]{64}", digest)):
        raise damaged(jobs.stem, f"the job {uuid:.40} has a file of digest {digest:.40}")
    parts = connection.execute(sa.text(f"SELECT part {_PARTS} ORDER BY part"), which).scalars().all()
    if entry["bytes"] and not parts:  # an input of a job that has ended
        return
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, exist_ok=True)
    written = folder / f".new-{digest}"
    with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for part in parts:
            query = sa.text(f"SELECT data {_PARTS} AND part = :part")
            file.write(connection.execute(query, {**which, "part": part}).scalar_one())
        file.flush()
        os.fsync(file.fileno())
    written.replace(folder / digest)
