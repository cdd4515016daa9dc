"""Results that follow a graph that changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import mmsbgen
from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.cli import main
from mmsbgen.export.run_folder import graph_of_run, read_run
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.sparse_rows import expanded
from mmsbgen.graph import as_graph, split
from mmsbgen.graph.changes import carried_split, changed_graph
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.chain_problem import as_drawn, drawn_split
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.local_sweeps import start_from, sweep_locally
from tests.devices import PROCESSOR

pytestmark = [pytest.mark.opencl, pytest.mark.slow]
SIZE = 40


def planted() -> list[tuple[int, int]]:
    """Four communities of 40 vertices, each pair in one linked with probability .35; few links across."""
    rng = np.random.default_rng(4)
    pairs = np.stack(np.triu_indices(4 * SIZE, 1), axis=1)
    inside = pairs[:, 0] // SIZE == pairs[:, 1] // SIZE
    return [(int(a), int(b)) for a, b in pairs[rng.random(len(pairs)) < np.where(inside, 0.35, 0.004)]]


def home(found: mmsbgen.Detection, vertex: object) -> object:
    """The community of most of the planted community that has ``vertex``'s largest membership."""
    m = found.memberships
    first = {name: int(row[0]) for name, row in zip(m.ids.tolist(), m.indices, strict=True)}
    planted_in = [v // SIZE for v in range(4 * SIZE) if first[v] == first[vertex] and v != vertex]
    return np.bincount(planted_in, minlength=4).argmax()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("update")
    (folder / "graph.txt").write_text("".join(f"{a} {b}\n" for a, b in planted()))
    mmsbgen.detect(
        folder / "graph.txt", 6, out=folder / "run", iterations=60, device=PROCESSOR, rows="sparse", entries=8
    )
    return folder / "run"


def cli(*args: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["update", *map(str, args), "--device", PROCESSOR])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def test_vertices_move_with_their_links(results: Path, tmp_path: Path) -> None:
    """Vertex 3 leaves its community for the third; a new vertex joins the second."""
    rng = np.random.default_rng(0)
    gone = [pair for pair in planted() if 3 in pair]
    joined = [(3, int(v)) for v in rng.choice(np.arange(2 * SIZE, 3 * SIZE), 14, replace=False)]
    new = [(1000, int(v)) for v in rng.choice(np.arange(SIZE, 2 * SIZE), 14, replace=False)]
    before = mmsbgen.Detection.load(results)
    assert home(before, 3) == 0
    after = mmsbgen.update(results, add=joined + new, remove=gone, out=tmp_path / "new", device=PROCESSOR)
    assert (home(after, 3), home(after, 1000)) == (2, 1)
    told = after.record["update"]
    assert (told["added"], told["removed"], told["new_vertices"]) == (28, len(gone), 1)
    assert told["swept"] < 4 * SIZE
    assert told["full_run_due"] is None
    assert (told["moved_ids"], told["moved"]) == ([3], 1)
    # Link probabilities far from the change hardly change.
    pairs = [(a, b) for a in range(0, SIZE, 5) for b in range(2, SIZE, 7) if a != b and 3 not in (a, b)]
    model = [found.predict_links(pairs, calibrated=False) for found in (before, after)]
    assert np.median(np.abs(model[1] / model[0] - 1)) < 0.1
    # A second update takes the first one's graph and pairs; what it takes back gives the first graph.
    back = mmsbgen.update(tmp_path / "new", add=gone, remove=joined, device=PROCESSOR)
    assert home(back, 3) == 0
    assert back.record["update"]["updates"] == 2
    assert (
        mmsbgen.Detection.load(tmp_path / "new", graph=tmp_path / "new" / "graph.npz").communities == back.communities
    )
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "new", moved)
    told = mmsbgen.update(moved, add=[(5, 1001)], device=PROCESSOR).record["update"]
    assert (told["updates"], told["new_vertices"], told["moved"]) == (3, 1, 0), "a new vertex is no moved one"


def test_pairs_are_held_out_as_in_the_run_whatever_the_defaults_are_now(results: Path, monkeypatch) -> None:
    _, record = read_run(results)
    graph, options = graph_of_run(results)[0], Options.from_dict(record["options"])
    assert options.validation is None
    before = drawn_split(graph, options)
    monkeypatch.setattr("mmsbgen.sampler.options.options.MOST_HELD_OUT", 5)
    assert len(drawn_split(graph, options).validation.pairs) < len(before.validation.pairs)
    held = {part: record["held_out"][part]["links"] for part in ("validation", "test")}
    after = drawn_split(graph, as_drawn(options, held, graph.n_links))
    for part in ("validation", "test"):
        assert np.array_equal(getattr(after, part).pairs, getattr(before, part).pairs)


