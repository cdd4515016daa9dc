from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from mmsbgen.db.exchange.jsonl import Bundle, write
from mmsbgen.db.records.tuning_records import ProblemRecord
from mmsbgen.report.style import drawing
from tests.records import GPU, RUN, trial

REPORTS = Path(__file__).parents[2] / "docs" / "reports"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return importlib.import_module("figures")


def test_the_baseline_is_the_median_over_devices(figures: ModuleType, tmp_path: Path) -> None:
    times = {f"opencl:{i}": {"baseline": {"median_s": s}, "1": {"median_s": 0.01}} for i, s in enumerate((0.2, 0.1))}
    report = {"times": {"update_phi": times}, "problem": {"K": 8}, "environment": {"processor": "EPYC"}}
    tmp_path.joinpath("paper_cpu.json").write_text(json.dumps(report))
    found = figures.by_size.read_baseline(tmp_path / "paper_cpu.json", "update_phi")
    assert found == (pytest.approx(0.15), {"K": 8}, "EPYC")


def _called(figures: ModuleType, *arguments: object) -> Any:
    return CliRunner().invoke(figures.main, list(map(str, arguments)), catch_exceptions=False)


def test_the_sweep_figures_have_the_fastest_of_each_value(figures: ModuleType) -> None:
    plain_c = figures.by_size.read_baseline(REPORTS / "paper_cpu.json", "update_phi")
    every = figures.cases_in([str(REPORTS / "tuning-cpu.jsonl.gz")])
    with drawing():
        pictures = {one.name: one for one in figures.pictures_of(every, 1024, plain_c)}
    cases = [case for case in every if case.size == 1024]
    (intel,) = [case for case in cases if "Intel" in case.label]
    rolled, unrolled = pictures["block-size-amd-epyc-2-cores-intel-opencl"].figure.axes
    assert rolled.get_xlabel() == unrolled.get_xlabel() == "block size (work-items)"
    assert rolled.get_ylabel() == "time of a call (ms)"
    fastest = intel.fastest_by("placement", "block_size")
    for axes in (rolled, unrolled):
        for line in axes.lines:
            if line.get_label() != "bytes at the roof":
                for block, ms in zip(*line.get_data(), strict=True):
                    assert fastest.pop((line.get_label(), block)) * 1e3 == pytest.approx(ms)
    assert not fastest, "every placement and block size is drawn"
    widths = pictures["vector-width"].figure.axes[0]
    assert widths.get_xlabel() == "vector width (elements)"
    bars = pictures["speed-up"].figure.axes[0].patches
    assert sorted(bar.get_width() for bar in bars) == pytest.approx(sorted(plain_c.seconds / c.best_s for c in cases))


def test_one_command_makes_pictures_and_their_page(figures: ModuleType, tmp_path: Path) -> None:
    trials = [
        trial(1e-4 * (1 + block / 1000) * k / 128 / width, k=k, step=step, block_size=block, vector_width=width)
        for k in (128, 1024)
        for step in ("split", "reflected")
        for block in (64, 96, 128)
        for width in (1, 4)
    ]
    other = trial(1.0)  # another size of mini-batch is not put beside the others
    other = replace(other, key=replace(other.key, problem=ProblemRecord("mmsb", {**other.key.problem.params, "m": 7})))
    write(Bundle(runs=[RUN], trials=[*trials, other]), tmp_path / "h200.jsonl")
    done = _called(figures, "--database", tmp_path / "h200.jsonl", "--output", tmp_path / "docs" / "pictures")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "docs" / "pictures.md").read_text()
    made = sorted(path.name for path in (tmp_path / "docs" / "pictures").iterdir())
    assert made == [
        "best-default-worst.png",
        "block-size-nvidia-h200.png",
        "roof.png",
        "speed-up.png",
        "vector-width.png",
    ]
    for name in made:
        assert (tmp_path / "docs" / "pictures" / name).read_bytes().startswith(b"\x89PNG")
        assert f"(pictures/{name})" in page
    assert "NVIDIA H200: driver 580, 24 configurations at K = 128, 1024, 2026-11-20" in page


def test_the_same_records_give_the_same_bytes(scripts: Path, tmp_path: Path) -> None:
    """In every picture and on the page, in another process and with the sources the other way round."""
    other = replace(GPU, backend="opencl", platform="NVIDIA CUDA")
    for name, device in (("cuda", GPU), ("opencl", other)):
        trials = [
            trial(1e-4 * (1 + block / 1000) * k / 128 / width, k=k, step=step, device=device, **config)
            for k in (128, 1024)
            for step in ("split", "reflected")
            for block in range(32, 32 * 51, 32)
            for width in (1, 4)
            for config in ({"block_size": block, "vector_width": width},)
        ]
        write(Bundle(runs=[RUN], trials=trials), tmp_path / f"{name}.jsonl")
    made = []
    for seed, order in (("1", ("cuda", "opencl")), ("2", ("opencl", "cuda"))):
        folder = tmp_path / seed / "figures"
        command = [sys.executable, str(scripts / "figures.py"), "--output", str(folder)]
        for name in order:
            command += ["--database", str(tmp_path / f"{name}.jsonl")]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed})
        pictures = {path.name: path.read_bytes() for path in folder.iterdir()}
        made.append(pictures | {"page": folder.with_suffix(".md").read_bytes()})
    one, two = made
    assert one.keys() == two.keys() >= {"best-default-worst.png", "roof.png", "speed-up.png", "vector-width.png"}
    assert [name for name in one if one[name] != two[name]] == []


def test_without_a_baseline_or_records(figures: ModuleType, tmp_path: Path) -> None:
    write(Bundle(runs=[RUN], trials=[trial(1e-4)]), tmp_path / "one.jsonl")
    arguments = ("--output", tmp_path / "f", "--baseline", tmp_path / "none.json")
    assert _called(figures, "--database", tmp_path / "one.jsonl", *arguments).exit_code == 0
    assert not (tmp_path / "f" / "speed-up.png").exists()
    assert not (tmp_path / "f" / "vector-width.png").exists(), "one width is no comparison"
    missing = _called(figures, "--database", tmp_path / "none.sqlite3", *arguments)
    assert (missing.exit_code, "there is no tuning database at" in missing.output) == (1, True)
    write(Bundle(), tmp_path / "empty.jsonl")
    assert "tune first" in _called(figures, "--database", tmp_path / "empty.jsonl", *arguments).output
