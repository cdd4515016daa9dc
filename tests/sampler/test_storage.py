"""Chains whose rows are stored in 16 bits: what goes in and out of them, and the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mmsbgen.cli import main
from mmsbgen.families.mmsb.numbers.storage import storage_named
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.sampler.diagnostics.evaluation import evaluate
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.starts.start_methods import of_sets
from tests.devices import PROCESSOR

NARROW = ["bfloat16", "float16"]
GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"


@pytest.mark.parametrize("storage", NARROW)
def test_a_start_is_rounded_and_read_as_it_is_stored(processor, chain, middling, storage):
    """Rows of sets and drawn ones lie within a step of what they should be, with no drift of their sums."""
    sampler = chain(processor, middling, storage=storage, n_communities=37)
    start = of_sets("communities", [np.arange(20), np.arange(15, 40)])
    sampler.initialise(start)
    rows, sums = sampler.rows(0, 60)
    wanted = equations.initial_rows(sampler.options.seed, np.arange(60), 37)[0]
    vertices, placed = start.rows(0, 60, sampler.shape)
    wanted[vertices] = placed[:, :37]
    type_ = storage_named(storage)
    assert rows.dtype == np.float32
    assert np.all(np.abs(rows - wanted) <= type_.step * wanted + 1e-11)
    # Independent errors of mean 0 and at most half a step of standard deviation.
    assert abs((rows - wanted).sum()) < 5 * type_.step / 2 * np.sqrt((wanted**2).sum())
    assert not np.array_equal(rows, wanted.astype(np.float32))
    assert np.all(sums == 1.0)
    assert np.array_equal(type_.values(type_.nearest(rows)), rows)


@pytest.mark.parametrize("storage", NARROW)
def test_rows_are_read_one_way_or_the_other(processor, chain, middling, storage):
    """The mean over samples is of reals, the state is not; both by range and by any vertices."""
    sampler = chain(processor, middling, storage=storage, iterations=12, burn_in=0.3, average=True)
    sampler.initialise()
    seen = np.zeros((60, 5))
    for _ in range(4):
        sampler.step()
        sampler.accumulate()
        seen += sampler.rows(0, 60)[0]
    vertices = np.array([59, 3, 17, 3])
    assert np.allclose(sampler.rows(0, 60, mean=True)[0], seen / 4, rtol=4 * 2.0**-23, atol=0)
    assert np.array_equal(row_source(sampler)(vertices), sampler.rows(0, 60, mean=True)[0][vertices])
    assert np.array_equal(row_source(sampler, mean=False)(vertices), sampler.rows(0, 60)[0][vertices])


@pytest.mark.parametrize("storage", NARROW)
def test_strengths_near_1_leave_numbers(processor, chain, middling, storage):
    """Rows that add up to more than 1 where beta is next to 1: no pair has a probability above 1."""
    sampler = chain(processor, middling, storage=storage, n_communities=3)
    sampler.initialise()
    rows = np.tile([1.0, 2.0**-9, 2.0**-10], (60, 1))
    sampler.state.replace_rows(np.arange(60), rows)
    sampler.set_theta(np.tile([[1e-9], [1.0]], 3))
    metrics, _ = evaluate(sampler, burnt_in=False)
    assert np.isfinite(metrics.log_likelihood)
    for _ in range(5):
        sampler.step()
    after, sums = sampler.rows(0, 60)
    assert np.all(np.isfinite(sums))
    assert np.abs(after.sum(axis=1) - 1).max() < 0.01


@pytest.mark.opencl
def test_from_the_command_line_and_on_from_a_checkpoint(tmp_path):
    """Stopped at 40 of 80 iterations and gone on with, or at once: the same memberships bit for bit."""

    def detect(*args: object, code: int = 0) -> str:
        words = ["detect", str(GRAPH), "--device", PROCESSOR, "--evaluate-every", "20", *map(str, args)]
        found = CliRunner().invoke(main, words)
        assert found.exit_code == code, found.output
        return found.output + found.stderr

    storage = "bfloat16"
    chosen = ("-k", 20, "--mini-batch", "random-node", "--storage", storage)
    detect(*chosen, "-n", 40, "--checkpoint", "-o", tmp_path / "part")
    with np.load(tmp_path / "part" / "checkpoint.npz") as archive:
        assert (archive["pi"].dtype, archive["pi"].shape[1]) == (np.uint16, 20)
    assert "bit for bit" in detect("--resume", tmp_path / "part" / "checkpoint.npz", "-n", 80, "-o", tmp_path / "rest")
    detect(*chosen, "-n", 80, "-o", tmp_path / "whole")
    with (
        np.load(tmp_path / "rest" / "memberships.npz") as rest,
        np.load(tmp_path / "whole" / "memberships.npz") as whole,
    ):
        # Draws begin at half of the shorter run, as its means do: that is an evaluation earlier.
        by_draw = {name for name in whole.files if name.startswith("draws_")} - {"draws_pairs", "draws_links"}
        assert (rest["draws_iterations"].tolist(), len(by_draw)) == ([20, 40, 60, 80], 5)
        for name in whole.files:
            assert np.array_equal(rest[name][1:] if name in by_draw else rest[name], whole[name]), name
    for wrong, what in [((), "does not go with 'block' mini-batches"), (("--dtype", "float64"), "does not go with")]:
        assert what in detect("-k", 20, "--storage", storage, *wrong, "-o", tmp_path / "none", code=2)
    assert not (tmp_path / "none").exists()
