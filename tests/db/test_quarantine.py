"""A configuration that was selected and failed: the run goes on with the next, and later runs do not try it again."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends import open_device
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.tuning_records import QuarantineRecord, RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store import connect
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.kernels import runtime
from mmsbgen.kernels.build import upload
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.tuner.run.earlier_trials import known_trials

BROKEN = {"broken": True, "block_size": 16}
TOO_WIDE = {"broken": False, "block_size": 1 << 20}
GOOD = {"broken": False, "block_size": 64}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("failing_family").FAILING


def tuned(path: str | Path, info: Any, failing: Any, *configs: dict[str, Any], n: int = 4096) -> Any:
    """Store a tune in which the configurations have worked, the first being the fastest; returns the key."""
    spec, problem = failing.kernel("twice"), failing.problem(n=n)
    key, run = key_of(info, spec, problem), RunRecord(strategy="exhaustive")
    with open_store(path) as store:
        store.begin_run(run)
        for place, config in enumerate(configs):
            extra, times = {"program": program_digest(failing, key, config)}, (1e-3 * (1 + place),)
            store.add_trial(TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=times, extra=extra))
    return key


def run(device: Any, failing: Any, index: Index) -> Any:
    """Launch the kernel as a sampler does; returns the choice after a right answer."""
    spec, problem = failing.kernel("twice"), failing.problem(n=4096)
    runtime = Runtime(device, failing, index)
    work = spec.workload(problem, 0)
    values = upload(device, work)
    runtime.kernel("twice", problem).launch(work.count, values)
    assert work.verify({"y": device.download(values["y"])}, {}) is None
    return runtime.choices["twice"]


@pytest.mark.opencl
def test_a_run_falls_back_finishes_and_later_runs_do_not_try_again(
    url: str, failing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with open_device("pocl") as device:
        key = tuned(url, device.info, failing, BROKEN, TOO_WIDE, GOOD)
        with open_store(url, read_only=True) as store:
            choice = run(device, failing, Index(store))
            marked = {failure.status: failure for failure in store.quarantined()}
        assert (choice.config, choice.tier) == (GOOD, "exact")
        assert "did not compile: block_size=16 broken=True, which is quarantined" in choice.reason
        assert "could not be launched: block_size=1048576 broken=False, which is quarantined" in choice.reason
        assert {status: failure.config for status, failure in marked.items()} == {
            "compile_error": BROKEN,
            "launch_error": TOO_WIDE,
        }
        assert all(failure.key == key and failure.message for failure in marked.values())
        assert caplog.text.count("the next best configuration is tried") == 2

        caplog.clear()
        with open_store(url, read_only=True) as store:
            choice = run(device, failing, Index(store))
        assert (choice.config, caplog.text) == (GOOD, "")
        assert choice.reason.endswith("2 records are quarantined: failed here before")

        with open_store(url) as store:
            assert known_trials(store, key).keys() == {digest(GOOD)}, "a tune measures the others again"
        tuned(url, device.info, failing, TOO_WIDE)
        with open_store(url, read_only=True) as store:
            assert [failure.config for failure in store.quarantined()] == [BROKEN]
            assert digest(TOO_WIDE) in known_trials(store, key)
            assert run(device, failing, Index(store)).config == GOOD
            assert len(store.quarantined()) == 2, "it has failed again since"


@pytest.mark.opencl
def test_what_another_problem_could_have_is_passed_over_quietly(
    tmp_path: Path, failing: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A block above what the kernel can have for this problem is no failure of the record of another one."""
    built: list[dict[str, Any]] = []
    build = runtime.build
    monkeypatch.setattr(runtime, "build", lambda *args: built.append(dict(args[3])) or build(*args))
    path = tmp_path / "t.sqlite3"
    with open_device("pocl") as device:
        tuned(path, device.info, failing, TOO_WIDE, BROKEN, GOOD, n=2048)
        with open_store(path, read_only=True) as store, caplog.at_level(logging.INFO, "mmsbgen.kernels.runtime"):
            spec, problem = failing.kernel("twice"), failing.problem(n=4096)
            work = spec.workload(problem, 0)
            values = upload(device, work)
            chosen = Runtime(device, failing, Index(store))
            for _ in range(2):
                chosen.kernel("twice", problem).launch(work.count, values)
            choice = chosen.choices["twice"]
            assert [failure.config for failure in store.quarantined()] == [BROKEN], "that one does not compile"
    assert (choice.config, choice.tier) == (GOOD, "problem")
    assert "one of tier problem is above what this kernel can have: block_size=1048576 broken=False" in choice.reason
    assert built == [TOO_WIDE, BROKEN, GOOD], "none is built again, neither those that failed nor the one in use"
    told = [r.getMessage() for r in caplog.records if (r.name, r.levelname) == ("mmsbgen.kernels.runtime", "INFO")]
    (limit,) = [message for message in told if "a block of 1048576 is above the" in message]
    assert "passed over" in limit
    assert [r.levelname for r in caplog.records].count("WARNING") == 1, "of the one that does not compile"