def test_files_stay_where_nothing_is_done(results: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(results, run)
    there = {path.name: path.read_bytes() for path in run.iterdir()}
    known, unknown = tmp_path / "known.txt", tmp_path / "unknown.txt"
    a, b = planted()[0]
    known.write_text(f"{a} {b}\n")
    unknown.write_text("0 159\n1 nobody\n")
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "No link changes" in cli(run, "--add", known, "--remove", empty).output
    same = mmsbgen.update(run, add=[], remove=np.empty((0, 2), np.int64), device="none such")
    assert same.record["graph"]["vertices"] == 160
    assert "'--add': it is given 2 times" in cli(run, "--add", unknown, "--add", known, code=2).output
    header = tmp_path / "header.csv"
    header.write_text("source,target,day\n")
    assert "No link changes" in cli(run, "--add", known, "--remove", header, "-o", tmp_path / "copy").output
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == there
    (tmp_path / "graph.npz").write_bytes(b"mine")
    assert "is not of an update" in cli(run, "--add", unknown, "-o", tmp_path, code=2).output
    assert (tmp_path / "graph.npz").read_bytes() == b"mine"
    assert "is not in graph; this holds for 2 of 2 links" in cli(run, "--remove", unknown, code=2).output
    assert "--add FILE, --remove FILE" in cli(run, code=2).output
    assert "is another graph than" in cli(run, "--add", unknown, "--graph", known, code=2).output
    (results.parent / "elsewhere").mkdir()
    assert "has no run.json" in cli(results.parent / "elsewhere", "--add", known, code=2).output
    (run / "checkpoint.npz").write_bytes(b"of a run")
    assert "belongs to the graph before" in cli(run, "--add", unknown, code=2).output
    (run / "checkpoint.npz").unlink()
    assert {path.name: path.read_bytes() for path in run.iterdir()} == there


def test_the_command(results: Path, tmp_path: Path) -> None:
    add = tmp_path / "add.csv"
    # Nothing is said of columns without a common id, as links that are added rarely have one.
    add.write_text("source,target,day\n0,41,3\n0,42,3\nnew,42,4\n" + "".join(f"{v},{v + 41},4\n" for v in range(1, 9)))
    given = ("--add", add, "--columns", "source,target", "-o", tmp_path / "new")
    said = cli(results, *given).output
    assert "Updated after 11 changes" in said
    assert "graph.npz" in said
    assert "Ids are text from now on" in said
    again = cli(tmp_path / "new", "--add", add, "--columns", "source,target")
    assert "No link changes" in again.output


def test_every_chain_follows_from_dense_rows(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("".join(f"{a} {b}\n" for a, b in planted()))
    before = mmsbgen.detect(tmp_path / "graph.txt", 5, out=tmp_path / "run", iterations=40, chains=2, device=PROCESSOR)
    assert before.record["options"]["rows"] == "dense"
    after = mmsbgen.update(tmp_path / "run", add=[(v, 1000) for v in range(5)], device=PROCESSOR)
    assert home(after, 1000) == 0
    assert [len(one.indices) for one in after.memberships.others] == [4 * SIZE + 1]
    # What was stored exactly stays so where nothing was swept.
    share = [found.memberships.values[:, 0] for found in (before, after)]
    assert np.count_nonzero(share[1][:-1] == share[0]) > 2 * SIZE
    aucs = [found.record["held_out"]["validation"]["auc"] for found in (before, after)]
    assert abs(aucs[1] - aucs[0]) < 0.02
    assert after.predict_links([(0, 1000)]) > after.predict_links([(150, 1000)])


def test_sums_follow_the_rows(processor: Device) -> None:
    """After local sweeps the sums of columns are those of the rows, and rows that were not swept are as before."""
    graph = as_graph(planted())
    parts = split(graph, validation=0.05, test=0.0, seed=1)
    change = changed_graph(graph, as_graph([(0, 150), (2000, 0), (2000, 1), (3000, 3001)]))
    after = carried_split(parts, change, 0.05, 0.0)
    k, r, vertices = 20, 8, np.arange(graph.n_vertices)
    indices = ((vertices // SIZE)[:, None] + np.arange(r)).astype(np.int32)
    values = np.full(indices.shape, 2e-3, np.float32)
    values[:, 0] = 1 - (r - 1) * 2e-3 - (k - r) * 1e-2 / k
    before = Memberships(graph.ids, indices, values, np.where(np.arange(k) < 4, 0.35, 0.05))
    options = Options(n_communities=k, seed=3, rows="sparse", entries=r)
    sampler = Sampler(after, options, Runtime(processor, MMSB, None, {}))
    try:
        start_from(sampler, before, change)
        first, _ = sampler.state.entries()
        old = sampler.state.rows(0, change.graph.n_vertices)
        # The new vertex begins at the mean of its neighbours' rows; those that nothing links to an old one are whole.
        at = int(np.flatnonzero(change.graph.ids == 2000)[0])
        near = after.training_adjacency.row(at)
        mean = old[near].mean(axis=0)
        assert old[at].argmax() == mean.argmax()
        np.testing.assert_allclose(old.sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(sampler.state.beta()[:k], before.beta, rtol=1e-6)
        done = sweep_locally(sampler, change.ends)
        new = sampler.state.rows(0, change.graph.n_vertices)
        totals = processor.download(sampler.values["totals"])[:k]
        np.testing.assert_allclose(totals, new.sum(axis=0), rtol=1e-4)
        assert not processor.download(sampler.values["fixed_sums"]).any()
        still = (new == old).all(axis=1)
        assert change.graph.n_vertices - still.sum() <= done.touched < change.graph.n_vertices
        assert not still[at]
        communities, entries = sampler.state.entries()
        assert np.array_equal(first[still], communities[still])
        np.testing.assert_allclose(expanded(communities, entries, k, sampler.shape.floor).sum(axis=1), 1.0, rtol=1e-5)
    finally:
        sampler.close()


def test_results_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no run.json"):
        mmsbgen.update(tmp_path, add=[(1, 2)])
    with pytest.raises(InputError, match="results is a list"):
        mmsbgen.update([], add=[(1, 2)])
