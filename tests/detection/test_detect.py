"""Detection from Python and from the command line: inputs, outputs, refusals."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import re
import shlex
import subprocess
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import scipy.sparse

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import listening
from mmsbgen.cli.printing.run_summary import summary
from mmsbgen.detection import detect
from mmsbgen.detection.run_chains import _progress_note
from mmsbgen.graph import load_edge_list
from mmsbgen.sampler.chain.sampler import Sampler
from tests.detection.detections import FAST, RING, cli
from tests.devices import PROCESSOR
from tests.disks import MMSBGEN

pytestmark = pytest.mark.opencl


def test_all_inputs_give_the_same_chain_and_their_own_ids(ring):
    pairs = np.array(RING)
    arcs = scipy.sparse.coo_array((np.ones(len(RING)), tuple(pairs.T)), shape=(30, 30))
    matrix = arcs + arcs.T
    graph = networkx.Graph()
    graph.add_nodes_from(range(30))
    graph.add_edges_from(RING)
    named = networkx.relabel_nodes(graph, {v: ("node", v) for v in range(30)})
    found = [
        mmsbgen.detect(source, n_communities=3, random_state=7, **FAST) for source in (pairs, matrix, graph, named)
    ]
    for other in found[1:]:
        assert np.array_equal(other.memberships.values, found[0].memberships.values)
        assert np.array_equal(other.memberships.beta, found[0].memberships.beta)
    assert [c for c in found[3].communities] == [[("node", v) for v in c] for c in found[0].communities]
    assert sorted({v for c in mmsbgen.detect(ring, 3, **FAST).communities for v in c}) <= sorted(
        f"v{v}" for v in range(30)
    )
    assert found[0].memberships.dense().sum(axis=1) == pytest.approx(np.ones(30), abs=1e-5)
    other = mmsbgen.detect(pairs, 3, random_state=8, **FAST)
    assert not np.array_equal(other.memberships.values, found[0].memberships.values)


def test_files(ring, tmp_path):
    out = tmp_path / "out"
    cli(ring, "-k", 5, "-n", 30, "-o", out, "--top", 2, "--rule", "threshold", "--threshold", 0.1)
    assert sorted(p.name for p in out.iterdir()) == ["communities.txt", "memberships.npz", "run.json"]
    with np.load(out / "memberships.npz", allow_pickle=False) as archive:
        assert sorted(archive) == [
            "beta", "calibration", "codes", "columns", "communities", "ids", "rest", "shares", "spread", "unlinked",
        ]  # fmt: skip
        np.testing.assert_allclose(archive["rest"] + archive["shares"].sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(archive["spread"].sum(), archive["rest"].sum(), rtol=1e-4)
        assert archive["communities"].shape == archive["shares"].shape == (30, 2)
        ids, top, shares = archive["ids"].tolist(), archive["communities"], archive["shares"]
        assert archive["beta"].shape == (5,)
    assert sorted(ids) == sorted(f"v{a}" for a in range(30))
    assert np.all(shares[:, 0] >= shares[:, 1])
    record = json.loads((out / "run.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    lines = [line.split("\t") for line in (out / "communities.txt").read_text().splitlines()]
    assert [len(line) for line in lines] == record["communities"]["sizes"]
    assert {v for line in lines for v in line} <= set(ids)
    of_top = {(ids[v], int(top[v, r])) for v in range(30) for r in range(2) if shares[v, r] > 0.1}
    assert sum(map(len, lines)) >= len(of_top), "the rule sees more entries than are kept"
    for name in (
        "graph",
        "problem",
        "seed",
        "kernels",
        "trace",
        "stage_seconds",
        "device",
        "versions",
        "options",
        "rule",
    ):
        assert record[name] not in (None, {}, []) or name == "seed", name
    assert {"python", "numpy", "networkit", "pyopencl"} == record["versions"].keys()
    assert record["versions"]["networkit"] == importlib.metadata.version("networkit")
    assert record["iterations"] == 30
    assert record["trace"][-1]["iteration"] == 30
    assert set(record["stage_seconds"]) >= {"mini-batch", "partners", "update_phi", "theta", "held-out"}

    cli(ring, "-k", 5, "-n", 30, "-o", tmp_path / "whole", "--whole", "--average")
    with np.load(tmp_path / "whole" / "memberships.npz", allow_pickle=False) as archive:
        assert sorted(archive) == ["beta", "calibration", "columns", "ids", "pi", "unlinked"]
        np.testing.assert_allclose(archive["pi"].sum(axis=1), 1.0, atol=1e-5)
    assert json.loads((tmp_path / "whole" / "run.json").read_text())["samples_averaged"] == 16


@pytest.mark.parametrize(
    ("mini_batch", "partners"),
    [
        ("random-node", "stratified"),
        ("random-node-link", "uniform"),
        ("random-node-non-link", "stratified"),
        ("block", "uniform"),
        ("random-node", "shared"),
        ("random-node-link", "shared-uniform"),
    ],
)
def test_odd_graphs(mini_batch, partners):
    star = [(0, v) for v in range(1, 8)]
    complete = [(a, b) for a in range(8) for b in range(a)]
    for links, k in (([(0, 1)], 9), (star, 1), (star, 9), (complete, 9)):
        found = mmsbgen.detect(
            np.array(links), k, device=PROCESSOR, iterations=6, mini_batch=mini_batch, partners=partners, validation=0.2
        )
        assert found.memberships.values.shape[1] == k
        assert np.all(np.isfinite(found.memberships.values))
        json.dumps(found.record, allow_nan=False)


@pytest.mark.parametrize(("rule", "threshold"), [("threshold", 0.02), ("link", 0.01), ("top", 2)])
@pytest.mark.parametrize("average", [False, True])
def test_communities_do_not_depend_on_how_many_entries_are_kept(rule, threshold, average):
    options = FAST | {"iterations": 40, "rule": rule, "threshold": threshold, "average": average}
    few, many = (mmsbgen.detect(np.array(RING), 20, top=top, **options) for top in (1, 20))
    assert (few.memberships.values.shape[1], many.memberships.values.shape[1]) == (1, 20)
    assert len(few.communities) > 1
    assert few.communities == many.communities


def test_no_validation(ring):
    found = mmsbgen.detect(ring, 3, validation=0.0, **FAST)
    assert "auc" not in found.trace[-1]
    result = cli(ring, "-k", 3, "-n", 4, "--validation", 0, "-v")
    assert "Held-out" not in result.output
    assert "Not known whether the run has converged: no pairs are held out that could tell" in result.output
    assert "4 iterations" in result.output


def test_a_run_that_has_seen_little_is_not_said_to_have_converged(ring):
    """Of 30 vertices, blocks of 2, 20 iterations are one and a third sweep, and those evaluations hardly move."""
    found = mmsbgen.detect(ring, 3, device=PROCESSOR, iterations=20, mini_batch_size=2, start="random")
    verdict = found.record["convergence"]
    assert verdict["settled"] is None
    assert "Since the start it has made 1.3 sweeps and was evaluated 20 times" in verdict["text"]
    assert "takes at least 2 sweeps (30 iterations) and 10 evaluations" in verdict["text"]
    assert "without -n it goes on until it has" in verdict["text"]
    stars = mmsbgen.detect(ring, 3, device=PROCESSOR, iterations=10, mini_batch="random-node", mini_batch_size=1)
    assert "has made 1.2 sweeps and was evaluated 10 times" in stars.record["convergence"]["text"], "updates a vertex"
    one = mmsbgen.detect(ring, 3, device=PROCESSOR, iterations=1).record["convergence"]["text"]
    assert "it has made 1 sweep and was evaluated 1 time;" in one


def test_the_verdict_gives_no_time_of_settling(ring):
    """Where it does not look for its end the length of the run is no finding."""
    found = mmsbgen.detect(ring, 3, device=PROCESSOR, iterations=60, start="communities", refine=False, random_state=3)
    verdict = found.record["convergence"]
    assert verdict["settled"] is True
    assert verdict["text"].startswith("Converged: after 60 sweeps the held-out log-likelihood has settled. ")
    assert verdict["text"].endswith(" kept their largest community through the second half of the run.")
    assert found.record["course"]["settled_at"] is None


def test_communities_that_still_change_are_warned_of(ring, monkeypatch):
    monkeypatch.setattr("mmsbgen.sampler.diagnostics.convergence.StabilityWatch.agreement", lambda *given: 0.88)
    found = mmsbgen.detect(ring, 3, device=PROCESSOR, iterations=60, start="communities", refine=False, random_state=3)
    assert found.record["convergence"]["text"] == (
        "Warning: after 60 sweeps the held-out log-likelihood has settled, but the communities have not. "
        "Only 88% of the vertices kept their largest community through the second half of the run. "
        "Compare with another seed before you rely on individual vertices."
    )


def test_no_iterations(ring, tmp_path):
    result = cli(ring, "-k", 3, "-n", 0, "-v", "-o", tmp_path / "out")
    assert "0 iterations" in result.output
    assert (tmp_path / "out" / "run.json").exists()


def test_the_summary_is_short(ring, tmp_path):
    out = tmp_path / "results of mine"
    result = cli(ring, "-k", 4, "-n", 50, "--test", 0.2, "-o", out)
    record = json.loads((out / "run.json").read_text())
    lines = result.stdout.splitlines()
    assert len(lines) <= 8
    assert lines[0] == record["verdict"]["sentence"]
    assert lines[1] == "4 communities, by a model of K = 4."
    assert re.fullmatch(
        r"\d+ of 30 vertices are in a community \(.*%\), each of them in \d\.\d\d on average\.", lines[2]
    )
    test = record["held_out"]["test"]
    assert (
        lines[3]
        == f"AUC of test pairs: {test['auc']:.3f} ± {test['auc_error']:#.2g}, from {test['links']} held-out links."
    )
    assert lines[-2] == f"Written to {out}: communities.txt, memberships.npz, run.json."
    assert all((out / name).exists() for name in lines[-2].rstrip(".").partition(": ")[2].split(", "))
    assert shlex.split(lines[-1]) == ["Next:", "mmsbgen", "report", str(out)], "a name with blanks is quoted"
    told = [line for line in result.stderr.splitlines() if not re.match("running the chain|making |compiling ", line)]
    assert len(told) == 1, "tuning is not suggested for a short run"
    assert re.fullmatch(r"ring on .*: needs .* of memory, .* free\.", told[0])
    bare = cli(ring, "-k", 4, "-n", 50).stdout
    assert bare.endswith("Nothing was written; -o DIR keeps the results.\n")
    assert "Next" not in bare


@pytest.mark.parametrize("kind", ["none", "degrees", "found"])
def test_without_structure_no_share_of_the_vertices_is_told(ring, capsys, kind):
    found = mmsbgen.detect(ring, 4, **FAST)
    found.record["verdict"] |= {"kind": kind, "sentence": f"Verdict: {kind}."}
    for verbose in (False, True):
        summary(found, None, verbose=verbose)
        out = capsys.readouterr().out
        assert f"Verdict: {kind}." in out
        assert ("are in a community" in out) == (verbose or kind == "found")


def test_details_are_told_with_v(ring, tmp_path):
    result = cli(ring, "-k", 4, "-n", 50, "-v")
    out = result.stdout
    for words in (
        "4 communities, by a model of K = 4",
        "Communities by the rule evidence 0.5:",
        "strength",
        "vertices are in a community",
        "AUC",
        "perplexity",
        "(link probabilities averaged over ",
        "50 iterations",
        "s, where stages overlap: mini-batch ",
        "No pairs were held out for test: 1% of 60 links is fewer than 10; --test holds out a larger share.",
    ):
        assert words in out
    assert max(map(len, result.stderr.splitlines())) < 400
    assert result.stderr.count("Configurations, default: ") == 1
    assert result.stderr.count("update_beta") == result.stderr.count("compiling update_beta") + 1, "told once"
    quiet = cli(ring, "-k", 4, "-n", 5, "-q", "-o", tmp_path / "out")
    assert quiet.output == ""
    assert "--quiet prints nothing: give a folder" in cli(ring, "-k", 4, "-n", 5, "-q", code=2).stderr
    assert cli(ring, "-k", 4, "-n", 5, "-q", "--json").stdout.startswith("{")
    assert json.loads(cli(ring, "-k", 4, "-n", 5, "--json").stdout)["iterations"] == 5
    assert "No vertex has a large enough share" in cli(ring, "-k", 4, "-n", 5, "--threshold", 0.9999).output


def test_pairs_for_test_are_evaluated_at_the_end_and_told(ring):
    told = cli(ring, "-k", 3, "-n", 10, "--test", 0.2, "-v").stdout
    (line,) = (line for line in told.splitlines() if line.startswith("Test pairs"))
    assert "(of the memberships; standard errors; " in line
    assert "12 links, 12 non-links" in line
    found = mmsbgen.detect(ring, 3, test=0.2, **FAST)
    assert found.record["graph"]["held_out_pairs"] == 2 * (12 + 3), "5 % of 60 links are for validation"
    assert found.record["held_out"]["test"]["links"] == 12
    assert (
        f"AUC {found.record['held_out']['test']['auc']:.4f}"
        in cli(ring, "-k", 3, "-n", 4, "-m", 8, "--n-partners", 4, "--test", 0.2, "-v").stdout
    )
    assert mmsbgen.detect(ring, 3, **FAST).record["held_out"]["test"] is None, "a hundredth is less than one link"
    assert "Test pairs" not in cli(ring, "-k", 3, "-n", 4, "-v").stdout
    assert "for test" not in cli(ring, "-k", 3, "-n", 4, "--test", 0, "-v").stdout, "as asked"
    assert "for test either" in cli(ring, "-k", 3, "-n", 4, "--validation", 0, "-v").stdout


def test_progress_says_of_which_iteration_its_metrics_are(ring):
    class Heard:
        def begin(self, stage):
            stages[stage.name] = stage

        def end(self, stage):
            pass

    stages = {}
    options = {"n_communities": 4, "iterations": 8, "evaluate_every": 6, "refine": False}
    with listening(Heard()):
        detect.perform(load_edge_list(ring), detect.Request(options, device=PROCESSOR))
    chain = stages["running the chain"]
    assert (chain.done, chain.total, chain.early) == (8, 8, False)
    assert re.fullmatch(
        r"iteration 8 of 8, 8\.0 updates a vertex, AUC [\d.]+, perplexity [\d.]+ at iteration 6", chain.note
    )


def test_progress_says_where_no_auc_is_known():
    graph, chain = SimpleNamespace(n_vertices=3), SimpleNamespace(vertex_updates=6)
    sampler = SimpleNamespace(iteration=4, limit=8, chain=chain, split=SimpleNamespace(graph=graph))
    told = _progress_note(sampler, [{"iteration": 4, "auc": math.nan, "perplexity": 1.5}])
    assert told == "iteration 4 of 8, 2.0 updates a vertex, AUC unknown (one class only), perplexity 1.50"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-k", "0"], "-k"),
        (["-k", "x"], "'x' is not a whole number from 1 on, or auto"),
        (["-k", "1.5"], "'1.5' is not a whole number from 1 on, or auto"),
        (["-k", "3", "--rule", "best"], "'best' is not one of 'evidence', 'share', 'threshold', 'link', 'top'"),
        (["-k", "3", "--threshold", "7"], "threshold 7"),
        (["-k", "3", "-n", "-5"], "-5"),
        (["-k", "3", "--mini-batch", "stars"], "'stars' is not one of"),
        (["-k", "3", "--step", "euler"], "'euler' is not one of"),
        (["-k", "3", "--step-size", "-1"], "-1"),
        (["-k", "3", "--step-size", "nan"], "nan"),
        (["-k", "3", "--validation", "1.5"], "1.5"),
        (["-k", "3", "--seed", "-1"], "seed"),
        (["-k", "3", "--delta", "nan"], "delta"),
        (["-k", "3", "--checkpoint"], "-o"),
        (["-k", "99999999"], "99999999"),
        (["-k", "3", "--resume", "nowhere.npz"], "there is no checkpoint nowhere.npz"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(ring, tmp_path, args, words):
    out = tmp_path / "out"
    where = [] if "--checkpoint" in args else ["-o", out]
    result = cli(ring, *args, *where, code=2)
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert not out.exists()
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error")]) == 1


def test_a_state_that_does_not_fit_is_refused_with_the_numbers(ring, tmp_path, monkeypatch):
    # Whatever this machine has: 10 MB, of which the rows of pi alone would take 31.
    monkeypatch.setattr("mmsbgen.sampler.state.memory_needs.available_host_memory", lambda: (10**7, "a test"))
    monkeypatch.setattr(Sampler, "step", lambda self: pytest.fail("sampled a state that does not fit"))
    result = cli(ring, "-k", 2**16, "--dtype", "float64", "-m", 30, "-o", tmp_path / "out", code=2)
    assert "does not fit" in result.stderr
    assert "10 MB" in result.stderr
    assert not (tmp_path / "out").exists()


def test_what_can_hardly_be_meant_is_said(ring, tmp_path):
    said = cli(ring, "-k", 31, "-n", 2, "--database", tmp_path / "none.sqlite3").stderr
    assert "K=31 is more than the graph's 30 vertices: some communities can only stay empty." in said
    assert f"There is no tuning database at {tmp_path / 'none.sqlite3'}" in said
    said = cli(ring, "-k", 2**16 + 1, "-n", 2, code=2).stderr
    assert "K=65537 is far more than the graph's 30 vertices: give at most 65536" in said
    said = cli(ring, "-k", 30, "-n", 2).stderr
    assert "more than the graph's" not in said
    assert "There is no tuning database" not in said


def test_tuning_is_suggested_after_a_long_run(ring, monkeypatch):
    words = (ring, "-k", 30, "-n", 2, "--weights", "ignore")
    assert "mmsbgen tune" not in cli(*words).stdout
    monkeypatch.setattr("mmsbgen.cli.printing.run_summary._LONG_S", 0.0)
    said = cli(*words).stdout
    assert "Such runs may take less time after: mmsbgen tune --device " in said
    assert f" --graph {ring} --weights ignore -k 30\n" in said
    assert "mmsbgen tune" not in cli(*words, "--rows", "sparse").stdout, "tune measures what runs by defaults do"


def test_self_loops_and_repeated_links_are_told_with_a_count(tmp_path):
    once = "".join(f"{v} {v + 1}\n" for v in range(20))
    both = once + "".join(f"{v + 1} {v}\n" for v in range(20))
    for name, text, said, counts in (
        ("plain", once, None, (20, 0, 0, 0)),
        ("odd", once + "3 3\n0 1\n0 1\n", "odd: 1 self-loop and 2 repeated links were dropped.", (23, 1, 2, 0)),
        ("lone", f"# isolated nodes: 50 51 52 53\n{once}", None, (20, 0, 0, 0)),
        ("both", both, "both: all 20 links were listed in both directions and counted once.", (40, 0, 20, 20)),
    ):
        graph = tmp_path / f"{name}.txt"
        graph.write_text(text)
        result = cli(graph, "-k", 2, "-n", 1, "-o", tmp_path / name)
        told = [line for line in result.stderr.splitlines() if line.startswith(f"{name}: ")]
        assert told == ([said] if said else [])
        record = json.loads((tmp_path / name / "run.json").read_text())["graph"]
        assert tuple(record[part] for part in ("lines", "self_loops", "duplicates", "both_ways")) == counts
        assert record["directed"] is False


def test_odd_ids_are_shown_short_and_written_whole(tmp_path, monkeypatch):
    long, coloured = "x" * 1000, "\x1b[31mred"
    (tmp_path / "odd.txt").write_text(f"{long} {coloured}\n{coloured} c\nc {long}\n")
    out = cli(tmp_path / "odd.txt", "-k", 1, "-n", 2, "--threshold", 0.01, "-v", "-o", tmp_path / "out").stdout
    assert "x" * 23 + "…" in out
    assert "x" * 24 not in out
    assert "\x1b" not in out
    assert long in (tmp_path / "out" / "communities.txt").read_text()
    monkeypatch.setattr("mmsbgen.sampler.saved.results.available_host_memory", lambda: (10_000, "a test"))
    said = cli(tmp_path / "odd.txt", "-k", 1, "-n", 2, "-o", tmp_path / "none", code=2).stderr
    assert "has 1000 characters: 3 ids of that width take 12 kB, and a test leaves 10 kB" in said
    assert not (tmp_path / "none").exists()


def test_missing_graph_and_unwritable_folder(ring, tmp_path, monkeypatch):
    assert "absent.txt" in cli(tmp_path / "absent.txt", "-k", 3, code=2).stderr
    monkeypatch.setattr(Sampler, "step", lambda self: pytest.fail("sampled before looking at the folder"))
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", tmp_path / "file" / "below"):
        result = cli(ring, "-k", 3, "-o", bad, code=2)
        assert "file" in result.stderr
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "cannot write" in cli(ring, "-k", 3, "-o", tmp_path / "closed", code=2).stderr


def test_python_refusals(ring):
    for kwargs, words in (
        ({"step_sise": 1}, "there is no option 'step_sise'.*chains, random_state"),
        ({"n_communities": 2.5}, "n_communities=2.5"),
        ({"random_state": -1}, "seed=-1"),
        ({"seed": 3}, "random_state"),
        ({"top": 0}, "top=0"),
        ({"device": "abacus"}, "abacus"),
        ({"mini_batch": "stars"}, "stars"),
    ):
        with pytest.raises(InputError, match=words):
            mmsbgen.detect(ring, **{"n_communities": 3, **kwargs})
    with pytest.raises(InputError, match="no link"):
        mmsbgen.detect(networkx.empty_graph(5), 3)
    with pytest.raises(InputError, match="two different vertices"):
        mmsbgen.detect(np.array([(1, 1)]), 3)


def test_a_chain_that_diverges_is_said(ring):
    from mmsbgen.base.errors import MmsbgenError
    from mmsbgen.sampler.options.schedule import Schedule

    with pytest.raises(MmsbgenError, match="left the range of float32"):
        mmsbgen.detect(
            ring, 3, device=PROCESSOR, step="published", iterations=400, schedule=Schedule(1e30, 1.0, 0.0), delta=1e-7
        )


def test_the_making_of_communities_is_told(ring, tmp_path, monkeypatch):
    monkeypatch.setattr("mmsbgen.sampler.state.buffers.EXPLAINED", 20)
    told: list[tuple[str, float]] = []
    options = {"n_communities": 4, "iterations": 5}
    detect.perform(
        load_edge_list(ring),
        detect.Request(options, device=PROCESSOR, on_making=lambda what, share: told.append((what, share))),
    )
    assert told[0] == ("memberships", 1.0)
    # The rule counts the links, three parts of them, three times.
    assert told[1:10] == [("communities by the rule evidence", pytest.approx(part / 9)) for part in range(1, 10)]
    assert told[10][0] == "links with the same degrees"
    assert told[-1] == ("graphs with the same degrees", 1.0)
    assert cli(ring, "-k", 4, "-n", 5, "--quiet", "-o", tmp_path / "out").output == ""


def test_the_graph_object_is_accepted(ring):
    assert mmsbgen.detect(load_edge_list(ring), 3, **FAST).record["graph"]["name"] == "ring"


def test_the_number_of_communities_is_chosen(ring, tmp_path):
    done = cli(ring, "-v", "-o", tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    best = max(record["tried"], key=lambda one: one["log_likelihood"])
    lost = {one["k"]: best["log_likelihood"] - one["log_likelihood"] for one in record["tried"]}
    near = [one["k"] for one in record["tried"] if lost[one["k"]] <= one["standard_error"]]
    chosen = record["problem"]["K"]
    assert chosen in near
    well = r"well, and so (?:does|do) (.*)" if len(near) > 1 else "best()"
    said = re.search(rf"Chosen: K={chosen} predicts held-out pairs {well}\.\n", done.stderr)
    assert said
    assert re.findall(r"K=(\d+)", said[1]) == [str(k) for k in near if k != chosen]
    assert record["problem"]["K"] in [one["k"] for one in record["tried"]]
    assert record["convergence"]["text"] in done.stdout


def test_without_pairs_to_choose_by_leiden_says_how_many(tmp_path, ring):
    (tmp_path / "edge.txt").write_text("1 2\n")
    for graph, more, k in ((tmp_path / "edge.txt", [], 2), (ring, ["--validation", 0], 5)):
        said = cli(graph, *more).stderr
        assert f"No pairs are held out to choose by: K={k} is the number of Leiden's communities." in said
    (tmp_path / "triangle.txt").write_text("1 2\n2 3\n3 1\n")
    said = cli(tmp_path / "triangle.txt", "-v").stderr
    assert "All pairs of the graph's 3 vertices are linked: there is no non-link to hold out" in said
    assert "a held-out pair, AUC unknown (one class only)." in said
    assert "Chosen: K=2 is the only one that could be tried." in said


def test_a_graph_comes_from_standard_input(ring, tmp_path):
    """Nothing is left of it to be read again, so that the record names no file."""
    command = f"{MMSBGEN} detect - -k 3 -n 2 --device {PROCESSOR} -o {tmp_path / 'out'}"
    for text in (f"cat {ring} | {command}", f"{command} < {ring}"):
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        told = json.loads((tmp_path / "out" / "run.json").read_text())["graph"]
        assert (told["name"], told["file"], told["links"]) == ("stdin", None, 60)


def test_links_are_predicted_from_the_memberships(ring):
    found = detect.detect(ring, 4, random_state=1)
    graph = mmsbgen.graph.as_graph(ring)
    linked = graph.ids[graph.links]
    p = found.predict_links(linked)
    assert p.shape == (len(linked),)
    rows = found.memberships.dense().astype(float)
    both = rows[graph.links[:, 0]] * rows[graph.links[:, 1]]
    expected = both @ found.memberships.beta + found.memberships.delta * (1 - both.sum(axis=1)).clip(min=0)
    assert p == pytest.approx(expected)
    with pytest.raises(InputError, match="'nobody' is no vertex"):
        found.predict_links([["nobody", linked[0, 0]]])
    with pytest.raises(InputError, match=r"\(P, 2\)"):
        found.predict_links([1, 2, 3])
