from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mmsbgen.db.store import open_store

WRITERS = 8
COUNT = 10


def test_many_processes_create_and_write_one_database(url: str) -> None:
    script = Path(__file__).with_name("writer.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(script), url, str(number), str(COUNT)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(WRITERS)
    ]
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * WRITERS, [error for _, error in results]
    distinct = (WRITERS + 1) * COUNT
    assert sum(int(out) for out, _ in results) == distinct
    with open_store(url, read_only=True) as store:
        trials = store.trials()
        assert sorted(trial.config["n"] for trial in trials) == list(range(distinct))
        assert len(store.devices()) == 1
        assert len(store.problems()) == 5
        assert len(store.runs()) == 1
