"""Labels spread from some vertices, and walks from many, against solutions of their equations."""

from __future__ import annotations

import gc
import gzip
import warnings
import weakref
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from mmsbgen import LabelPropagation
from mmsbgen.algorithms import ConvergenceError, LabelWarning, personalized_pagerank, propagate, walks
from mmsbgen.algorithms.known_labels import known_labels
from mmsbgen.algorithms.row_rounds import run_rounds, totals
from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.families.graph.row_inputs import matrix_in
from mmsbgen.graph import Arcs, GraphWarning, as_arcs
from tests.families.graph.shapes import arcs as graph_of

DATA = Path(__file__).parents[1] / "data"
Array = NDArray[Any]


def connected(n: int, weighted: bool, seed: int) -> Arcs:
    """A random connected graph of mean degree 8, with weights 1 to 10 or none."""
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(v)), v) for v in range(1, n)}
    pairs |= {tuple(sorted(pair)) for pair in rng.integers(0, n, (3 * n, 2)).tolist() if pair[0] != pair[1]}
    made = graph_of(sorted(pairs), n, seed=seed)
    assert made.weights is not None
    return Arcs(made.offsets, made.targets, made.ids, made.weights + 1 if weighted else None)


def some_labels(n: int, classes: int, known: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    labels = np.full(n, -1)
    labels[rng.choice(n, known, replace=False)] = np.arange(known) % classes
    return labels


def one_hot(labels: Array) -> Array:
    found = np.zeros((labels.size, labels.max() + 1))
    found[labels >= 0, labels[labels >= 0]] = 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_harmonic_shares_solve_their_system(weighted: bool, opencl_device: Device) -> None:
    graph, labels = connected(700, weighted, 1), some_labels(700, 3, 40, 2)
    w, known = sparse.csr_array(matrix_in(graph)), labels >= 0
    laplacian = sparse.csr_array(sparse.diags_array(w.sum(axis=1)) - w)
    exact = one_hot(labels)
    exact[~known] = spsolve(sparse.csc_array(laplacian[~known][:, ~known]), w[~known][:, known] @ exact[known])
    rounds = {}
    for solver in ("rounds", "changes", "gradients"):
        how: dict[str, Any] = {"solver": solver, "device": opencl_device.info.spec}
        found = propagate(graph, labels, tolerance=1e-9, **how)
        assert found.converged, solver
        assert found.residual <= 1e-9
        assert found.shares == pytest.approx(exact, abs=1e-6)
        single = propagate(graph, labels, tolerance=1e-5, **how)
        assert single.shares.dtype == np.float32
        assert single.shares == pytest.approx(exact, abs=2e-3)
        assert np.array_equal(found.labels[known], labels[known])
        rounds[solver] = found.rounds
    assert rounds["gradients"] < rounds["rounds"] / 2


@pytest.mark.parametrize("weighted", [False, True])
def test_spread_shares_solve_their_system(weighted: bool, processor: Device) -> None:
    graph, labels = connected(300, weighted, 3), some_labels(300, 4, 30, 4)
    w = matrix_in(graph).toarray()
    root = np.sqrt(w.sum(axis=1))
    exact = np.linalg.solve(np.eye(300) - 0.7 * w / root[:, None] / root, 0.3 * one_hot(labels))
    exact /= exact.sum(axis=1, keepdims=True)
    for solver in ("changes", "rounds"):
        found = propagate(
            graph, labels, rule="spread", alpha=0.7, tolerance=1e-8, solver=solver, device=processor.info.spec
        )
        assert found.shares == pytest.approx(exact, abs=1e-6)


@pytest.mark.slow
def test_walks_from_many_seeds_solve_their_system(processor: Device) -> None:
    on = processor.info.spec
    graph, seeds = connected(300, True, 5), list(range(0, 300, 9))
    w = matrix_in(graph).toarray()
    start = np.eye(300)[:, seeds]
    exact = np.linalg.solve(np.eye(300) - 0.85 * w / w.sum(axis=0), 0.15 * start)
    found = personalized_pagerank(graph, seeds, tolerance=1e-10, device=on)
    assert found.values == pytest.approx(exact, abs=1e-8)
    # Within the bound of the rounds, alpha / (1 - alpha) times the tolerance.
    rough = personalized_pagerank(graph, seeds, tolerance=1e-5, device=on).values
    assert np.abs(rough - exact).sum(axis=0).max() <= 0.85 / 0.15 * 1e-5


def test_scores_sum_to_one_where_each_is_small(processor: Device) -> None:
    """Tolerances are of all scores of a seed, however many vertices and links there are."""
    made = nx.barabasi_albert_graph(2000, 10, seed=1)
    on = processor.info.spec
    found = personalized_pagerank(made, [0, 5, 1999], tolerance=1e-3, device=on).values
    # Rounds from 0 on come to the solution from below.
    assert np.all((found.sum(axis=0) <= 1) & (found.sum(axis=0) >= 1 - 0.85 / 0.15 * 1e-3))
    assert personalized_pagerank(nx.path_graph(["12", "1", "2"]), "12", device=on).values.shape == (3, 1)
    assert personalized_pagerank(nx.path_graph(9), "5", device=on).values.argmax() == 5


def test_a_graph_is_divided_once(processor: Device) -> None:
    graph = connected(50, True, 5)
    for seed in (1, 2):
        personalized_pagerank(graph, [seed], device=processor.info.spec)
    assert walks._divided(graph, totals(graph)) is walks._divided(graph, totals(graph))
    first = weakref.ref(walks._divided(graph, totals(graph)))
    del graph
    gc.collect()
    assert first() is None


def test_walks_on_arcs_are_those_of_networkx(processor: Device) -> None:
    """Directed, with weights, with vertices that no walk leaves."""
    made = nx.gnp_random_graph(80, 0.03, seed=3, directed=True)
    rng = np.random.default_rng(1)
    nx.set_edge_attributes(made, {edge: float(rng.integers(1, 9)) for edge in made.edges}, "weight")
    assert any(made.out_degree(v) == 0 for v in made)
    seeds: list[Any] = [7, [3, 4], {5: 1.0, 6: 3.0}]
    found = personalized_pagerank(made, seeds, weights="weight", tolerance=1e-12, device=processor.info.spec)
    for column, given in enumerate([{7: 1}, {3: 1, 4: 1}, {5: 1, 6: 3}]):
        exact = nx.pagerank(made, personalization=given, tol=1e-13, max_iter=1000)
        assert found.values[:, column] == pytest.approx([exact[v] for v in made], abs=1e-9)


@pytest.mark.slow
def test_odd_graphs(processor: Device) -> None:
    on = processor.info.spec
    single = propagate(nx.empty_graph(1), {0: "a"}, device=on)
    assert (single.shares.tolist(), single.labels.tolist(), single.unreached.size) == ([[1]], ["a"], 0)
    apart = propagate(nx.empty_graph(3), {1: "a"}, device=on)
    assert apart.labels.tolist() == [None, "a", None]
    assert apart.unreached.tolist() == [0, 2]
    for rule in ("harmonic", "spread", "published"):
        made = nx.Graph([(0, 0), (0, 1), (2, 3), (4, 4)])
        found = propagate(made, {1: 5, 0: 5}, rule=rule, device=on)  # type: ignore[arg-type]
        assert found.labels.tolist() == [5, 5, -1, -1, -1]
    star = propagate(nx.star_graph(500), {v: v % 2 for v in range(1, 101)}, device=on)
    assert star.shares[0] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert star.unreached.size == 0
    # Sides of a bipartite graph in turns: what is held keeps rounds from going to and fro.
    cycle = propagate(nx.cycle_graph(10), {0: "x", 5: "y"}, tolerance=1e-6, device=on)
    assert cycle.converged
    assert cycle.shares[:6, 0] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0], abs=1e-4)
    ranks = personalized_pagerank(nx.empty_graph(2), [0, 1], device=on)
    assert ranks.values.tolist() == [[1, 0], [0, 1]]


