"""Tuned configurations against the defaults in whole sweeps."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.cli.printing.graph_tuning import GraphTuning, sentence
from mmsbgen.cli.shared.graph_problem import GraphRun
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import load_graph
from mmsbgen.kernels.build import build, release, traits_of, upload
from mmsbgen.kernels.complete import complete
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.runtime import look_up
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.chain.chain_problem import problem_of, split_of
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.graph_chain import ChainGain, GraphChain
from mmsbgen.tuner.run.tuning_report import KernelReport, TuneReport
from mmsbgen.tuner.search.candidates import candidates

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
K = 24
KERNEL = "block_shared"


def slow(problem: Problem, device: Device) -> Config:
    """A configuration in which a work-group shares out each row to many work-items, which processors do badly."""
    given = {"team": "block", "block_size": 32, "vector_width": 1}
    return complete(MMSB.kernel(KERNEL), problem, traits_of(device.info), given).config


def trial(run: RunRecord, problem: Problem, device: Device, config: Config, seconds: float) -> TrialRecord:
    key = key_of(device.info, MMSB.kernel(KERNEL), problem)
    extra = {"program": program_digest(MMSB, key, config)}
    return TrialRecord(run=run.uuid, key=key, config=dict(config), status="ok", times=(seconds,), extra=extra)


def test_a_configuration_that_wins_alone_and_loses_in_the_chain_is_not_used(processor: Device, tmp_path: Path) -> None:
    options = Options(n_communities=K)
    parts = split_of(load_graph(GRAPH), options)
    problem = problem_of(parts, options, processor.info)
    assert KERNEL in MMSB.worth_tuning(problem)
    default = MMSB.kernel(KERNEL).default(problem, traits_of(processor.info))
    bad, run = slow(problem, processor), RunRecord(strategy="default", host="here")
    trials = [trial(run, problem, processor, bad, 1e-6), trial(run, problem, processor, default, 1e-3)]
    space = candidates(MMSB.kernel(KERNEL), problem, traits_of(processor.info), {"team": bad["team"]})
    kernel = KernelReport(KERNEL, trials[0].key, space, trials[1].config_digest, None, None, trials=trials)
    report = TuneReport(run.uuid, processor.info, kernels=[kernel])

    def selected(store: Store) -> Config:
        return look_up(Index(store), processor.info, MMSB, KERNEL, problem).config

    with open_store(tmp_path / "tuning.sqlite3") as store:
        store.add_bundle(Bundle([run], [], trials))
        assert selected(store) == bad
        tuning = GraphTuning(GraphRun(parts, options), {"budget_seconds": None, "objective": "time"}, 0.0)
        gain = tuning.gain(report, store)
        assert isinstance(gain, ChainGain)
        assert gain.slower, gain
        assert len(gain.default) == len(gain.tuned) >= 5
        assert selected(store) == default
    assert sentence(gain).endswith("so the defaults stay in use")


def test_defaults_that_won_are_not_compared(processor: Device, tmp_path: Path) -> None:
    words = ["tune", "--graph", str(GRAPH), "-k", str(K), "--kernel", "update_beta", "--budget-trials", "1"]
    words += ["--device", processor.info.spec, "--database", str(tmp_path / "tuning.sqlite3"), "--json"]
    words += ["--roof-mib", "16"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sweep"] is None


def test_what_lies_within_the_noise_is_no_gain() -> None:
    assert sentence(ChainGain((1.0, 1.0, 1.0), (0.9, 1.1, 1.0))).endswith("so they cannot be told apart")
    assert sentence(ChainGain((2.0, 2.0, 2.0), (1.0, 1.1, 1.0))).endswith("1e+02 s less in 100 sweeps")
    noisy = ChainGain((1.0, 3.0, 2.0), (0.9, 1.0, 1.6))
    assert "takes 1 s, by the defaults 2 s: 2.00x (1.11 to 3.00 in 3 turns)" in sentence(noisy)
    assert noisy.as_dict()["ratio"] == 2.0
    assert sentence(ChainGain((2.0, 2.0), (1.0, 1.0))).endswith("there was no time to compare with the defaults")


def test_ratios_are_those_of_turns() -> None:
    gain = ChainGain((2.0, 3.0, 4.0), (1.0, 2.0, 8.0))
    assert gain.ratios == [2.0, 1.5, 0.5]
    assert gain.as_dict()["ratio"] == 1.5
    assert not gain.slower
    assert ChainGain((1.0,) * 5, (1.1, 2.0, 1.2, 1.1, 1.01)).slower
    assert not ChainGain((1.0,) * 5, (1.1, 2.0, 1.2, 1.1, 0.99)).slower
    assert not ChainGain((1.0,) * 4, (1.1, 2.0, 1.2, 1.1)).slower


@pytest.mark.parametrize("budget", [5.0, 19.9, 20.0, 60.0])
def test_search_and_chains_share_the_budget(budget: float) -> None:
    parts = split_of(load_graph(GRAPH), Options(n_communities=K))
    options = {"budget_seconds": budget, "objective": "time"}
    with GraphTuning(GraphRun(parts, Options(n_communities=K)), options, time.monotonic()).recorded(
        None, options
    ) as file:
        assert file is None, "rows of few communities are dense"
    most = budget if budget < 20.0 else 0.85 * budget
    assert most - 1.0 < options["budget_seconds"] <= most


def test_sparse_rows_are_measured_on_the_state_of_a_chain(processor: Device, tmp_path: Path) -> None:
    """The workload has the graph's own links and rows, and the kernel is right on them."""
    options, file = Options(n_communities=300), tmp_path / "state.npz"
    parts = split_of(load_graph(GRAPH), options)
    problem = problem_of(parts, options, processor.info)
    assert GraphChain(parts, options).record(processor.info.spec, file, seconds=5.0)
    spec = MMSB.kernel("sparse_rows")
    workload = MMSB.dataset(file).workload("sparse_rows", problem, 1)
    assert workload.arguments.keys() == spec.workload(problem, 1).arguments.keys()
    assert np.array_equal(workload.arguments["neighbours"], parts.training_adjacency.neighbours)
    assert workload.arguments["least_pi"] == 0.0, "as in a run on it"
    shares = workload.arguments["values"].sum(axis=1)
    assert shares.min() > 0.5
    config = spec.default(problem, traits_of(processor.info))
    bound, placed = build(processor, spec, problem, config), upload(processor, workload)
    bound.launch(workload.count, placed).wait()
    got = {name: processor.download(placed[name]) for name in spec.written}
    release(placed)
    assert workload.verify(got, config) is None
    other = MMSB.dataset(file).workload("theta_end", problem, 1)
    assert other.arguments.keys() == MMSB.kernel("theta_end").workload(problem, 1).arguments.keys()
