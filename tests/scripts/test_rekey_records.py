"""scripts/rekey_records.py: a record keeps its worth where its source is what it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.selection.index import SHIPPED

ROOT = Path(__file__).parents[2]


def run(scripts: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(scripts / "rekey_records.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Three shipped trials of update_phi, and one that says that it is of other templates."""
    every = jsonl.read(SHIPPED / "nvidia-h200.jsonl")
    trials = [trial for trial in every.trials if trial.key.kernel.name == "update_phi"][:4]
    trials = [replace(trial, extra={}) for trial in trials]
    last = trials[-1]
    strange = replace(last.key.kernel, template_digest="0" * 16)
    trials[-1] = replace(last, key=replace(last.key, kernel=strange))
    runs = {trial.run for trial in trials}
    path = tmp_path / "records.jsonl"
    jsonl.write(Bundle(runs=[run for run in every.runs if run.uuid in runs], trials=trials), path)
    return path


def stated(earlier: Path, text: str, records: Path, tmp_path: Path) -> Path:
    """A copy of the project whose step has ``text`` too, and the records as of its templates."""
    shutil.copytree(ROOT / "mmsbgen", earlier / "mmsbgen", ignore=shutil.ignore_patterns("__pycache__"))
    template = earlier / "mmsbgen" / "templates" / "mmsb" / "rows" / "step.jinja"
    template.write_text(template.read_text() + text)
    asked = "from mmsbgen.families import family; from mmsbgen.kernels.render import template_digest; "
    asked += "print(template_digest(family('mmsb').kernel('update_phi').template, 'cuda'))"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=earlier, env=os.environ | {"PYTHONPATH": str(earlier)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    bundle, digest = jsonl.read(records), done.stdout.strip()
    assert digest != bundle.trials[0].key.kernel.template_digest
    trials = [
        replace(trial, key=replace(trial.key, kernel=replace(trial.key.kernel, template_digest=digest)))
        if trial.key.kernel.template_digest != "0" * 16
        else trial
        for trial in bundle.trials
    ]
    path = tmp_path / "earlier.jsonl"
    jsonl.write(Bundle(runs=bundle.runs, trials=trials), path)
    return path


def test_a_comment_of_a_template_changes_no_source(scripts: Path, records: Path, tmp_path: Path) -> None:
    earlier, output = tmp_path / "earlier", tmp_path / "now.jsonl"
    path = stated(earlier, "{# For readers. #}\n", records, tmp_path)
    done = run(scripts, str(path), "--earlier", str(earlier), "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "3 of 4 trials have the same source today" in done.stdout
    assert "1 left out of other templates than the checkout's" in done.stdout
    found, now = jsonl.read(output).trials, jsonl.read(records).trials
    assert {trial.key.kernel.template_digest for trial in found} == {now[0].key.kernel.template_digest}
    assert {trial.extra["measured_under"] for trial in found} == {jsonl.read(path).trials[0].key.kernel.template_digest}


def test_another_statement_is_another_source(scripts: Path, records: Path, tmp_path: Path) -> None:
    earlier, output = tmp_path / "earlier", tmp_path / "now.jsonl"
    path = stated(earlier, "/* Another word. */\n", records, tmp_path)
    done = run(scripts, str(path), "--earlier", str(earlier), "--output", str(output))
    assert "0 of 4 trials have the same source today" in done.stdout
    assert "3 left out whose source changed" in done.stdout


def test_a_folder_that_is_no_checkout(scripts: Path, records: Path, tmp_path: Path) -> None:
    """Without a package of its own the earlier state would be today's."""
    output = tmp_path / "now.jsonl"
    done = run(scripts, str(records), "--earlier", str(tmp_path), "--output", str(output))
    assert done.returncode == 2
    assert "has no mmsbgen" in done.stderr
    assert not output.exists()