def test_gradients_reach_what_is_far(processor: Device) -> None:
    """Vertices between two labels at the ends of a path, others without a label, and a row alone."""
    on, path = processor.info.spec, nx.path_graph(300)
    path.add_edges_from([(400, 401), (402, 402)])
    found = propagate(path, {0: "a", 299: "b"}, solver="gradients", tolerance=1e-6, device=on)
    assert found.converged
    assert found.shares[:300, 0] == pytest.approx(np.linspace(1, 0, 300), abs=1e-3)
    assert found.shares.min() == 0
    assert found.unreached.tolist() == [300, 301, 302]
    with pytest.warns(LabelWarning, match=r"after 5 rounds.*allow more rounds"):
        assert propagate(path, {0: "a"}, solver="gradients", max_rounds=5, device=on).rounds == 5


def test_gradients_take_float64_where_float32_is_too_short(processor: Device) -> None:
    """Parts that few or weak links join to known labels: a small change of all their rows tells little."""
    on, parts = processor.info.spec, nx.disjoint_union(nx.complete_graph(20), nx.complete_graph(20))
    nx.set_edge_attributes(parts, 1.0, "w")
    parts.add_weighted_edges_from([(19, 20, 1e-6), (5, 25, 1e-6)], weight="w")
    found = propagate(parts, {0: "a", 1: "b"}, weights="w", device=on)
    assert (found.converged, found.shares.dtype) == (True, np.float64)
    assert found.shares[2:] == pytest.approx(np.full((38, 2), 0.5), abs=1e-6)
    # Rows of float32 end above 1 by a sixth.
    found = propagate(nx.lollipop_graph(100, 30), {129: "a"}, tolerance=1e-4, device=on)
    assert (found.converged, found.shares.dtype) == (True, np.float64)
    assert 0 < found.missing <= 1e-2


