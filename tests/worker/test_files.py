"""Files of jobs on their way to a worker, and what is left of them on its disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.jobs.queue import Queue
from mmsbgen.jobs.worker.supervisor import Worker
from mmsbgen.jobs.worker.task import WorkerSettings
from tests.devices import PROCESSOR

pytestmark = [pytest.mark.opencl, pytest.mark.slow]

EDGES = b"".join(b"%d %d\n" % (12 * part + a, 12 * part + b) for part in range(4) for a in range(12) for b in range(a))
LARGE = b"# a remark as long as a line may be\n" * 200_000 + EDGES
OPTIONS = {"n_communities": 4, "iterations": 20, "seed": 1}
LEASE_S = 5.0
"""Shorter than the fetch of ``LARGE``; renewed with seconds to spare where other tests take the processor."""
LONG = OPTIONS | {"iterations": 2**31}


class FarAway(Queue):
    """The queue of a database to which the way is slow: a second for each MiB."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        near = self._files.parts

        def parts(*which: Any) -> Iterator[bytes]:
            for part in near(*which):
                time.sleep(1.0)
                yield part

        self._files.parts = parts  # type: ignore[method-assign]


def working(url: str, data: Path, said: list[str], **settings: Any) -> None:
    with open_store(url) as store:
        queue = FarAway(store)
        Worker(queue, store.place, WorkerSettings(data, PROCESSOR, **settings), said.append).run(most=1)


def test_a_fetch_that_takes_longer_than_the_lease_keeps_the_job(here: Any) -> None:
    id = here.queue.submit("detect", OPTIONS, inputs={"graph": LARGE})
    said: list[str] = []
    worker = threading.Thread(target=working, args=(here.url, here.data, said), kwargs={"lease": LEASE_S})
    worker.start()
    while worker.is_alive():  # as another worker does that looks for jobs
        assert here.queue.expire() == 0, said
        time.sleep(0.05)
    job = here.queue.get(id)
    assert (job.state, job.attempt, job.losses) == ("done", 1, 0), said
    times = [event.created_at for event in here.queue.events(id) if event.data.get("state") in ("running", "done")]
    took = datetime.fromisoformat(times[1]) - datetime.fromisoformat(times[0])
    assert took.total_seconds() > LEASE_S


def test_a_fetch_ends_when_its_job_is_cancelled(here: Any) -> None:
    id = here.queue.submit("detect", OPTIONS, inputs={"graph": LARGE * 5})
    said: list[str] = []
    worker = threading.Thread(target=working, args=(here.url, here.data, said), kwargs={"lease": 2.0})
    worker.start()
    here.until(lambda: here.queue.get(id).state == "running", "not taken")
    here.queue.cancel(id)
    began = time.monotonic()
    assert here.ended(id).state == "cancelled"
    assert time.monotonic() - began < 5, "all of it was fetched first"
    worker.join(30)
    assert not list((here.data / "jobs").iterdir())


def test_folders_of_deleted_jobs_go_those_of_other_databases_stay(here: Any, tmp_path: Path) -> None:
    id = here.queue.submit("detect", LONG, inputs={"graph": EDGES})
    worker = here.start("--checkpoint-seconds", 0.2)
    here.sampling(id)
    worker.kill()
    worker.wait(10)
    jobs = here.data / "jobs"
    assert [folder.name for folder in jobs.iterdir()] == [id]
    here.queue.cancel(id)
    here.until(here.queue.expire, "the lease did not end")
    here.queue.remove(id)
    old = jobs / ("0" * 32)
    (old / "1").mkdir(parents=True)  # of a version that did not say whose it is
    with open_store(tmp_path / "another.sqlite3") as store:
        other = Queue(store).submit("detect", LONG, inputs={"graph": EDGES})
    elsewhere = here.start("--database", tmp_path / "another.sqlite3", "--checkpoint-seconds", 0.2)
    here.until(lambda: (jobs / other).exists() and list((jobs / other).glob("*/checkpoint.npz")), "not begun")
    assert {folder.name for folder in jobs.iterdir()} == {id, other, old.name}, "each knows its own jobs alone"
    elsewhere.kill()
    elsewhere.wait(10)
    here.finish("--drain")
    assert {folder.name for folder in jobs.iterdir()} == {other, old.name}
