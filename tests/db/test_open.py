from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text

from mmsbgen.base.errors import InputError
from mmsbgen.db.store import connect, migrate
from mmsbgen.db.store.connect import locate
from mmsbgen.db.store.default_location import URL_VARIABLE
from mmsbgen.db.store.schema import METADATA, REVISION, VERSION_TABLE
from mmsbgen.db.store.store_errors import StoreError, explained
from mmsbgen.db.store.tuning_store import open_store


def test_migrations_make_the_schema_of_the_models(url: str) -> None:
    def compare(connection: Connection) -> list[Any]:
        options = {"version_table": VERSION_TABLE, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))

    with open_store(url) as store:
        assert store.database.read(compare) == []
        assert migrate.revision(store.database) == REVISION


def test_revisions_are_those_of_the_migration_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parents[1] / "migrations"))
    config.set_main_option("path_separator", "os")
    scripts = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert scripts[0] == REVISION


def test_a_new_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It may hold graphs and results; who shares it gives others the right."""
    before = os.umask(0o022)
    try:
        path = tmp_path / "new" / "t.sqlite3"
        with open_store(path):
            written = [file for file in path.parent.iterdir() if file.suffix != ".lock"]
            assert {stat.S_IMODE(file.stat().st_mode) for file in written} == {0o600}
        path.chmod(0o664)
        open_store(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o664
    finally:
        os.umask(before)


def test_opening_again_keeps_the_data(url: str, make: Any) -> None:
    with open_store(url) as store:
        store.begin_run(make.run)
        store.add_trial(make.trial())
    for read_only in (True, False):
        with open_store(url, read_only=read_only) as store:
            assert not store.missing
            assert len(store.trials()) == 1


def test_read_only_creates_nothing(url: str) -> None:
    with open_store(url, read_only=True) as store:
        assert store.missing
        assert store.trials() == []
        assert store.devices() == []
    assert not Path(url).exists()
    if "://" in url:
        database = connect.connect(locate(url))
        assert database.read(lambda c: inspect(c).get_table_names()) == []
        database.close()


def test_a_database_for_later_is_made_by_its_first_use(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "folder" / "tuning.sqlite3"
    with open_store(path, when_used=True) as store:
        assert store.location == str(path)
    assert list(tmp_path.iterdir()) == []
    with open_store(path, when_used=True) as store:
        store.begin_run(make.run)
        assert len(store.runs()) == 1
    with open_store(path, when_used=True) as store:
        assert len(store.runs()) == 1
        assert migrate.revision(store.database) == REVISION
        assert store.database.engine.dialect.name == "sqlite"


def test_a_database_for_later_is_looked_at_now(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("not a database at all")
    with pytest.raises(InputError, match="is not an SQLite database"):
        open_store(tmp_path / "x", when_used=True)
    theirs = sqlite3.connect(tmp_path / "theirs")
    theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    with pytest.raises(InputError, match="holds tables of another program"):
        open_store(tmp_path / "theirs", when_used=True)


def test_read_only_store_cannot_be_written(url: str, make: Any) -> None:
    open_store(url).close()
    with open_store(url, read_only=True) as store, pytest.raises(StoreError, match=r"(cannot be written|read-only)"):
        store.begin_run(make.run)


@pytest.mark.parametrize(("found", "remedy"), [("9999", "upgrade mmsbgen"), ("0004", "mmsbgen db export")])
def test_the_schema_of_another_version_is_refused_and_not_changed(url: str, found: str, remedy: str) -> None:
    with open_store(url) as store:
        store.database.write(lambda c: c.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{found}'")))
    for how in ({"read_only": True}, {"when_used": True}, {}):
        with pytest.raises(InputError, match=rf"has schema {found}.*{remedy}"):
            open_store(url, **how)


def test_tables_of_another_program_are_left_alone(url: str) -> None:
    database = connect.connect(locate(url))
    database.write(lambda c: c.execute(text("CREATE TABLE devices (a INTEGER)")))
    database.close()
    with pytest.raises(InputError, match="tables of another program"):
        open_store(url)


@pytest.mark.postgres
def test_a_shared_postgres_database_may_hold_other_tables(postgres_url: str) -> None:
    database = connect.connect(locate(postgres_url))
    database.write(lambda c: c.execute(text("CREATE TABLE alembic_version (a INTEGER)")))
    database.close()
    with open_store(postgres_url) as store:
        assert store.runs() == []


def test_where_the_database_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data home"))
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    assert locate().path == tmp_path / "data home" / "mmsbgen" / "tuning.sqlite3"
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/env.sqlite3")
    assert locate().path == tmp_path / "env.sqlite3"
    assert locate("~/x.db").path == Path.home() / "x.db"
    assert locate(tmp_path / "a b.db").path == tmp_path / "a b.db"
    assert locate("sqlite://").path is None
    assert str(locate("postgresql://me:secret@host:99/db")) == "postgresql+psycopg://me:***@host:99/db"
    asked = "postgresql://me@host/db?password=secret&sslpassword=secret&sslmode=require"
    assert str(locate(asked)) == "postgresql+psycopg://me@host/db?sslmode=require"


def test_default_database_is_made_with_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data home %41?#"))
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with open_store() as store:
        assert Path(store.location).exists()
        mode = store.database.read(lambda c: c.execute(text("PRAGMA journal_mode")).scalar())
        assert mode == "wal"
        assert store.database.read(lambda c: c.execute(text("PRAGMA foreign_keys")).scalar()) == 1
    with open_store(read_only=True) as store:
        assert not store.missing


@pytest.mark.parametrize("url", ["mysql://host/db", "oracle://host"])
def test_other_servers_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="not supported: use SQLite or PostgreSQL"):
        open_store(url)


def test_an_unreadable_url_is_refused_without_its_password() -> None:
    with pytest.raises(InputError, match="cannot be read") as refused:
        open_store("postgresql://me:secret@host:port:9/db")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_no_database(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and no database at all")
    with pytest.raises(InputError, match=r"notes\.txt is not an SQLite database.*--database"):
        open_store(path, read_only=read_only)
    with pytest.raises(InputError, match="is a folder"):
        open_store(tmp_path, read_only=read_only)
    assert path.read_text().startswith("these")


def test_a_damaged_database(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "t.sqlite3"
    with open_store(path) as store:
        store.begin_run(make.run)
    content = bytearray(path.read_bytes())
    content[100:] = os.urandom(len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged") as damaged:
        open_store(path)
    assert damaged.value.exit_code == 2, "as for a file that is no database"


def test_what_sqlite_cannot_open_is_bad_input(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'none' / 't.sqlite3'}")
    with pytest.raises(StoreError, match="cannot be opened; check the rights") as unusable, explained("t.sqlite3"):
        engine.connect()
    assert unusable.value.exit_code == 2


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite3"
    path.touch()
    with open_store(path, read_only=True) as store:
        assert store.missing
    with open_store(path) as store:
        assert store.runs() == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be used: .*--database or MMSBGEN_DATABASE_URL"):
        open_store(tmp_path / "file" / "t.sqlite3")


_UNPRIVILEGED = """
import os, sys
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.base.errors import MmsbgenError
open_store("sqlite://").close()
if os.geteuid() == 0:
    os.setuid(65534)
