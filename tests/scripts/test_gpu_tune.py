from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.db.exchange import jsonl
from mmsbgen.families import family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config
from tests.devices import H200

PHI = family().kernel("update_phi")


def test_parts_begin_with_update_phi() -> None:
    script = importlib.import_module("gpu_tune")
    blocks = {"m": 16384, "n": 1024, "products": "half"}
    found = script.parts(
        (128, 256), {"m": 4096, "n": 32, "N": 317080}, 60.0, 15.0, blocks, {"n": 256, "products": "half"}
    )
    assert [(p.kernels[0], p.problem["K"], p.problem["step"], p.problem["noise"]) for p in found[:6]] == [
        ("update_phi", 128, "split", "on"),
        ("update_phi", 256, "split", "on"),
        ("update_phi", 128, "reflected", "off"),
        ("update_phi", 256, "reflected", "off"),
        ("update_phi", 128, "reflected", "on"),
        ("update_phi", 256, "reflected", "on"),
    ]
    stars, blocked, drawing, shared, labelled = found[6:8], found[8:10], found[10:12], found[12:14], found[14:]
    assert {p.seconds / len(p.kernels) for p in found[6:]} == {15.0}
    for p in stars:
        assert "theta_partial" in p.kernels
        assert not any(name.startswith("block_") for name in p.kernels)
    for p in blocked:
        assert {"block_scales", "block_sums", "block_links", "shared_partners", "theta_end"} <= set(p.kernels)
        assert "block_shared" not in p.kernels
        assert (p.problem["m"], p.problem["n"], p.problem["noise"]) == (16384, 1024, "off")
    for p in drawing:
        assert set(p.kernels) == {"block_links", "theta_end"}
        assert (p.problem["m"], p.problem["n"], p.problem["noise"]) == (16384, 1024, "on")
    for p in shared:
        assert p.kernels == ["star_factors", "star_scales", "star_sums", "star_rows", "draw_shared", "star_marks"]
        assert (p.problem["m"], p.problem["n"], p.problem["noise"]) == (4096, 256, "on")
    labelled_kernels = ["star_factors", "star_scales", "star_rows", "star_marks"]
    for p in labelled:
        assert (p.kernels, p.problem["partners"]) == (labelled_kernels, "shared-uniform")
    every = {*stars[0].kernels, *blocked[0].kernels, *shared[0].kernels, *labelled[0].kernels}
    assert every | {"update_phi", "block_shared", "star_shared"} == set(family().tuned)
    assert len(script.parts((128,), {}, 60.0, 0.0, {}, {})) == 3
    assert script.slug(H200) == "nvidia-h200"


def _valid(problem: Problem) -> list[Config]:
    return [c for c in PHI.space.configs(problem, traits_of(H200)) if c["vector_width"] == 4]


def test_a_sweep_has_every_placement_that_is_valid() -> None:
    script = importlib.import_module("gpu_tune")
    found = script.sweep(H200, (128, 2048, 900), {"n": 32}, 5.0)
    assert [tuple(part.problem[name] for name in ("K", "step", "noise")) for part in found] == [
        (128, "split", "on"),
        (2048, "split", "on"),
        (900, "split", "on"),
        (900, "reflected", "off"),
        (900, "reflected", "on"),
    ]
    assert {part.strategy for part in found} == {"exhaustive"}
    assert {(part.fixed["vector_width"], part.fixed["rows_in_flight"]) for part in found} == {(4, 2)}
    (placements,) = (axis.values for axis in PHI.space.axes if axis.name == "placement")
    for part in found[:2]:
        every = {(c["placement"], c["block_size"]) for c in _valid(part.problem) if c["rows_in_flight"] == 2}
        mine = [c for c in _valid(part.problem) if all(c[name] == value for name, value in part.fixed.items())]
        assert {(c["placement"], c["block_size"]) for c in mine} == every
        assert {placement for placement, _ in every} == set(placements)
        assert part.configurations == len(mine)
    (long, *_) = script.sweep(H200, (2**18,), {"n": 32}, 5.0)
    assert "GLOBAL" in {c["placement"] for c in PHI.space.configs(long.problem, traits_of(H200))} < set(placements)


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_the_script_tunes_exports_and_goes_on(scripts: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(scripts / "gpu_tune.py"), "--device", "pocl", "--output", str(tmp_path)]
    command += ["-k", "16", "-N", "2000", "-m", "64", "-n", "4", "--roof-mib", "16", "--seconds", "20", "--trials", "2"]

    def run() -> Any:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        (file,) = tmp_path.glob("portable-*.jsonl")
        return jsonl.read(file)

    bundle = run()
    assert {trial.key.kernel.name for trial in bundle.trials} == {"update_phi"}
    steps = {(trial.key.problem.params["step"], trial.key.problem.params["noise"]) for trial in bundle.trials}
    assert steps == {("split", "on"), ("reflected", "off"), ("reflected", "on")}
    assert {roof.kind for roof in bundle.roofs} == {"copy", "gather"}
    again = run()
    assert [trial.uid for trial in again.trials if trial.round == 0] == [t.uid for t in bundle.trials if t.round == 0]


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_a_sweep_says_what_is_left_and_goes_on(scripts: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(scripts / "gpu_tune.py"), "--device", "pocl", "--output", str(tmp_path)]
    command += ["-k", "16", "-N", "500", "-m", "16", "-n", "4", "--roof-mib", "16", "--sweep-only"]

    def left() -> int:
        asked = [*command, "--sweep-seconds", "2"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=240)
        counts = [int(line.split()[0]) for line in done.stderr.splitlines() if line.endswith("run it again to go on")]
        assert len(counts) == 3
        return sum(counts)

    assert left() > left()


def test_rows_of_16_bits_are_tuned_where_they_are_read() -> None:
    script = importlib.import_module("gpu_tune")
    found = script.parts((128,), {"storage": "bfloat16"}, 60.0, 15.0, {}, {})
    assert {part.problem["storage"] for part in found} == {"bfloat16"}
    assert found[-1].kernels == ["theta_partial", "perplexity_pairs", "init_pi", "gather_rows"]
    assert "rows in bfloat16" in str(found[0])
