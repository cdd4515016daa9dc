"""The processes that check variants: asked for several at a time, they answer in order, whatever one of them does."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmsbgen.backends import Device


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


#: A process in a worker's place: it reads ahead, and dies of what is marked before it has answered those before it.
DIES = """
import json, os, sys, threading, time
asked = []
def read():
    for line in sys.stdin:
        asked.append(json.loads(line))
        if asked[-1]["config"].get("dies"):
            time.sleep(0.05)
            os._exit(3)
    asked.append(None)
threading.Thread(target=read, daemon=True).start()
done = 0
while True:
    while len(asked) <= done:
        time.sleep(0.001)
    if asked[done] is None:
        break
    time.sleep(10 if asked[done]["config"].get("dies") else 0.02)
    print(json.dumps({"status": "ok", "message": asked[done]["kernel"], "seconds": 0.0}), flush=True)
    done += 1
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A worker whose processes run that program."""
    path = tmp_path / "dies.py"
    path.write_text(DIES)
    monkeypatch.setattr(module("_variant_worker"), "__file__", str(path))
    worker = module("_variant_worker").Worker("none", threads=2)
    yield worker
    worker.close()


def test_only_the_check_that_a_process_dies_of_crashes_however_many_it_was_asked(stand_in: Any) -> None:
    asked = [(f"kernel {i}", {}, {"dies": i in (4, 9, 10)}) for i in range(14)]
    found = list(stand_in.check_all(asked))
    assert [variant for variant, _ in found] == asked
    expected = ["crashed" if config["dies"] else "ok" for _, _, config in asked]
    assert [result.status for _, result in found] == expected
    assert all(result.message == variant[0] for variant, result in found if result.status == "ok")


def test_a_worker_that_is_stopped_starts_no_other_process(stand_in: Any) -> None:
    answers = stand_in.check_all([(f"kernel {i}", {}, {}) for i in range(14)])
    next(answers)
    stand_in.stop()
    statuses = []
    for _, result in answers:
        statuses.append(result.status)
        if result.status == "crashed":
            break
    assert statuses[-1] == "crashed"
    assert stand_in._process is None


@pytest.mark.opencl
def test_a_worker_that_is_asked_ahead_answers_in_order(pocl_device: Device) -> None:
    blocks = (1, 2, 4, 8, 16, 32, 64, 128, 3, 0)
    asked = [("draws", {"n": n}, {"block_size": block}) for n, block in enumerate(blocks, 1)]
    worker = module("_variant_worker").Worker(pocl_device.info.spec, threads=2)
    try:
        found = list(worker.check_all(asked))
    finally:
        worker.close()
    assert [variant for variant, _ in found] == asked
    assert [result.status for _, result in found] == [*["ok"] * 8, "invalid", "invalid"]