def test_rounds_go_on_until_shares_have_come(processor: Device) -> None:
    """Far from known labels rows change by less than the tolerance long before they are what they tend to."""
    on, grid = processor.info.spec, nx.convert_node_labels_to_integers(nx.grid_2d_graph(12, 12))
    found = propagate(grid, {0: "a", 143: "b"}, solver="changes", max_rounds=10_000, device=on)
    w, known = sparse.csr_array(matrix_in(as_arcs(grid))), np.isin(np.arange(144), [0, 143])
    laplacian = sparse.csr_array(sparse.diags_array(w.sum(axis=1)) - w)
    exact = np.eye(144)[:, [0, 143]]
    exact[~known] = spsolve(sparse.csc_array(laplacian[~known][:, ~known]), (w @ exact)[~known])
    assert found.converged
    assert np.abs(found.shares - exact).max() <= found.missing <= 0.1
    for most, told in ((60, "change by .* after 60"), (1000, "after 1000 rounds shares .* known labels are far")):
        with pytest.warns(LabelWarning, match=told):
            found = propagate(nx.path_graph(200), {0: 0, 199: 1}, solver="changes", max_rounds=most, device=on)
        assert (found.converged, found.unreached.size, found.missing > 0.9) == (False, 0, True)
        assert np.array_equal(found.labels == -1, ~found.shares.any(axis=1))
    # Shares of float64 end at some distance, whatever the rounds.
    with pytest.warns(LabelWarning, match="known labels are far from them: give more labels$"):
        assert not propagate(nx.path_graph(1000), {0: 0, 999: 1}, rule="spread", device=on).converged
    spread = propagate(nx.path_graph(200), {0: 0, 199: 1}, rule="spread", device=on)
    assert (spread.converged, spread.labels.tolist()) == (True, [0] * 100 + [1] * 100)


@pytest.mark.parametrize(("rounds", "tolerance"), [(5, 3e-3), (6, 1e-3), (2, 1e-3), (1, 1e-3)])
def test_a_round_over_all_vertices_tells_the_change(rounds: int, tolerance: float, processor: Device) -> None:
    """Another round then changes rows by at most 0.85 of it; rounds that send changes only tell too little."""
    graph = connected(700, False, 1)
    scale, seed = np.full(700, 0.85), 0.15 * np.eye(700)[:, :3]
    given: Any = {"tolerance": tolerance, "changes": True, "device": processor.info.spec, "database": None}
    found = run_rounds(graph, scale, np.arange(3), seed[:3], rule="seeded", largest=1, max_rounds=rounds, **given)
    rows = found.rows.astype(np.float64)
    again = 0.85 * (matrix_in(graph) @ rows) / graph.degrees[:, None] + seed
    assert found.rounds <= rounds
    assert np.abs(again - rows).max() <= 0.85 * found.residual + 1e-6


@pytest.mark.slow
def test_sums_of_many_neighbours(processor: Device) -> None:
    n = 150_000
    leaves = np.arange(1, n)
    star = as_arcs(np.column_stack([np.zeros(n - 1, np.int64), leaves]))
    known = {int(v): {"a": 0.1, "b": 0.9} for v in leaves}
    found = propagate(star, known, tolerance=1e-5, device=processor.info.spec)
    assert found.shares[0] == pytest.approx([0.1, 0.9], abs=1e-5)


