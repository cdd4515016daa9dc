"""Files of jobs beside a database that is a file: whose they are, when they go, and what a crash leaves."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import update

from mmsbgen.db.records.job_records import LeaseLostError, UnknownJobError
from mmsbgen.db.store.schema import JOBS
from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs.queue import Queue
from tests.jobs.conftest import Clock

_KILLED = """
import os, signal, sys
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs import folder_files
from mmsbgen.jobs.queue import Queue

if sys.argv[2] == "while it is written":
    folder_files.os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
else:
    folder_files._sync = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
with open_store(sys.argv[1]) as store:
    queue = Queue(store)
    queue.checkpoint(queue.claim("w", 1e6), {"chain": b"new"})
"""


def files(database: Path) -> list[Path]:
    return [path for path in database.with_name(f"{database.name}.jobs").rglob("*") if not path.is_dir()]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite3"


def test_they_are_their_owner_s_and_go_with_the_job(database: Path) -> None:
    """25 of them once left 238 MiB in the database."""
    with open_store(str(database)) as store:
        queue = Queue(store)
        for number in range(25):
            id = queue.submit("detect", {}, inputs={"graph": bytes([number]) * 400_000})
            (file,) = files(database)
            assert [stat.S_IMODE(path.stat().st_mode) for path in (file, *file.parents[:2])] == [0o600, 0o700, 0o700]
            assert queue.stored() == 400_000
            queue.cancel(id)
        assert (files(database), queue.stored()) == ([], 0)
    assert database.stat().st_size < 400_000


def test_a_link_to_the_database_leads_to_its_files(database: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(database)
    with open_store(str(database)), open_store(str(link)) as store:
        made = Queue(store).submit("detect", {}, inputs={"graph": b"1 2"})
    assert not link.with_name("link.jobs").exists()
    with open_store(str(database)) as store:
        assert b"".join(Queue(store).read(made, "input", "graph")) == b"1 2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_of_another_user_gets_no_graph(database: Path, link: bool) -> None:
    planted, folder = database.with_name("planted"), database.with_name("t.sqlite3.jobs")
    (planted if link else folder).mkdir()
    os.chown(planted if link else folder, 12345, 12345)
    if link:
        folder.symlink_to(planted)
    with open_store(str(database)) as store:
        with pytest.raises(StoreError, match=r"t\.sqlite3\.jobs belongs to another user"):
            Queue(store).submit("detect", {}, inputs={"graph": b"1 2"})
        assert (files(database), Queue(store).list()) == ([], [])


def test_a_graph_that_is_also_a_result_is_kept_once(database: Path) -> None:
    with open_store(str(database)) as store:
        queue = Queue(store)
        id = queue.submit("detect", {}, inputs={"graph": b"1 2", "other": b"3 4"})
        lease = queue.claim("w")
        assert lease is not None
        queue.checkpoint(lease, {"chain": b"old"})
        queue.checkpoint(lease, {"chain": b"new"})
        assert len(files(database)) == 3
        queue.finish(lease, {}, {"graph": b"1 2"})
        assert len(files(database)) == 1
        assert b"".join(queue.read(id, "output", "graph")) == b"1 2"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while it is written", "before the row is"])
def test_who_is_killed_leaves_the_checkpoint_before_and_nothing_else(database: Path, when: str) -> None:
    with open_store(str(database)) as store:
        queue = Queue(store)
        id = queue.submit("detect", {})
        lease = queue.claim("w")
        assert lease is not None
        queue.checkpoint(lease, {"chain": b"old"})
        queue.release(lease)
        done = subprocess.run([sys.executable, "-c", _KILLED, database, when], check=False)
        assert done.returncode == -signal.SIGKILL
        assert len(files(database)) == 2
        for path in files(database):
            os.utime(path, (0, 0))
        queue.sweep()
        assert len(files(database)) == 1
        assert b"".join(queue.read(id, "checkpoint", "chain")) == b"old"


def test_a_full_disk_keeps_the_checkpoint_before(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_store(str(database)) as store:
        queue = Queue(store)
        id = queue.submit("detect", {})
        lease = queue.claim("w")
        assert lease is not None
        queue.checkpoint(lease, {"chain": b"old"})
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match=r"t\.sqlite3\.jobs cannot be used: No space left"):
                queue.checkpoint(lease, {"chain": b"new"})
        assert b"".join(queue.read(id, "checkpoint", "chain")) == b"old"
        assert len(files(database)) == 1


def test_an_attempt_that_has_lost_its_job_takes_no_file_of_the_next(database: Path) -> None:
    clock = Clock()
    with open_store(str(database)) as store:
        queue = Queue(store, clock=clock)
        id = queue.submit("detect", {})
        old = queue.claim("w1", 10.0)
        clock.pass_seconds(11)
        new = queue.claim("w2", 10.0)
        assert old is not None
        assert new is not None
        queue.checkpoint(new, {"chain": b"the same"})
        with pytest.raises(LeaseLostError):
            queue.checkpoint(old, {"chain": b"the same"})
        queue.sweep()
        assert b"".join(queue.read(id, "checkpoint", "chain")) == b"the same"
        assert len(files(database)) == 1


@pytest.mark.slow
def test_sweeps_beside_writers_lose_nothing(database: Path) -> None:
    with open_store(str(database)) as store:
        ended = threading.Event()

        def sweep() -> None:
            while not ended.is_set():
                Queue(store).sweep()

        sweeping = threading.Thread(target=sweep)
        sweeping.start()
        try:
            queue = Queue(store)
            for number in range(20):
                id = queue.submit("detect", {}, inputs={"graph": bytes([number])})
                lease = queue.claim("w")
                assert lease is not None
                for step in range(3):
                    queue.checkpoint(lease, {"chain": bytes([number, step])})
                    assert b"".join(queue.read(id, "checkpoint", "chain")) == bytes([number, step])
                assert b"".join(queue.read(id, "input", "graph")) == bytes([number])
                queue.finish(lease, {}, {"out": b"x"})
                assert b"".join(queue.read(id, "output", "out")) == b"x"
        finally:
            ended.set()
            sweeping.join()
    assert len(files(database)) == 20


def test_names_in_a_database_of_others_lead_nowhere(database: Path, tmp_path: Path) -> None:
    with open_store(str(database)) as store:
        queue = Queue(store)
        id = queue.submit("detect", {}, inputs={"graph": b"1 2"})
        (told,) = queue.get(id).inputs.values()
        store.database.write(lambda c: c.execute(update(JOBS).values(inputs={"../x": told})))
        with pytest.raises(UnknownJobError, match="has no input file"):
            queue.save(id, "input", "../x", tmp_path / "jobs" / "../x")


@pytest.mark.parametrize(("column", "value"), [("inputs", "../../stolen"), ("uuid", "../../stolen")])
def test_a_database_of_others_names_no_other_files(tmp_path: Path, column: str, value: str) -> None:
    database = tmp_path / "deep" / "t.sqlite3"
    database.parent.mkdir()
    (tmp_path / "stolen").write_bytes(b"a secret")
    with open_store(str(database)) as store:
        id = Queue(store).submit("detect", {}, inputs={"graph": b"1 2"})
    told = {"graph": {"bytes": 8, "sha256": value}} if column == "inputs" else value
    with open_store(str(database)) as store:
        store.database.write(lambda c: c.execute(update(JOBS).values({column: told})))
        if column == "inputs":
            with pytest.raises(StoreError, match="is damaged"):
                list(Queue(store).read(id, "input", "graph"))
        else:
            Queue(store).sweep()
    assert (tmp_path / "stolen").read_bytes() == b"a secret"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "stolen"]
