"""What payloads may say, by name; everything else is refused before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.db.records.canonical_json import plain_json
from mmsbgen.detection import detect
from mmsbgen.export.run_folder import graph_of_run
from mmsbgen.jobs.worker import detection_job, tuning_job
from mmsbgen.jobs.worker.task import StoppedError, Task
from mmsbgen.sampler.saved import checkpoint
from tests.devices import PROCESSOR


def test_a_detection_takes_the_options_of_the_sampler() -> None:
    options = detection_job.checked(
        {
            "n_communities": 5,
            "seed": 3,
            "noise": False,
            "schedule": {"a": 0.1, "b": 10.0, "c": 0.5},
            "eta": [1.0, 2.0],
            "rule": "share",
            "threshold": 0.2,
            "top": 4,
            "name": "mine",
        }
    )
    assert (options["n_communities"], options["eta"], options["schedule"].a) == (5, (1.0, 2.0), 0.1)
    assert "rule" not in options
    for k in ({"n_communities": "auto"}, {"n_communities": None}, {}):
        assert detection_job.checked({**k, "alpha": 0.1}) == {"alpha": 0.1}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"n_communities": 0}, "n_communities=0"),
        ({"n_communities": "many"}, "n_communities='many'"),
        ({"n_communities": True}, "n_communities=True"),
        ({"n_communities": 2.5}, "n_communities=2.5"),
        ({"n_communities": 5, "out": "/etc"}, "has no 'out'"),
        ({"n_communities": 5, "resume": "/etc/passwd"}, "has no 'resume'"),
        ({"n_communities": 5, "device": "cuda:0"}, "has no 'device'"),
        ({"n_communities": 5, "alpha": "x"}, "alpha|wrong type"),
        ({"n_communities": 5, "alpha": -1.0}, "alpha=-1.0"),
        ({"n_communities": 5, "refine": 1}, "refine=1"),
        ({"n_communities": 5, "seed": True}, "seed=True"),
        ({"n_communities": 5, "eta": 3}, "wrong type"),
        ({"n_communities": 5, "eta": [1]}, "eta"),
        ({"n_communities": 5, "schedule": {"a": 1}}, "wrong type"),
        ({"n_communities": 5, "schedule": {"a": 0, "b": 1, "c": 1}}, "schedule"),
        ({"n_communities": 5, "schedule": "fast"}, "wrong type"),
        ({"n_communities": 5, "rule": "magic"}, "magic"),
        ({"n_communities": 5, "rule": ["share"]}, "rule|wrong type"),
        ({"n_communities": 5, "threshold": "high"}, "threshold|wrong type"),
        ({"n_communities": 5, "top": 0}, "top=0"),
        ({"n_communities": 5, "top": True}, "top=True"),
        ({"n_communities": 5, "name": ""}, "name=''"),
        ({"n_communities": 5, "name": 7}, "name=7"),
        ({"n_communities": 5, "columns": ["a", "b"]}, "columns=.* must be a text"),
        ({"n_communities": 5, "weights": "some"}, "weights='some'"),
        ({"n_communities": 5, "mini_batch": "nope"}, "nope"),
        ({"n_communities": 5, "mini_batch": {}}, "mini.batch|wrong type"),
        ({"n_communities": 5, "dtype": []}, "dtype"),
    ],
)
def test_a_detection_refuses_the_rest(payload: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        detection_job.checked(payload)


def test_a_tune_takes_what_the_command_does() -> None:
    wanted = tuning_job.checked(
        {
            "kernels": ["update_phi"],
            "problem": {"K": 32},
            "fixed": {"vector_width": [1, "4"], "normalise": True},
            "budget_trials": 5,
            "budget_seconds": 2.5,
            "roof_mib": 1,
            "compile_limit": 9,
            "sampler": {"n_communities": 7},
        }
    )
    assert (wanted.family, wanted.kernels, wanted.problem) == ("mmsb", ["update_phi"], {"K": 32})
    assert wanted.options["fixed"]["vector_width"] == (1, 4)
    assert (wanted.options["roof_bytes"], wanted.options["limits"].compile_s) == (1 << 20, 9)
    assert (wanted.options["budget_trials"], wanted.options["budget_seconds"]) == (5, 2.5)
    assert wanted.sampler is not None
    assert tuning_job.checked({}).kernels is None


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"family": "os:system"}, "no family 'os:system'"),
        ({"family": 3}, "family=3"),
        ({"kernels": "update_phi"}, "must be a list"),
        ({"kernels": ["nope"]}, "no kernel 'nope'"),
        ({"kernels": [["x"]]}, "no kernel"),
        ({"problem": {"Q": 1}}, "no parameter 'Q'"),
        ({"problem": {"K": "x"}}, "K='x'"),
        ({"problem": {"N": 4000, "m": 4096}}, "m of at most 4000"),
        ({"problem": [1]}, "must be a mapping"),
        ({"fixed": {"colour": [1]}}, "colour: no such axis"),
        ({"fixed": {"vector_width": [3]}}, "vector_width=3"),
        ({"fixed": {"vector_width": []}}, "needs at least one value"),
        ({"strategy": "luck"}, "no strategy 'luck'"),
        ({"objective": "fun"}, "fun"),
        ({"retune": "yes"}, "true or false"),
        ({"budget_trials": 0}, "budget_trials=0"),
        ({"budget_trials": True}, "budget_trials=True"),
        ({"budget_trials": 1.5}, "budget_trials=1.5"),
        ({"budget_seconds": 0}, "budget_seconds=0"),
        ({"budget_seconds": float("inf")}, "budget_seconds=inf"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**70}, "at most"),
        ({"compilers": 10**6}, "compilers=1000000"),
        ({"sampler": {"n_communities": 0}}, "n_communities=0"),
        ({"sampler": {"luck": 1}}, "wrong type"),
        ({"scheduler": "tcp://x"}, "has no 'scheduler'"),
        ({"database": "x"}, "has no 'database'"),
    ],
)
def test_a_tune_refuses_the_rest(payload: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        tuning_job.checked(payload)


def test_plain_values_are_those_of_json() -> None:
    import numpy as np

    assert plain_json({"a": float("nan"), 1: (np.float32(2), np.int64(3), {"b": float("inf")}), "c": object}) == {
        "a": None,
        "1": [2.0, 3, {"b": None}],
        "c": str(object),
    }


@pytest.mark.opencl
def test_a_job_that_is_stopped_while_the_disk_is_full_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processor: Device
) -> None:
    """Its next attempt goes on from the checkpoint before; the job has not failed."""

    def full(*_: object) -> None:
        raise InputError("cannot write: no space left on device")

    class Asked(StopRequest):
        def __bool__(self) -> bool:
            return bool(told.checkpoints)

    graph = tmp_path / "g.txt"
    graph.write_text("".join(f"{a} {(a + step) % 30}\n" for a in range(30) for step in (1, 2)))
    monkeypatch.setattr(detect, "StopRequest", Asked)
    told = Told()

    def first(*given: object) -> None:
        monkeypatch.setattr(checkpoint, "save", full)
        real(*given)

    real = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", first)
    payload = {"n_communities": 3, "iterations": 2**20, "mini_batch_size": 8, "n_partners": 4}
    task = Task("detect", payload, tmp_path, {"graph": graph}, device=PROCESSOR, database=str(tmp_path / "t.sqlite3"))
    with pytest.raises(StoppedError):
        detection_job.run(replace(task, checkpoint_seconds=0.0), told)
    assert told.checkpoints == [tmp_path / "checkpoint.npz"]
    assert any("no space left" in text for text in told.messages)


@pytest.mark.opencl
def test_a_detection_reads_the_columns_that_it_is_told(tmp_path: Path, processor: Device) -> None:
    graph = tmp_path / "g"
    rows = [f"{year},{a},{(a + step) % 30},{year}\n" for year in (1, 2) for a in range(30) for step in (1, 2)]
    graph.write_text("".join(["year,who,whom,times\n", *rows]))
    payload = {"n_communities": 3, "iterations": 2, "columns": "who,whom,times", "weights": "threshold=2"}
    task = Task("detect", payload, tmp_path, {"graph": graph}, device=PROCESSOR, database=str(tmp_path / "t.sqlite3"))
    done = detection_job.run(task, Told())
    assert (done.result["graph"]["vertices"], done.result["graph"]["links"]) == (30, 60)
    found, why = graph_of_run(tmp_path, done.outputs["graph"])
    assert (found is not None, why) == (True, "")


@dataclass
class Told:
    """What a job reports."""

    messages: list[str] = field(default_factory=list)
    checkpoints: list[Path] = field(default_factory=list)

    def progress(self, data: Mapping[str, Any]) -> None:
        pass

    def message(self, text: str) -> None:
        self.messages.append(text)

    def checkpoint(self, path: Path) -> None:
        self.checkpoints.append(path)