def test_published_rounds_end_with_one_row_for_all(processor: Device) -> None:
    """The degree-weighted mean of the start, which is why known labels are held by the other rules."""
    made = nx.karate_club_graph()
    for _, _, data in made.edges(data=True):
        data.clear()
    known = {v: data["club"] for v, data in made.nodes(data=True)}
    found = propagate(made, known, rule="published", tolerance=1e-6, device=processor.info.spec)
    degrees = np.array([made.degree(v) for v in made])
    share = degrees[[known[v] == "Mr. Hi" for v in made]].sum() / degrees.sum()
    assert found.shares[:, found.classes.tolist().index("Mr. Hi")] == pytest.approx(np.full(34, share), abs=1e-4)


def test_weights_far_apart(opencl_device: Device) -> None:
    made = nx.Graph()
    made.add_weighted_edges_from([(0, 1, 1e38), (1, 2, 3e38), (3, 4, 1e-38), (4, 5, 3e-38), (6, 7, 2.0), (7, 8, 0)])
    known = {0: "a", 2: "b", 3: "a", 5: "b", 6: "a"}
    found = propagate(made, known, weights="weight", device=opencl_device.info.spec)
    assert found.shares[[1, 4, 7]] == pytest.approx(np.array([[0.25, 0.75], [0.25, 0.75], [1, 0]]), abs=1e-6)
    assert found.unreached.tolist() == [8]


