"""What a service keeps on disk: its folder, its database, files of jobs; and a disk that is full."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mmsbgen.cli import main
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs.queue import Queue
from tests.disks import in_a_file_system_of_its_own
from tests.service.running import Service, serving

EDGES = b"1 2\n2 3\n1 3\n"
FULL = """
import gzip, os
from pathlib import Path
from tests.service.running import serving

with serving("t.sqlite3", Path("disk/data")) as service, service.client() as client:
    edges = b"1 2\\n" * 1_000_000
    packed = gzip.compress(edges)
    requests = [{"content": edges}, {"files": {"graph": ("g", packed)}}]
    for request in requests:
        answer = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, **request)
        print(answer.status_code, answer.json().get("detail"))
    answer = client.post("/api/v1/records", content=gzip.compress(b"{}\\n" * 1_000_000))
    print(answer.status_code, answer.json().get("detail"))
    print(client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=b"1 2\\n2 3\\n1 3\\n").status_code)
    print("a traceback" if "Traceback" in service.log.read_text() else "no traceback")
"""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that keeps little and gives jobs little time."""
    folder = tmp_path_factory.mktemp("narrow")
    with serving(str(folder / "t.sqlite3"), folder / "data", "--max-stored", "3", "--max-hours", "2") as service:
        yield service


def test_files_of_all_jobs_are_limited(narrow: Service) -> None:
    with narrow.client() as client, open_store(narrow.database) as store:
        queue = Queue(store)
        jobs = [queue.submit("detect", {"n_communities": 2}, inputs={"graph": bytes(1 << 20)}) for _ in range(3)]
        queue.cancel(queue.submit("detect", {}))
        queue.cancel(jobs.pop())
        lease = queue.claim("w")
        assert lease is not None
        queue.finish(lease, {}, {"out": bytes(2 << 20)})
        refused = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=EDGES)
        assert refused.status_code == 507
        assert "at most 3 MiB are kept: delete jobs that have ended" in refused.json()["detail"]
        assert client.delete(f"/api/v1/jobs/{lease.job.id}").status_code == 204
        taken = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=EDGES)
        assert taken.status_code == 202
        for job in (jobs[1], taken.json()["id"]):
            client.post(f"/api/v1/jobs/{job}/cancel")


def test_a_tune_that_would_be_ended_for_its_time_is_refused(narrow: Service) -> None:
    with narrow.client() as client:
        refused = client.post("/api/v1/jobs/tune", json={"budget_seconds": 7201})
        assert (refused.status_code, "at most 7200" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """They could put a token of theirs into it, and links to files of the service's user."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    command = ["serve", "--data", str(folder), "--database", str(tmp_path / "t.sqlite3")]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, f"chmod go-w {folder}" in done.stderr) == (2, True), done.stderr
    assert list(folder.iterdir()) == []


def test_what_is_another_user_s_in_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["serve", "--data", str(tmp_path), "--database", str(tmp_path / "t.sqlite3")]
    (tmp_path / "service-token").symlink_to("/etc/hostname")
    if os.geteuid() == 0:
        os.lchown(tmp_path / "service-token", 12345, 12345)
        done = CliRunner().invoke(main, command)
        assert (done.exit_code, "service-token, which belongs to another user" in done.stderr) == (2, True), done.stderr
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "belongs to another user" in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
def test_a_database_that_others_may_read_is_told(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite3"
    for mode, told in ((0o600, False), (0o640, True), (0o604, True)):
        open_store(database).close()
        database.chmod(mode)
        with serving(str(database), tmp_path / "data") as service:
            said = service.log.read_text()
        assert (f"chmod 600 {database}" in said) == told


@pytest.mark.slow
def test_a_full_disk_refuses_uploads_without_an_error_of_the_service(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "upload.py").write_text(FULL)
    root = Path(__file__).parents[2]
    script = f"""
        mount -t tmpfs -o size=1m none disk || exit 99
        PYTHONPATH={root} {sys.executable} upload.py
    """
    done = in_a_file_system_of_its_own(script, tmp_path)
    if done.returncode == 99:
        pytest.skip(f"this system lets no test mount a file system: {done.stderr}")
    assert done.returncode == 0, done.stderr
    graph, form, records, small, log = done.stdout.splitlines()
    assert graph == form == records == "507 the disk of the service is full: try again later"
    assert (small, log) == ("202", "no traceback")
