"""Workers beside a service: what becomes of them and of their jobs when the service is killed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs.queue import Queue
from tests.devices import PROCESSOR
from tests.service.running import COMMAND, Service, serving

pytestmark = [pytest.mark.opencl, pytest.mark.slow]
GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
OPTIONS = ("--workers", "2", "--worker-device", PROCESSOR)


def until(what: Callable[[], Any], why: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
    return found


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(process.pid).children():
        # Others end at any time, such as the one that looks for devices, and have no command line when they have ended.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "worker" in one.cmdline():
                found.append(one)
    return found


def crew(service: Service) -> list[psutil.Process]:
    """The workers, once each of them waits for jobs or does one."""
    until(lambda: service.log.read_text().count("taking jobs") == 2, "no workers")
    return workers_of(service.process)


def test_the_workers_of_a_killed_service_give_their_job_back_and_end(
    tmp_path: Path, processor: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = str(tmp_path / "jobs.sqlite3")
    monkeypatch.setenv("MMSBGEN_WORKER_LEASE", "600")  # a job that is not given back would wait for so long
    with open_store(database) as store:
        queue = Queue(store)
        id = queue.submit("detect", {"n_communities": 20, "iterations": 2**31}, inputs={"graph": GRAPH}, max_losses=1)
        for attempt in (1, 2):
            with serving(database, tmp_path / "data", *OPTIONS) as service:
                workers = crew(service)
                assert len(workers) == 2
                job = until(lambda n=attempt: (j := queue.get(id)).attempt == n and j.progress and j, "not begun")
                assert job.state == "running"
                children = [child for worker in workers for child in worker.children()]
                service.process.kill()
                _, alive = psutil.wait_procs(workers + children, 30)
                assert not alive, "they hold the device"
            job = queue.get(id)
            assert (job.state, job.losses, job.error) == ("queued", 0, "its worker was ended")
            assert job.checkpoint is not None, "it was asked once, not to drop everything"
            assert job.attempt == attempt
        resumed = [event.data["text"] for event in queue.events(id) if event.kind == "message"]
        assert any(text.startswith("Resumed after iteration") for text in resumed)


def test_a_service_without_a_living_worker_is_not_ready(tmp_path: Path) -> None:
    options = ("--workers", "2", "--worker-device", "no such device")
    with serving(str(tmp_path / "t.sqlite3"), tmp_path / "data", *options) as service, service.client() as client:
        told = until(lambda: (a := client.get("/ready")).status_code == 503 and a.json(), "it is ready").copy()
        assert (told["status"], told["database"], told["workers"], told["workers_wanted"]) == ("not ready", "ok", 0, 2)
        time.sleep(3)  # they are started again meanwhile, and end again
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_workers_are_started_again_where_nobody_reads_messages(
    tmp_path: Path, processor: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder, too, with a file that is called as a module of the standard library."""
    folder = tmp_path / "spoiled"
    folder.mkdir()
    (folder / "select.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    monkeypatch.chdir(folder)
    database = str(tmp_path / "jobs.sqlite3")
    options = ["--workers", "1", "--worker-device", PROCESSOR, "--port", "0", "--database", database]
    command = [*COMMAND, "serve", *options, "--data", str(tmp_path / "data")]
    reader, writer = os.pipe()
    with open_store(database) as store, subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=writer) as process:
        os.close(writer)
        try:
            said = b""
            while b"taking jobs" not in said:
                said += os.read(reader, 4096) or pytest.fail(f"no worker: {said.decode()}")
            os.close(reader)
            url = re.search(r"serves (http://\S+)/ from", said.decode())
            assert url is not None
            ready = partial(httpx.get, f"{url[1]}/ready", trust_env=False, timeout=30)
            assert (ready().status_code, ready().json()["workers"]) == (200, 1)
            (worker,) = workers_of(process)
            worker.kill()
            until(lambda: ready().status_code == 503, "a killed worker counts as living")
            queue = Queue(store)
            id = queue.submit("detect", {"n_communities": 5, "iterations": 5}, inputs={"graph": GRAPH})
            assert until(lambda: (job := queue.get(id)).ended and job, "the job was not done").state == "done"
        finally:
            process.terminate()
    assert process.returncode == 0
    assert not (tmp_path / "run").exists()