def test_what_labels_may_be(tmp_path: Path, processor: Device) -> None:
    on, path = processor.info.spec, nx.path_graph(5)
    mixed = propagate(path, {0: {"a": 1, "b": 3}, 4: "c"}, device=on)
    assert mixed.classes.tolist() == ["a", "b", "c"]
    assert mixed.shares[0].tolist() == [0.25, 0.75, 0]
    assert propagate(path, ["x", None, None, None, "y"], device=on).labels.tolist()[1::2] == ["x", "y"]
    (tmp_path / "table.tsv").write_text("# known\n0\tgreen field\n4\tred\t0.5\n4\tgreen field\t0.5\n")
    assert propagate(path, tmp_path / "table.tsv", device=on).shares[4].tolist() == [0.5, 0.5]
    (tmp_path / "cover.txt").write_text("0\n3 4 0\n")
    cover = propagate(path, tmp_path / "cover.txt", device=on)
    assert cover.classes.tolist() == [0, 1]
    assert cover.shares[0].tolist() == [0.5, 0.5]
    (tmp_path / "more.txt").write_text("0 7\n9 8\n")
    with pytest.warns(LabelWarning, match=r"1 line of ids that are no vertices of .* are left out, such as '9'"):
        assert propagate(path, tmp_path / "more.txt", device=on).classes.tolist() == [7]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("0\t1\t0.5\n1\t1\n2\t\n3\t\t0\n", {0: 1, 1: 1}),
        ("0\t1\n1\t1\n2\t\n", {0: 1, 1: 1}),
        ("0 --1\n3 a\n", {0: "--1", 3: "a"}),
        (f"0 {'9' * 5000}\n", {0: "9" * 5000}),
        ("0 -1\n1 7\n4 7\n", {1: 7, 4: 7}),
        ("0 1 2\n3 4\n2\n", {0: 0, 1: 0, 2: [0, 2], 3: 1, 4: 1}),
        ("0 1 9 8\n2 3 4\n", {0: 0, 1: 0, 2: 1, 3: 1, 4: 1}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*are left out")
def test_lines_of_either_format(text: str, labels: dict[int, Any], tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text(text)
    found = known_labels(as_arcs(nx.path_graph(5)), tmp_path / "labels.txt")
    rows = {v: found.classes[row > 0].tolist() for v, row in zip(found.vertices.tolist(), found.shares, strict=True)}
    assert rows == {v: one if isinstance(one, list) else [one] for v, one in labels.items()}


def test_a_file_of_either_format_needs_its_name(tmp_path: Path) -> None:
    graph, file = as_arcs(nx.path_graph(6)), tmp_path / "labels.txt"
    file.write_text("0 1 2\n3 4 5\n")
    with pytest.raises(InputError, match="lines may be `id label .share.` or communities, as all fields are vertices"):
        known_labels(graph, file)
    assert known_labels(graph, file, "pairs").vertices.tolist() == [0, 3]
    found = known_labels(graph, file, "communities")
    assert (found.vertices.tolist(), found.format) == ([0, 1, 2, 3, 4, 5], "communities")
    for spoilt in ("0 red\n1 New York\n5 red\n", "0\tred\tx\n1\ty\n"):
        file.write_text(spoilt)
        with pytest.raises(InputError, match="is no `id label .share.`, and most fields are no vertices"):
            known_labels(graph, file)
    file.write_text("# nothing\n")
    with pytest.raises(InputError, match=r"\.txt has no labels; give lines of an id and its label"):
        known_labels(graph, file)
    file.write_text("Ann 0,red\nAnn 5,blue\n")
    with pytest.raises(InputError, match="'Ann' is no vertex of .*, and no other id is: .*commas in a .csv file"):
        known_labels(graph, file)
    for content, said in ((b"0 \xff\n", r"byte 2 \(0xff\) is not UTF-8 text"), (b"0 a\0\n", "a zero byte")):
        file.write_bytes(content)
        with pytest.raises(InputError, match=said):
            known_labels(graph, file)


@pytest.mark.parametrize(
    ("name", "text", "first"),
    [
        ("labels.csv", 'person,team\n"Ann, 0",red\nBob 1,"blue, light",0.5\n', "Ann, 0"),
        ("labels.csv.gz", 'person,team\n"Ann, 0",red\nBob 1,"blue, light",0.5\n', "Ann, 0"),
        ("labels.tsv", '"person"\t"team"\n"Ann, 0"\tred\n"Bob 1"\t"blue, light"\n', "Ann, 0"),
        ("labels.csv", "person;team\nAnn 0;red\nBob 1;blue;0.5\n", "Ann 0"),
    ],
)
def test_a_csv_file_of_labels(tmp_path: Path, name: str, text: str, first: str) -> None:
    """Its header is a line of an id that is no vertex."""
    graph = as_arcs([(first, "Bob 1"), ("Bob 1", "Cy")])
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.warns(LabelWarning, match="1 line of ids that are no vertices .* such as 'person'"):
        found = known_labels(graph, file)
    assert [graph.ids[vertex] for vertex in found.vertices] == [first, "Bob 1"]
    assert "red" in found.classes.tolist()


def test_labels_of_nobody_and_too_many(monkeypatch: pytest.MonkeyPatch, processor: Device) -> None:
    graph = as_arcs(nx.path_graph(4))
    found = known_labels(graph, {0: 5, 1: -1, 2: None, 3: {6: 1.0, -1: 1.0}})
    assert (found.classes.tolist(), found.vertices.tolist()) == ([5, 6], [0, 3])
    with pytest.raises(InputError, match="has a known label"):
        known_labels(graph, {0: -1, 1: None})
    monkeypatch.setattr("mmsbgen.base.host_memory.available_host_memory", lambda: (90, "a limit"))
    with pytest.raises(InputError, match="2 labels of 2 vertices take 96 B, and a limit leaves 90 B: give fewer"):
        known_labels(graph, {0: 5, 1: 6})
    with pytest.raises(InputError, match="rows of 1 numbers for 30 vertices take 248 B"):
        personalized_pagerank(nx.path_graph(30), [3], tolerance=0.9, device=processor.info.spec)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"labels": {9: 1}}, "9 is no vertex of"),
        ({"labels": {}}, "no vertex of networkx graph has a known label; give some"),
        ({"labels": {0: {"a": -1.0}}}, "the share of 0 in 'a' is -1.0; give a number of 0 or more"),
        ({"labels": {0: {"a": np.nan}}}, "the share of 0 in 'a' is nan"),
        ({"labels": {0: {"a": 0}}}, "the shares of 0 are all 0; leave it out"),
        ({"labels": [1]}, "1 labels for 3 vertices: give one for each, -1 where it is not known"),
        ({"labels": {0: 1}, "alpha": 1.0}, "alpha=1.0: give a number above 0 and below 1"),
        ({"labels": {0: 1}, "rule": "majority"}, "rule='majority' is not one of harmonic, spread, published"),
        ({"labels": {0: 1}, "solver": "magic"}, "solver='magic' does not fit rule='harmonic': give one of gra"),
        ({"labels": {0: 1}, "rule": "spread", "solver": "gradients"}, "fit rule='spread': give one of changes, rounds"),
        ({"labels": {0: 1}, "tolerance": -1.0}, "tolerance=-1.0: give a number of 0 or more"),
        ({"labels": {0: 1}, "max_rounds": 0}, "max_rounds=0: give a whole number of 1 or more"),
    ],
)
def test_errors_name_the_value(given: dict[str, Any], told: str, processor: Device) -> None:
    with pytest.raises(InputError, match=told):
        propagate(nx.path_graph(3), given.pop("labels"), device=processor.info.spec, **given)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_odd_weights_are_refused_with_their_link(weight: float, processor: Device) -> None:
    made = nx.Graph()
    made.add_weighted_edges_from([(0, 1, 1.0), (1, 2, weight)])
    told = f"the weight from 1 to 2 is {weight}; give finite ones of 0 or more"
    with pytest.raises(InputError, match=told):
        propagate(made, {0: 1}, weights="weight")
    with pytest.raises(InputError, match=told):
        personalized_pagerank(made, [0], weights="weight")
    with pytest.raises(InputError, match="is directed, and labels spread along links"):
        propagate(nx.DiGraph([(0, 1)]), {0: 1})


