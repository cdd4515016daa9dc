"""Tuned configurations against the defaults in whole sweeps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.cli.shared.graph_problem import GraphRun
from mmsbgen.cli.tune import _gain, _told, _with_comparison
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import load_graph
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.complete import complete
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.runtime import look_up
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.chain.chain_problem import problem_of, split_of
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.chain_gain import ChainGain
from mmsbgen.tuner.run.tuning_report import KernelReport, TuneReport
from mmsbgen.tuner.search.candidates import candidates

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
K = 24
KERNEL = "block_shared"


def slow(problem: Problem, device: Device) -> Config:
    """A configuration in which a work-group shares out each row to many work-items, which processors do badly."""
    given = {"team": "block", "block_size": 32, "vector_width": 1}
    return complete(MMSB.kernel(KERNEL), problem, [traits_of(device.info)], given).config


def trial(run: RunRecord, problem: Problem, device: Device, config: Config, seconds: float) -> TrialRecord:
    key = key_of(device.info, MMSB.kernel(KERNEL), problem)
    extra = {"program": program_digest(MMSB, key, config)}
    return TrialRecord(run=run.uuid, key=key, config=dict(config), status="ok", times=(seconds,), extra=extra)


def test_a_configuration_that_wins_alone_and_loses_in_the_chain_is_not_used(
    pocl_device: Device, tmp_path: Path
) -> None:
    options = Options(n_communities=K)
    parts = split_of(load_graph(GRAPH), options)
    problem = problem_of(parts, options, pocl_device.info)
    assert KERNEL in MMSB.worth_tuning(problem)
    default = MMSB.kernel(KERNEL).default(problem, traits_of(pocl_device.info))
    bad, run = slow(problem, pocl_device), RunRecord(strategy="default", host="here")
    trials = [trial(run, problem, pocl_device, bad, 1e-6), trial(run, problem, pocl_device, default, 1e-3)]
    space = candidates(MMSB.kernel(KERNEL), problem, traits_of(pocl_device.info), {"team": bad["team"]})
    kernel = KernelReport(KERNEL, trials[0].key, space, trials[1].config_digest, None, None, trials=trials)
    report = TuneReport(run.uuid, pocl_device.info, kernels=[kernel])

    def selected(store: Store) -> Config:
        return look_up(Index(store), pocl_device.info, MMSB, KERNEL, problem).config

    with open_store(tmp_path / "tuning.sqlite3") as store:
        store.add_bundle(Bundle([run], [], trials))
        assert selected(store) == bad
        gain = _gain(GraphRun(parts, options), report, store, seconds=30.0)
        assert isinstance(gain, ChainGain)
        assert gain.slower, gain
        assert len(gain.default) == len(gain.tuned) >= 2
        assert selected(store) == default
    assert _told(gain).endswith("so the defaults stay in use")


def test_defaults_that_won_are_not_compared(pocl_device: Device, tmp_path: Path) -> None:
    words = ["tune", "--graph", str(GRAPH), "-k", str(K), "--kernel", "update_beta", "--budget-trials", "1"]
    words += ["--device", pocl_device.info.spec, "--database", str(tmp_path / "tuning.sqlite3"), "--json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sweep"] is None


def test_ratios_are_those_of_turns() -> None:
    gain = ChainGain((2.0, 3.0, 4.0), (1.0, 2.0, 8.0))
    assert gain.ratios == [2.0, 1.5, 0.5]
    assert gain.as_dict()["ratio"] == 1.5
    assert not gain.slower
    assert ChainGain((1.0, 1.0), (1.1, 2.0)).slower


@pytest.mark.parametrize("budget", [None, 5.0, 19.9, 20.0, 60.0, 600.0])
def test_search_and_comparison_share_the_budget(budget: float | None) -> None:
    search, compare = _with_comparison(budget)
    assert (search is None) if budget is None else math.isclose((search or 0.0) + compare, budget)
    assert 0 <= compare <= 10.0
    assert (compare > 0) == (budget is None or budget >= 20.0)
