"""Files that hold no records, and what exports leave out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mmsbgen.base.errors import InputError
from mmsbgen.cli.db.commands import db
from mmsbgen.db.exchange import jsonl
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
    (tmp_path / "other.json").write_text('{"device_name": "H200",\n"cache": {}}')
    for one, message in ((file, "bad.jsonl"), (tmp_path / "other.json", "records are in .jsonl files")):
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