for read_only in (True, False):
    try:
        with open_store(sys.argv[1], read_only=read_only) as store:
            print("runs", len(store.runs()), store.missing)
    except MmsbgenError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_folder_without_the_right_to_write(tmp_path: Path, make: Any) -> None:
    folder = Path("/tmp") / f"mmsbgen-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        with open_store(folder / "there.sqlite3") as store:
            store.begin_run(make.run)
        (folder / "there.sqlite3").chmod(0o444)
        folder.chmod(0o555)

        def said(name: str) -> str:
            command = [sys.executable, "-c", _UNPRIVILEGED, str(folder / name)]
            return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout

        there, missing = said("there.sqlite3").splitlines(), said("missing.sqlite3").splitlines()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert there[0] == "runs 1 False"
    assert missing[0] == "runs 0 True"
    for line in (there[1], missing[1]):
        assert line.startswith("InputError the database")
        assert "cannot be written; choose another place" in line


def test_a_server_that_does_not_answer() -> None:
    with pytest.raises(InputError, match=r"cannot connect to the database server 127\.0\.0\.1:1,") as refused:
        open_store("postgresql://me:secret@127.0.0.1:1/tuning")
    assert "secret" not in str(refused.value)


@pytest.mark.postgres
def test_a_database_that_the_server_does_not_have(postgres_server: str) -> None:
    with pytest.raises(InputError, match='database "nowhere" does not exist'):
        open_store(f"{postgres_server}/nowhere")


