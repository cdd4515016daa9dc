"""Databases of every released schema are brought to the present one without loss."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import text

from mmsbgen.base.errors import InputError
from mmsbgen.cli.db.commands import db
from mmsbgen.db.records.tuning_records import QuarantineRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store import connect, migrate
from mmsbgen.db.store.connect import locate
from mmsbgen.db.store.schema import REVISIONS, VERSION_TABLE, Base
from mmsbgen.db.store.tuning_store import open_store

RELEASED = Path(__file__).with_name("released")
PAST = REVISIONS[:-1]
QUARANTINED = {"0001": 0, "0002": 1, "0003": 1, "0004": 1}
"""How many configurations are quarantined in the dump of each schema."""


@pytest.fixture(params=PAST)
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def restore(url: str, revision: str) -> None:
    """Make the database that a released version left."""
    if "://" not in url:
        with sqlite3.connect(url) as connection:
            connection.executescript((RELEASED / f"{revision}-sqlite.sql").read_text())
        connection.close()
        return
    import psycopg

    with psycopg.connect(url) as server:
        server.execute((RELEASED / f"{revision}-postgresql.sql").read_bytes())


def test_every_released_schema_has_a_dump_of_each_kind() -> None:
    names = {f"{revision}{end}" for revision in PAST for end in ("-sqlite.sql", "-postgresql.sql", ".jsonl")}
    assert {path.name for path in RELEASED.iterdir()} == names | {"README.md"}


def revision_of(url: str) -> str | None:
    database = connect.connect(locate(url), read_only=True)
    try:
        return migrate.revision(database)
    finally:
        database.close()


def test_opening_brings_it_to_the_present_and_loses_nothing(url: str, revision: str, make: Any, tmp_path: Path) -> None:
    restore(url, revision)
    with open_store(url) as store:
        assert store.database.read(lambda c: migrate._revision(c, "")) == REVISIONS[-1]
        store.export_jsonl(tmp_path / "now.jsonl")
    assert (tmp_path / "now.jsonl").read_text() == (RELEASED / f"{revision}.jsonl").read_text()
    with open_store(url) as store:
        options = {"version_table": VERSION_TABLE}
        schema = store.database.read(
            lambda c: list(compare_metadata(MigrationContext.configure(c, opts=options), Base.metadata))
        )
        assert schema == []
        assert store.add_trial(make.trial(config={"new": 1})), "ids go on where they were"
        assert len(store.trials()) == 5


def test_reading_loses_nothing_and_changes_nothing(url: str, revision: str, make: Any, tmp_path: Path) -> None:
    restore(url, revision)
    before = None if "://" in url else Path(url).read_bytes()
    with open_store(url, read_only=True) as store:
        store.export_jsonl(tmp_path / "now.jsonl")
        ok = store.trials(status="ok")
        assert Index(store, shipped=None).groups(ok[0].key)
        assert store.best(ok[0].key) is not None
        before_it = store.quarantined()
        assert len(before_it) == QUARANTINED[revision]
        failure = QuarantineRecord(
            key=ok[0].key, config=ok[0].config, recorded=ok[0].config, status="launch_error", message="refused"
        )
        with pytest.raises(InputError, match=rf"older schema {revision}: what writes, such as mmsbgen tune, upgrades"):
            store.quarantine(failure)
    assert (tmp_path / "now.jsonl").read_text() == (RELEASED / f"{revision}.jsonl").read_text()
    merged = CliRunner().invoke(db, ["--database", str(tmp_path / "mine.sqlite3"), "merge", url])
    assert (merged.exit_code, merged.stderr.startswith("4 of 4 trials")) == (0, True), merged.output
    if before is not None:
        assert Path(url).read_bytes() == before
        assert not Path(url + ".lock").exists()
    assert revision_of(url) == revision
    with open_store(url) as store:
        store.quarantine(failure)
        after = store.quarantined()
        assert failure in after
        assert [one for one in after if one != failure] == before_it


@pytest.mark.postgres
def test_a_role_that_may_only_read_reads_an_older_schema(postgres_url: str, revision: str) -> None:
    import psycopg

    restore(postgres_url, revision)
    role = f"reader_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role} LOGIN")  # type: ignore[arg-type]
        server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")  # type: ignore[arg-type]
    with open_store(postgres_url.replace("tester@", f"{role}@"), read_only=True) as store:
        assert len(store.trials()) == 4
        assert len(store.quarantined()) == QUARANTINED[revision]
        assert len(store.bundle().trials) == 4


def test_a_migration_that_breaks_off_leaves_the_old_schema(
    url: str, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore(url, revision)
    real = migrate._upgrade

    def broken(connection: Any, location: str) -> None:
        real(connection, location)
        connection.execute(text("SELECT no_such_column FROM trials"))

    monkeypatch.setattr(migrate, "_upgrade", broken)
    with pytest.raises(Exception, match="no_such_column"):
        open_store(url)
    monkeypatch.undo()
    database = connect.connect(locate(url))
    assert migrate.revision(database) == revision
    database.close()
    with open_store(url) as store:
        assert len(store.trials()) == 4


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["0001"])
def test_several_processes_migrate_one_database(url: str, revision: str) -> None:
    restore(url, revision)
    code = (
        "import sys; from mmsbgen.db.store.tuning_store import open_store; print(len(open_store(sys.argv[1]).trials()))"
    )
    command = [sys.executable, "-c", code, url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) for _ in range(4)]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["4"] * 4


_UNPRIVILEGED = """
import os, sys
from mmsbgen.db.store.tuning_store import open_store
open_store("sqlite://").close()
if os.geteuid() == 0:
    os.setuid(65534)
with open_store(sys.argv[1], read_only=True) as store:
    print(len(store.trials()), len(store.quarantined()))
"""


@pytest.mark.slow
def test_an_old_file_that_cannot_be_written_is_read_all_the_same(revision: str) -> None:
    folder = Path("/tmp") / f"mmsbgen-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        restore(str(folder / "t.sqlite3"), revision)
        (folder / "t.sqlite3").chmod(0o444)
        folder.chmod(0o555)
        command = [sys.executable, "-c", _UNPRIVILEGED, str(folder / "t.sqlite3")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd())
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert done.stdout == f"4 {QUARANTINED[revision]}\n"
