"""kernel_tuner's caches, against kernel_tuner itself, and what exports leave out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kernel_tuner.util import read_cache

from mmsbgen.base.errors import InputError
from mmsbgen.cli.db.commands import db
from mmsbgen.db.exchange import formats, jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import TRIAL_STATUSES, RoofRecord
from mmsbgen.db.store.tuning_store import open_store


def call(*arguments: object) -> Result:
    return CliRunner().invoke(db, [str(argument) for argument in arguments])


def text_of(bundle: Bundle) -> list[str]:
    return list(jsonl.lines(bundle))


@pytest.fixture
def bundle(make: Any) -> Bundle:
    """One trial of each status and a finalist, of one key."""
    trials = [
        make.trial(
            config={"block": 2**n, "place": "RRS", "fast": True},
            status=status,
            time=None if status != "ok" else 0.1 + 0.2,
            message="" if status == "ok" else f"why {status}",
            compile_s=1.25,
            registers=40,
            bytes_moved=10**9,
            energy_j=0.5,
        )
        for n, status in enumerate(TRIAL_STATUSES)
    ]
    roof = RoofRecord(run=make.run.uuid, device=make.device(), kind="copy", gbps=4272.0)
    return Bundle([make.run], [roof], [*trials, replace(trials[0], round=1, times=(1.0, 2.0))])


@pytest.mark.parametrize("content", [b"1 2\n2 3\n", b"\xa4\x00", b""])
def test_files_that_hold_no_records_are_told_which_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "links.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"links.txt.*; records are in \.jsonl files that `mmsbgen db export` wrote"):
        jsonl.read(tmp_path / "links.txt")


def kernel_tuner(cache: Path) -> list[Any]:
    """The results of a tune by kernel_tuner itself."""
    script = Path(__file__).with_name("tune_with_kernel_tuner.py")
    done = subprocess.run([sys.executable, script, cache], capture_output=True, text=True, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout.rpartition("RESULTS ")[2])
    return results


@pytest.mark.opencl
def test_kernel_tuner_goes_on_from_a_cache_of_our_records(tmp_path: Path, make: Any) -> None:
    results = kernel_tuner(tmp_path / "theirs.json")
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    params = {"problem_size": theirs["problem_size"]}
    key = make.key(kernel=theirs["kernel_name"], name=theirs["device_name"], params=params)
    trials = [
        make.trial(
            key,
            config={name: entry[name] for name in theirs["tune_params_keys"]},
            status="launch_error" if "__error__" in entry else "ok",
            time=None if "__error__" in entry else entry["time"] * 1e-3,
        )
        for entry in theirs["cache"].values()
    ]
    ours = tmp_path / "ours.json"
    formats.write(Bundle([make.run], [], trials), ours, "cache")
    again = kernel_tuner(ours)
    assert [(one["block_size_x"], one["width"]) for one in again] == [(r["block_size_x"], r["width"]) for r in results]
    for one, before in zip(again, results, strict=True):
        assert float(one["time"]) == pytest.approx(float(before["time"])), "found in the cache, not measured again"
    assert "cache" in read_cache(str(ours))


def test_our_records_make_a_cache(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    formats.write(bundle, path, "cache")
    text = path.read_text()
    entries = read_cache(str(path), open_cache=False)["cache"]
    assert len(entries) == len(TRIAL_STATUSES)
    assert entries["1,True,RRS"]["time"] == 1500.0, "the finalist's time stands"
    errors = {type(entry["__error__"]).__name__ for entry in entries.values() if "__error__" in entry}
    assert errors == {"InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig"}
    assert sum("__error__" in entry for entry in entries.values()) == len(TRIAL_STATUSES) - 1
    assert path.read_text() == text


def test_a_cache_has_one_key(bundle: Bundle, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite3"
    more = Bundle([make.run], trials=[make.trial(make.key(kernel="other"))])
    with open_store(path) as store:
        store.add_bundle(bundle)
        store.add_bundle(more)
    done = call("--database", path, "export", tmp_path / "c.json")
    assert (done.exit_code, "one kernel, device and problem, here are 2: choose with --kernel" in done.stderr) == (
        2,
        True,
    )
    assert not (tmp_path / "c.json").exists()
    done = call("--database", path, "export", tmp_path / "c.json", "--kernel", "rows/gather")
    assert (done.exit_code, len(read_cache(str(tmp_path / "c.json"))["cache"])) == (0, len(TRIAL_STATUSES))
    call("--database", path, "export", tmp_path / "some.jsonl", "--kernel", "other")
    assert [t.key.kernel.name for t in jsonl.read(tmp_path / "some.jsonl").trials] == ["other"]


def test_malformed_files_change_nothing(bundle: Bundle, tmp_path: Path, make: Any) -> None:
    """Cut anywhere, or of other programs."""
    file, database = tmp_path / "bad.jsonl", tmp_path / "t.sqlite3"
    with open_store(database) as store:
        store.begin_run(make.run)
        store.add_trial(make.trial())
        before = text_of(store.bundle())
    jsonl.write(bundle, tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes().rstrip()
    for size in range(0, len(data) - 3, max(1, len(data) // 97)):
        file.write_bytes(data[:size])
        with pytest.raises(InputError, match=r"bad\.jsonl"):
            jsonl.read(file)
    formats.write(bundle, tmp_path / "cache.json", "cache")
    for one, message in ((file, "bad.jsonl"), (tmp_path / "cache.json", "records are in .jsonl files")):
        done = call("--database", database, "import", one)
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    file.write_text('{"format": NaN}')
    with pytest.raises(InputError, match=r"bad\.jsonl, line 1: NaN is not a number"):
        jsonl.read(file)
    with open_store(database, read_only=True) as store:
        assert text_of(store.bundle()) == before


def test_who_and_where_are_told_only_when_asked(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "t.sqlite3"
    monkeypatch.delenv("MMSBGEN_CONTRIBUTOR", raising=False)
    with open_store(database) as store:
        store.begin_run(make.run)
        assert store.runs() == [make.run]
        monkeypatch.setenv("MMSBGEN_CONTRIBUTOR", "Ada of Analytical Engines")
        store.begin_run(replace(make.run, uuid="f" * 32))
        store.add_trial(make.trial(extra={"where": "here cuda:0"}))
    (named,) = [run for run in json.loads(call("--database", database, "runs", "--json").stdout) if run["who"]]
    assert (named["uuid"], named["who"]) == ("f" * 32, "Ada of Analytical Engines")
    call("--database", database, "export", tmp_path / "plain")
    assert '"here' not in (tmp_path / "plain").read_text()
    assert jsonl.read(tmp_path / "plain").trials[0].extra == {"where": "cuda:0"}
    call("--database", database, "export", tmp_path / "told", "--with-host")
    assert '"here"' in (tmp_path / "told").read_text()
    (run, _) = sorted(jsonl.read(tmp_path / "plain").runs, key=lambda run: run.uuid)
    assert (run.started, run.versions, run.host) == (make.run.started, {"python": "3.11"}, "")
