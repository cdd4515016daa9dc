"""From a tune on a device to a run on it that uses what was found."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune

#: Two cliques of 20 and a few links between them.
LINKS = [(a, b) for first in (0, 20) for a in range(first, first + 20) for b in range(a + 1, first + 20)]
LINKS += [(a, a + 20) for a in range(0, 20, 5)]


def run_of(folder: Path, device: Device, database: Path) -> dict[str, Any]:
    """``run.json`` of a short default run on the device."""
    graph, out = folder / "graph.txt", folder / f"run-{database.stem}"
    np.savetxt(graph, LINKS, fmt="%d")
    words = ["detect", graph, "-k", 2, "--iterations", 4, "--out", out]
    words += ["--device", device.info.spec, "--database", database]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return dict(json.loads((out / "run.json").read_text()))


@pytest.mark.slow
def test_a_run_takes_what_a_tune_of_its_problem_found(processor: Device, tmp_path: Path) -> None:
    untuned = run_of(tmp_path, processor, tmp_path / "none.sqlite3")
    assert {kernel["tier"] for kernel in untuned["kernels"]} == {"default"}
    names = [kernel["kernel"] for kernel in untuned["kernels"]]
    assert {"block_shared", "block_links"} <= set(names)
    problem = MMSB.problem(**untuned["problem"])
    database = tmp_path / "tuned.sqlite3"
    hasty = Patience(repetitions=3, enough_s=0.0)
    with open_store(database) as store:
        report = tune(
            processor.info.spec,
            MMSB,
            names,
            problem,
            store=store,
            budget_trials=2,
            patience=hasty,
            roof_bytes=16 << 20,
        )
    assert report.status == "finished"
    found = {kernel.kernel: kernel.best for kernel in report.kernels}
    tuned = {kernel["kernel"]: kernel for kernel in run_of(tmp_path, processor, database)["kernels"]}
    assert set(tuned) == set(names) == set(found)
    for name, kernel in tuned.items():
        best, modes = found[name], MMSB.kernel(name).modes
        assert best is not None
        assert kernel["tier"] == "exact", kernel["reason"]
        assert {axis: kernel["config"][axis] for axis in kernel["config"] if axis not in modes} == {
            axis: best.config[axis] for axis in best.config if axis not in modes
        }