@pytest.mark.parametrize("busy_s", [connect.BUSY_TIMEOUT_S, 0.01], ids=["by SQLite", "in turns"])
def test_a_lock_is_waited_for(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch, busy_s: float) -> None:
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_S", busy_s)
    path = tmp_path / "t.sqlite3"
    with open_store(path) as store:
        rival = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        rival.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, lambda: rival.execute("COMMIT")).start()
        started = time.monotonic()
        store.begin_run(make.run)
        assert time.monotonic() - started > 0.2
        rival.close()


def test_a_lock_is_not_waited_for_for_ever(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(connect, "GIVE_UP_S", 0.3)
    path = tmp_path / "t.sqlite3"
    with open_store(path) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="stayed locked by another process"):
            store.begin_run(make.run)
        assert store.runs() == []
        rival.close()
        store.begin_run(make.run)


def test_a_full_disk_loses_nothing(tmp_path: Path, make: Any) -> None:
    with open_store(tmp_path / "t.sqlite3") as store:
        store.begin_run(make.run)
        store.add_trial(make.trial())
        with store.database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with pytest.raises(StoreError, match="disk is full"):
            store.add_trial(make.trial(config={"n": 1}, message="x" * 10**6))
        assert len(store.trials()) == 1


@pytest.fixture
def pages(tmp_path: Path, make: Any) -> list[bytes]:
    """The pages of a database file with some trials."""
    path = tmp_path / "good.sqlite3"
    with open_store(path) as store:
        store.begin_run(make.run)
        for n in range(60):
            store.add_trial(make.trial(config={"n": n}, message="because " * 50))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    content = path.read_bytes()
    return [content[first : first + 4096] for first in range(0, len(content), 4096)]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_database_with_an_overwritten_page_is_not_used(tmp_path: Path, pages: list[bytes], read_only: bool) -> None:
    """Whichever page it is, and whether or not the command would look at it."""
    assert len(pages) > 30
    bad, rng = tmp_path / "bad.sqlite3", random.Random(0)
    for number in range(1, len(pages), 3):
        bad.write_bytes(b"".join([*pages[:number], rng.randbytes(4096), *pages[number + 1 :]]))
        with pytest.raises(StoreError, match=r"bad\.sqlite3 is damaged; restore it from an export or a copy") as told:
            open_store(bad, read_only=read_only)
        assert told.value.exit_code == 2
    for rest in tmp_path.glob("bad.sqlite3*"):
        rest.unlink()
    bad.write_bytes(b"".join(pages))
    with open_store(bad, read_only=read_only) as store:
        assert len(store.trials()) == 60


def test_records_that_cannot_be_read_are_one_sentence(tmp_path: Path, pages: list[bytes]) -> None:
    """What no check of the pages finds: other bytes in their records."""
    bad = tmp_path / "bad.sqlite3"
    changes = {b'{"n":': b'[1,":', b'"width"': b'"wid\xff\xff"', b"[0.001]": b"[0.0x1]"}
    for old, new in changes.items():
        whole = b"".join(pages)
        assert old in whole
        bad.write_bytes(whole.replace(old, new))
        with open_store(bad, read_only=True) as store, pytest.raises(StoreError, match=r"bad\.sqlite3 is damaged"):
            store.bundle()