@pytest.mark.opencl
def test_a_database_that_cannot_be_written_does_not_stop_the_run(
    tmp_path: Path, failing: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(connect, "GIVE_UP_S", 0.2)
    path = tmp_path / "t.sqlite3"
    with open_device("pocl") as device:
        tuned(path, device.info, failing, BROKEN, GOOD)
        with (
            open_store(path) as rival,
            rival.database.engine.execution_options(write=True).begin(),
            open_store(path, read_only=True) as store,
        ):
            index = Index(store)
            assert [run(device, failing, index).config for _ in range(2)] == [GOOD, GOOD]
            assert store.quarantined() == []
    assert "could not be marked for later runs" in caplog.text
    assert "stayed locked" in caplog.text
    assert caplog.text.count("this is no C") <= 1, "this run does not try it twice"


_UNPRIVILEGED = """
import os, sys, logging
from mmsbgen.db.records.tuning_records import QuarantineRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
open_store("sqlite://").close()
if os.geteuid() == 0:
    os.setuid(65534)
logging.basicConfig(format="%(message)s", stream=sys.stdout)
with open_store(sys.argv[1], read_only=True) as store:
    (trial,) = store.trials()
    failure = QuarantineRecord(
        key=trial.key, config=trial.config, recorded=trial.config, status="launch_error", message="too wide"
    )
    index = Index(store, shipped=None)
    print(index.quarantine(failure))
    print(index.select(trial.key, valid=lambda config: True, default={}).tier)
"""


@pytest.mark.slow
def test_a_read_only_file_is_a_warning(make: Any) -> None:
    folder = Path("/tmp") / f"mmsbgen-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        with open_store(folder / "t.sqlite3") as store:
            store.begin_run(make.run)
            store.add_trial(make.trial())
        (folder / "t.sqlite3").chmod(0o444)
        folder.chmod(0o555)
        command = [sys.executable, "-c", _UNPRIVILEGED, str(folder / "t.sqlite3")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd())
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    warning, marked, tier = done.stdout.splitlines()
    assert "could not be marked for later runs" in warning
    assert "cannot be written; choose another place" in warning
    assert (marked, tier) == ("False", "default"), "barred for this process all the same"


def failure_of(make: Any, **changes: Any) -> QuarantineRecord:
    values: dict[str, Any] = {"key": make.key(), "config": {"block": 64}, "status": "launch_error", "message": "a\nb"}
    return QuarantineRecord(**{"recorded": values["config"], **values, **changes})


def choose(store: Store, key: Any, **more: Any) -> Any:
    return Index(store, shipped=None).select(key, valid=lambda config: True, default={"block": 1}, **more)


def test_it_counts_for_the_very_key_that_was_looked_up(store: Store, make: Any) -> None:
    store.add_trial(make.trial())
    near = make.key(params={"width": 512, "count": 4096, "dtype": "float32"})
    store.quarantine(failure_of(make, key=near))
    store.quarantine(failure_of(make, key=near))
    assert choose(store, make.key()).tier == "exact"
    chosen = choose(store, near)
    assert (chosen.tier, chosen.config) == ("default", {"block": 1})
    assert chosen.reason == "no usable record for this kernel; 1 record is quarantined: failed here before"
    assert len(store.quarantined()) == 1, "one for each key and configuration"
    assert store.quarantined("other") == store.quarantined("rows/other") == store.quarantined("other/gather") == []


def test_only_a_later_success_for_the_same_key_lifts_it(store: Store, make: Any) -> None:
    store.add_trial(make.trial(created_at="2026-01-01T00:00:00Z"))
    store.quarantine(failure_of(make, created_at="2026-01-02T00:00:00Z"))
    again = RunRecord(strategy="again")
    store.begin_run(again)
    after = {"run": again.uuid, "created_at": "2026-01-03T00:00:00Z"}
    store.add_trial(make.trial(make.key(driver="1"), **after))
    store.add_trial(make.trial(config={"block": 32}, **after))
    store.add_trial(make.trial(status="timeout", time=None, round=1, **after))
    assert len(store.quarantined()) == 1
    store.add_trial(make.trial(**after))
    assert store.quarantined() == []
    assert choose(store, make.key()).tier == "exact"
    store.quarantine(failure_of(make, created_at="2026-01-04T00:00:00Z"))
    assert len(store.quarantined()) == 1


def test_a_configuration_in_another_mode_is_not_the_one_that_failed(store: Store, make: Any) -> None:
    store.add_trial(make.trial(config={"block": 64, "mode": "a"}, created_at="2026-01-01T00:00:00Z"))
    failed = failure_of(make, config={"block": 64, "mode": "b"}, recorded={"block": 64, "mode": "a"})
    store.quarantine(failed)
    assert choose(store, make.key()).tier == "exact"
    assert choose(store, make.key(), modes={"mode": "b"}).tier == "default"
    again = RunRecord(strategy="again")
    store.begin_run(again)
    store.add_trial(make.trial(config=failed.recorded, run=again.uuid))
    assert store.quarantined() == [], "a tuner measures it in the recorded mode"


def test_it_goes_with_exports_and_merges(store: Store, make: Any, tmp_path: Path) -> None:
    failure = failure_of(make, message="naïve \0", extra={"tier": "exact"})
    store.quarantine(failure)
    store.export_jsonl(tmp_path / "e.jsonl")
    assert (tmp_path / "e.jsonl").read_text().startswith('{"format":"mmsbgen-tuning","quarantine":1,')
    with open_store("sqlite://") as other:
        for _ in range(2):
            other.import_jsonl(tmp_path / "e.jsonl")
        assert other.quarantined() == [failure]
        other.export_jsonl(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "e.jsonl").read_bytes()


def test_failures_are_of_known_kinds(make: Any) -> None:
    with pytest.raises(ValueError, match="status must be one of"):
        failure_of(make, status="ok")
    assert replace(failure_of(make)).reason == "launch_error: a b"


def test_without_a_store_it_counts_for_this_process(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    index = Index.of_trials([make.trial()])
    with caplog.at_level(logging.WARNING):
        assert not index.quarantine(failure_of(make))
    assert caplog.text == ""
    assert index.select(make.key(), valid=lambda config: True, default={}).tier == "default"
