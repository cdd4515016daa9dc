"""Real workers as processes, on a processor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.db.records.job_records import Job
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs.queue import Queue
from tests.devices import PROCESSOR

DATA = Path(__file__).parents[1] / "data"
COMMAND = [sys.executable, "-W", "error", "-c", "from mmsbgen.cli import main; main()", "worker", "--device", PROCESSOR]
LONG_S = 60.0


class Crew:
    """Starts workers on one database, and looks at its queue."""

    def __init__(self, url: str, data: Path) -> None:
        self.url, self.data = url, data
        self.started: list[subprocess.Popen[str]] = []
        self.store = open_store(url)
        self.queue = Queue(self.store)

    def start(self, *options: object, **more: Any) -> subprocess.Popen[str]:
        words = [*COMMAND, "--data", str(self.data), "--lease", "2", *map(str, options)]
        environment = os.environ | {
            "MMSBGEN_DATABASE_URL": self.url,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
        }
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, **more)
        self.started.append(process)
        return process

    def finish(self, *options: object) -> str:
        """A worker's standard error, once it has ended well."""
        process = self.start(*options)
        said = process.communicate(timeout=2 * LONG_S)[1]
        assert process.returncode == 0, said
        return said

    def until(self, what: Callable[[], Any], why: str) -> Any:
        deadline = time.monotonic() + LONG_S
        while not (found := what()):
            assert time.monotonic() < deadline, f"{why}: {[job for job in self.queue.list()]}"
            time.sleep(0.1)
        return found

    def sampling(self, id: str) -> Job:
        """The job, once an attempt has left a checkpoint."""
        return self.until(lambda: (job := self.queue.get(id)).checkpoint and job, "no checkpoint")

    def ended(self, id: str) -> Job:
        return self.until(lambda: (job := self.queue.get(id)).ended and job, "it did not end")

    def states(self, id: str) -> list[str]:
        return [event.data["state"] for event in self.queue.events(id) if event.kind == "state"]

    def messages(self, id: str) -> list[str]:
        return [event.data["text"] for event in self.queue.events(id) if event.kind == "message"]

    def close(self) -> None:
        for process in self.started:
            process.send_signal(signal.SIGKILL)
        for process in self.started:
            with contextlib.suppress(ValueError):
                process.communicate()
        self.store.close()


@pytest.fixture
def crew(url: str, tmp_path: Path, processor: object) -> Iterator[Crew]:
    found = Crew(url, tmp_path / "data")
    yield found
    found.close()


@pytest.fixture
def here(tmp_path: Path, processor: object) -> Iterator[Crew]:
    """A crew with a database in a file, where the kind of server makes no difference."""
    found = Crew(str(tmp_path / "jobs.sqlite3"), tmp_path / "data")
    yield found
    found.close()