def test_rounds_that_run_out_are_told(processor: Device) -> None:
    on = processor.info.spec
    with pytest.warns(LabelWarning, match=r"shares still change by .* after 5 rounds, and 0\.001 was asked for"):
        found = propagate(nx.path_graph(100), {0: 1, 99: 2}, max_rounds=5, device=on)
    assert (found.rounds, found.converged) == (5, False)
    with pytest.raises(ConvergenceError, match="after 2 rounds"):
        personalized_pagerank(nx.path_graph(9), [0], max_rounds=2, device=on)


@pytest.mark.slow
def test_as_many_are_right_as_by_scikit_learn(processor: Device) -> None:
    """email-Eu-core with a tenth of the departments known, against LabelSpreading, at its default alpha and ours."""
    from sklearn.semi_supervised import LabelSpreading

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # some links are listed in both directions
        graph = as_arcs(DATA / "email-Eu-core.txt.gz")
    numbers = departments(graph)
    w = matrix_in(graph).toarray()
    places = np.arange(numbers.size)[:, None]
    for alpha in (0.2, 0.85):
        model = LabelPropagation("spread", alpha, 1e-4, device=processor.info.spec)
        other = LabelSpreading(kernel=lambda a, b: w, alpha=alpha, max_iter=300)
        ours = theirs = 0
        for seed in range(10):
            known = np.random.default_rng(seed).random(numbers.size) < 0.1
            labels = np.where(known, numbers, -1)
            ours += np.count_nonzero((model.fit(graph, labels).transduction_ == numbers)[~known])
            theirs += np.count_nonzero((other.fit(places, labels).transduction_ == numbers)[~known])
        assert ours >= theirs, alpha
        assert theirs > 0.45 * 10 * 0.9 * numbers.size


def departments(graph: Arcs) -> Array:
    """The department of each vertex of email-Eu-core."""
    lines = gzip.decompress((DATA / "email-Eu-core.cmty.txt.gz").read_bytes()).decode().splitlines()
    found = {int(v): number for number, line in enumerate(lines) for v in line.split()}
    return np.array([found[v] for v in graph.ids.tolist()])


def test_the_estimator_keeps_scikit_learns_ways(processor: Device) -> None:
    model = LabelPropagation(tolerance=1e-4, device=processor.info.spec)
    assert repr(model).startswith("LabelPropagation(tolerance=0.0001")
    assert model.set_params(rule="spread").get_params()["rule"] == "spread"
    assert model.fit(nx.path_graph(4), {0: "a", 3: "b"}) is model
    assert model.transduction_.tolist() == ["a", "a", "b", "b"]
    assert (model.classes_.tolist(), model.ids_.tolist()) == (["a", "b"], [0, 1, 2, 3])
    assert model.label_distributions_.sum(axis=1) == pytest.approx(np.ones(4))
    assert 0 < model.n_iter_ < 100
    assert model.residual_ <= 1e-4
    assert model.unreached_.size == 0