@pytest.mark.slow
def test_a_large_database_is_checked_by_those_who_write(
    tmp_path: Path, pages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up in hundreds of megabytes does not wait for a second."""
    monkeypatch.setattr(connect, "QUICK_CHECK_BYTES", 4096)
    bad = tmp_path / "bad.sqlite3"
    bad.write_bytes(b"".join([*pages[:-2], bytes(4096), *pages[-1:]]))
    open_store(bad, read_only=True).close()
    with pytest.raises(StoreError, match="is damaged"):
        open_store(bad)


_NO_ROOM = """
import resource, signal, sys
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.base.errors import MmsbgenError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    open_store(sys.argv[1])
except MmsbgenError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_database_that_a_full_disk_has_no_room_for_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _NO_ROOM, str(tmp_path / "t.sqlite3")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"StoreError the database {tmp_path}/t.sqlite3 ")
    assert "disk" in done.stdout


_LITTLE_ROOM = """
import resource, signal, sys
from pathlib import Path
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.base.errors import MmsbgenError
path = Path(sys.argv[1])
with open_store(path) as store:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    room = sum(p.stat().st_size for p in path.parent.glob(path.name + "*")) + 65536
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        store.import_jsonl(sys.argv[2])
    except MmsbgenError as error:
        print(type(error).__name__, error)
    print(len(store.trials()))
"""


@pytest.mark.slow
def test_an_import_that_runs_out_of_room_half_way_adds_nothing(tmp_path: Path, make: Any) -> None:
    """The system refuses to let the file grow, as it does on a full disk."""
    with open_store("sqlite://") as source:
        source.begin_run(make.run)
        for n in range(60):
            source.add_trial(make.trial(config={"n": n}, message=f"{n}" * 20000))
        source.export_jsonl(tmp_path / "big.jsonl")
    path = tmp_path / "t.sqlite3"
    with open_store(path) as store:
        store.begin_run(make.run)
        store.add_trial(make.trial())
    command = [sys.executable, "-c", _LITTLE_ROOM, str(path), str(tmp_path / "big.jsonl")]
    said, count = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path.cwd()
    ).stdout.splitlines()
    assert said.startswith("StoreError the database ")
    assert "disk" in said
    assert count == "1"
    with open_store(path) as store:
        assert len(store.trials()) == 1
        assert store.import_jsonl(tmp_path / "big.jsonl") == 60


@pytest.mark.slow
def test_an_export_to_a_full_disk(make: Any) -> None:
    with open_store("sqlite://") as store:
        store.begin_run(make.run)
        with pytest.raises(InputError, match=r"cannot write /dev/full: No space left"):
            store.export_jsonl("/dev/full")


@pytest.mark.postgres
def test_a_lost_connection_is_opened_again(postgres_url: str, make: Any) -> None:
    with open_store(postgres_url) as store:
        store.begin_run(make.run)
        with open_store(postgres_url) as other:
            other.database.write(
                lambda c: c.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid != pg_backend_pid()"
                    )
                )
            )
        assert store.add_trial(make.trial())


def test_a_forked_child_opens_its_own_connection(url: str, make: Any) -> None:
    with open_store(url) as store:
        store.begin_run(make.run)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if store.add_trial(make.trial(config={"from": "child"})) else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0
        assert store.add_trial(make.trial(config={"from": "parent"}))
        assert len(store.trials()) == 2


@pytest.mark.postgres
def test_a_user_without_rights_on_a_server_is_told(postgres_url: str) -> None:
    import psycopg

    with open_store(postgres_url):
        pass
    reader = f"r{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {reader} LOGIN")  # type: ignore[arg-type]
    theirs = postgres_url.replace("tester@", f"{reader}@")
    for read_only in (True, False):
        with pytest.raises(StoreError, match=f"{reader}@.* may not be used so by this user; ask its owner"):
            open_store(theirs, read_only=read_only)
