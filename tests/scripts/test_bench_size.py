"""The benchmark of large states, with small ones: what it reports, what fails, and what it refuses."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.sampler.chain.plan import Plan
from tests.conftest import open_or_skip
from tests.devices import H200

OFFSETS = [2**15, 2**16]


@pytest.fixture(scope="module")
def size(scripts: Path) -> ModuleType:
    sys.path.insert(0, str(scripts / "bench"))
    return importlib.import_module("bench_size")


@pytest.fixture
def given() -> argparse.Namespace:
    return argparse.Namespace(m=100, n=8, seed=1)


def _call(scripts: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(scripts / "bench" / "bench_size.py"), "--device", "pocl", "-m", "200", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.opencl
def test_small_chains_have_rows_beyond_small_offsets(scripts: Path, tmp_path: Path) -> None:
    open_or_skip("pocl").close()
    arguments = ["-N", "2000", "-k", "48", "--count", "8", "--repetitions", "2", "--output", str(tmp_path)]
    arguments += [word for offset in OFFSETS for word in ("--offset", str(offset))]
    done = _call(scripts, *arguments, "--refused-k", str(2**24))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "size.json").read_text())
    assert [one["way"] for one in data["results"]] == ["block", "random-node"]
    for one in data["results"]:
        assert one["failed"] == ""
        assert one["state_bytes"] > 4 * one["elements"] == 4 * 2000 * 48
        assert one["vertices_beyond"] == [2000 - -(-offset // 48) for offset in OFFSETS]
        seen = one["updates"]
        assert seen["iterations"] >= 4
        assert seen["rows"] >= seen["read"][0] > seen["read"][1] > 0
        assert 0 < max(seen["worst_sum"], one["worst_sum"]) < 1e-5
        assert len(one["iteration"]["times_s"]) == 2
        assert one["vertices_of_an_iteration"] <= 201
        assert one["start_rows"] > 10
    assert "reference" not in data["results"][0]
    against = data["results"][1]["reference"]
    assert against["rows"] == 32
    assert against["partners"][0] > against["partners"][1] > 0
    refused = data["refused"]
    assert "does not fit: it needs" in refused["said"]
    assert refused["allocated_before"] == refused["allocated_after"] == 0
    page = (tmp_path / "size.md").read_text()
    assert "| K = 48, random-node |" in page
    assert "vertices beyond 2^15" in page
    assert refused["said"] in page


@pytest.mark.opencl
def test_what_is_not_refused_or_makes_no_sense_is_told(scripts: Path, tmp_path: Path) -> None:
    open_or_skip("pocl").close()
    arguments = ["-N", "500", "-k", "5", "--count", "2", "--repetitions", "1", "--output", str(tmp_path)]
    done = _call(scripts, *arguments, "--refused-k", "6", "--offset", "2000")
    assert done.returncode == 1, done.stderr
    assert "Failed: K = 6 was not refused." in (tmp_path / "size.md").read_text()
    for wrong in (["-N", "2"], ["--looks", "0"], ["-k", "0"], ["--device", "cuda:99"], ["-k", str(2**24)]):
        refused = _call(scripts, *arguments, *wrong)
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr
        assert "error: " in refused.stderr


@pytest.mark.opencl
@pytest.mark.parametrize("mini_batch", ["block", "random-node"])
def test_checks_find_what_is_wrong(
    size: ModuleType, pocl_device: Any, given: argparse.Namespace, mini_batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, way = size.random_graph(2000, 10.0, 1), size.Way(mini_batch, False)
    with size.chain(pocl_device, parts, size.options_of(48, mini_batch, given), None, fused=way.fused) as sampler:
        assert size.check_start(sampler, OFFSETS) > 10
        assert size.check_updates(sampler, OFFSETS, 2).iterations >= 2
        size.check_all_rows(sampler)
        with monkeypatch.context() as stuck:
            stuck.setattr(sampler, "advance", lambda most: 1)
            with pytest.raises(size.CheckError, match="rows of a mini-batch stayed"):
                size.check_updates(sampler, OFFSETS, 1)
        spoilt = np.full((1, sampler.shape.row), 0.5, np.float32)
        at = pocl_device.download(sampler.values["slots"])[1999]
        with monkeypatch.context() as wild:
            advance = sampler.advance

            def overwrite(most: int) -> int:
                made: int = advance(most)
                pocl_device.write(sampler.values["pi"], spoilt, at)
                return made

            wild.setattr(sampler, "advance", overwrite)
            with pytest.raises(size.CheckError, match="changed|sum to"):
                size.check_updates(sampler, OFFSETS, 8)
        with pytest.raises(size.CheckError, match="rows sum to 1 to 24"):
            size.check_all_rows(sampler)
        with pytest.raises(size.CheckError, match=r"not the reference's: vertices \[.*1999"):
            size.check_start(sampler, OFFSETS)


@pytest.mark.opencl
def test_rows_of_other_partners_are_not_the_references(
    size: ModuleType, pocl_device: Any, given: argparse.Namespace
) -> None:
    parts, way = size.random_graph(2000, 10.0, 1), size.Way("random-node", False)
    with size.chain(pocl_device, parts, size.options_of(48, "random-node", given), None, fused=way.fused) as sampler:
        assert size.check_reference(sampler, OFFSETS).flipped <= 1
        sampler.rule = dataclasses.replace(sampler.rule, seed=2)
        with pytest.raises(size.CheckError, match="32 of 32 rows of a star are not the reference's"):
            size.check_reference(sampler, OFFSETS)


def test_the_size_that_is_to_be_refused_is_too_large_for_an_h200(size: ModuleType, given: argparse.Namespace) -> None:
    """By the numbers alone: the state grows with the vertices, of which there are fewer here."""
    parts, options = size.random_graph(4000, 10.0, 1), size.options_of(16384, "block", given)
    needs = Plan(parts, options, H200).needs
    assert 1000 * needs.device["pi"] > H200.global_memory
    with pytest.raises(DeviceMemoryError, match="does not fit"):
        Plan(parts, options, H200).require(used=H200.global_memory)


def test_offsets_by_name(size: ModuleType) -> None:
    checks = importlib.import_module("_size_checks")
    assert [size.name_of(offset) for offset in (2**31, 2**32, 1000)] == ["2^31", "2^32", "1000"]
    with pytest.raises(size.CheckError, match="rows sum to nan"):
        checks.check_sums(np.array([[0.5, 0.5], [np.nan, 1.0]], np.float32))
    with pytest.raises(size.CheckError, match="the least element is -1"):
        checks.check_sums(np.array([[2.0, -1.0]], np.float32))
