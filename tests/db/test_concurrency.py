from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from mmsbgen.db.store.tuning_store import open_store

WRITERS = 32
COUNT = 5


@pytest.mark.alone
def test_many_processes_create_and_write_one_database(url: str) -> None:
    script = Path(__file__).with_name("writer.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", str(script), url, str(WRITERS), str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    added = [int(line) for line in done.stdout.splitlines()]
    distinct = (WRITERS + 1) * COUNT
    assert (len(added), sum(added)) == (WRITERS, distinct)
    with open_store(url, read_only=True) as store:
        trials = store.trials()
        assert sorted(trial.config["n"] for trial in trials) == list(range(distinct))
        assert len(store.devices()) == 1
        assert len(store.problems()) == 5
        assert len(store.runs()) == 1
        assert len(store.roofs()) == len(store.quarantined()) == WRITERS
        assert store.database.read(_unsound) == []


def _unsound(connection: Connection) -> list[Any]:
    """Rows that refer to what is not there; for a file, whatever is damaged in it."""
    if connection.dialect.name == "sqlite":
        checks = [tuple(row) for row in connection.execute(text("PRAGMA integrity_check"))]
        return [*(row for row in checks if row != ("ok",)), *connection.execute(text("PRAGMA foreign_key_check"))]
    query = "SELECT t.id FROM trials t LEFT JOIN problems p ON p.id = t.problem_id WHERE p.id IS NULL"
    return [tuple(row) for row in connection.execute(text(query))]
