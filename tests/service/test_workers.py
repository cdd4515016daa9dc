"""Workers beside a service: what becomes of them and of their jobs when the service is killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs import Queue
from tests.service.running import Service, serving

pytestmark = [pytest.mark.opencl, pytest.mark.slow]
GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
OPTIONS = ("--workers", "2", "--worker-device", "pocl")


def until(what: Callable[[], Any], why: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
    return found


def crew(service: Service) -> list[psutil.Process]:
    """The workers, once each of them waits for jobs or does one."""
    until(lambda: service.log.read_text().count("taking jobs") == 2, "no workers")
    found = []
    for one in psutil.Process(service.process.pid).children():
        # Others end at any time, such as the one that looks for devices, and have no command line when they have ended.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "worker" in one.cmdline():
                found.append(one)
    return found


def test_the_workers_of_a_killed_service_give_their_job_back_and_end(
    tmp_path: Path, pocl_device: object, monkeypatch: pytest.MonkeyPatch
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
