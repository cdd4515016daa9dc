"""The estimator: scikit-learn's conventions, and what it finds."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.base
import sklearn.utils
import sklearn.utils.estimator_checks as checks
import sklearn.utils.validation

import mmsbgen
from mmsbgen import MMSB
from mmsbgen.base.errors import InputError, NotFittedError, ParameterError
from mmsbgen.estimator.mmsb import OPTIONS
from mmsbgen.sampler.options.options import Options
from tests.detection.estimators import FAST, RING, fast, of_four_shares
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def fitted() -> MMSB:
    return of_four_shares()


def test_the_parameters_are_all_options_with_their_defaults():
    parameters = inspect.signature(MMSB).parameters
    fields = Options.__dataclass_fields__
    assert set(OPTIONS) | {"iterations"} == set(fields) - {"n_communities", "seed"}
    for name in (*OPTIONS, "iterations"):
        assert parameters[name].default == fields[name].default, name


def test_scikit_learns_own_checks():
    """Those that give no features: it checks constructor, parameters, cloning and repr of a real estimator."""
    model = MMSB(7, alpha=0.5)
    checks.check_no_attributes_set_in_init("MMSB", model)
    checks.check_parameters_default_constructible("MMSB", model)
    checks.check_get_params_invariance("MMSB", model)
    checks.check_set_params("MMSB", model)
    checks.check_estimator_repr("MMSB", model)
    checks.check_valid_tag_types("MMSB", model)
    checks.check_estimator_cloneable("MMSB", model)
    checks.check_do_not_raise_errors_in_init_or_set_params("MMSB", model)
    checks.check_mixin_order("MMSB", model)
    assert sklearn.base.is_clusterer(model)
    assert not sklearn.utils.get_tags(model).target_tags.required


def test_parameters(fitted):
    model = MMSB(7, random_state=1, alpha=0.25)
    assert repr(model) == "MMSB(n_communities=7, random_state=1, alpha=0.25)"
    assert repr(MMSB()) == "MMSB()"
    assert model.set_params(alpha=None, top=3) is model
    assert (model.alpha, model.top) == (None, 3)
    with pytest.raises(ParameterError, match="MMSB has no parameter 'beta'; there are n_communities, random_state"):
        model.set_params(top=9, beta=1)
    assert isinstance(ParameterError(""), ValueError)
    assert model.top == 3
    again = sklearn.base.clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "ids_")
    sklearn.utils.validation.check_is_fitted(fitted)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        sklearn.utils.validation.check_is_fitted(again)


def test_an_unfitted_one_says_so(tmp_path):
    model = MMSB(3)
    for name in ("memberships_", "labels_", "communities_", "ids_"):
        assert not hasattr(model, name)
    for call in (
        lambda: model.get_communities(),
        lambda: model.predict_link_proba([(0, 1)]),
        lambda: model.score(),
        lambda: model.save(tmp_path / "m"),
        lambda: model.to_pandas(),
        lambda: model.memberships_,
    ):
        with pytest.raises(NotFittedError, match=r"needs a fitted MMSB: call fit\(graph\) first"):
            call()
    assert isinstance(NotFittedError(""), ValueError)
    assert not list(tmp_path.iterdir())


def test_scikit_learn_is_not_imported():
    code = (
        "import sys; from mmsbgen import MMSB; m = MMSB(3).set_params(top=2); repr(m), m.get_params();"
        "print(sorted({n.split('.')[0] for n in sys.modules} & "
        "{'sklearn', 'scipy', 'networkx', 'pandas', 'pyarrow', 'cdlib', 'polars'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_it_finds_what_detect_finds(fitted):
    options = {**FAST, "random_state": 3, "top": 4}
    found = mmsbgen.detect(np.array(RING), 20, **options)
    assert fitted.communities_ == found.communities
    count = len(found.communities)
    assert fitted.memberships_.shape == (30, count)
    assert np.array_equal(fitted.strengths_, found.memberships.beta[:count])
    assert (fitted.n_vertices_in_, fitted.n_links_in_, fitted.n_communities_) == (30, 60, count)
    assert (fitted.n_iter_, fitted.seed_, fitted.interrupted_) == (6, 3, False)
    assert fitted.trace_[-1]["iteration"] == 6
    assert fitted.record_["iterations"] == 6
    assert fitted.ids_.tolist() == list(range(30))
    assert fast(20, top=4, random_state=3).fit_predict(RING).tolist() == fitted.labels_.tolist()
    pi = found.memberships.completed_rows(np.arange(30))[:, :count]
    for vertex, (label, row) in enumerate(zip(fitted.labels_.tolist(), fitted.memberships_, strict=True)):
        inside = [one for one, members in enumerate(fitted.communities_) if vertex in members]
        assert np.flatnonzero(row).tolist() == inside
        assert label == (max(inside, key=lambda one: row[one]) if inside else -1)
        assert row.sum() == pytest.approx(1 if inside else 0)
        assert row[inside] == pytest.approx(pi[vertex, inside] / pi[vertex, inside].sum(), abs=0.05)


def test_sparse_memberships(fitted):
    model = copy.deepcopy(fitted).set_params(sparse_output=True)
    assert isinstance(model.memberships_, scipy.sparse.csr_array)
    assert model.memberships_.has_sorted_indices
    assert np.array_equal(model.memberships_.toarray(), fitted.memberships_)
    assert model.memberships_.nnz == sum(map(len, fitted.communities_))
    assert model.memberships_ is model.memberships_


def test_memberships_that_do_not_fit_are_refused(fitted, monkeypatch):
    model = copy.deepcopy(fitted)
    model._cache.clear()
    monkeypatch.setattr("mmsbgen.base.host_memory.available_host_memory", lambda: (100, "a test"))
    with pytest.raises(InputError, match=r"30 vertices .* and a test leaves 100 B: set sparse_output=True"):
        _ = model.memberships_


@pytest.mark.parametrize(
    ("average", "iterations", "extra"),
    [
        (False, 40, {}),
        (True, 40, {}),
        (True, 41, {"mini_batch": "random-node", "storage": "float16"}),
        (False, 41, {"mini_batch": "random-node", "storage": "bfloat16"}),
    ],
    ids=["block", "averaged", "averaged, 16 bits, ends off the interval", "16 bits"],
)
def test_rules_anew_are_those_of_a_fit(average, iterations, extra):
    options = {"iterations": iterations, "evaluate_every": 4, "average": average, "top": 2, **extra}
    model = fast(20, **options).fit(RING)
    assert model.record_["samples_averaged"] == 6 * average, (
        "of which the chain has five where it ends off the interval"
    )
    for rule, threshold in (("threshold", 0.02), ("link", 0.01), ("top", 3), ("share", 0.05), ("evidence", 0.3)):
        fit = fast(20, rule=rule, threshold=threshold, **options).fit(RING)
        assert fit.communities_, rule
        assert model.get_communities(rule, threshold) == fit.communities_, rule
        assert model.set_params(rule=rule, threshold=threshold).get_communities() == fit.communities_
        assert fit.get_communities() == fit.communities_
    assert model.communities_ != fit.communities_, "these are of the fit"
    with pytest.raises(InputError, match="rule 'best' is not one of"):
        model.get_communities("best")


def test_without_the_chain_rules_go_by_what_was_kept(fitted):
    model = fast(20, top=4, random_state=3, keep_chain=False).fit(RING)
    assert model.communities_ == fitted.communities_
    assert model.get_communities("threshold", 0.3) == fitted.get_communities("threshold", 0.3)
    with pytest.raises(InputError, match="rule top at 5 looks at the 5 largest shares.* 4 were kept.*top=5"):
        model.get_communities("top", 5)
    with pytest.raises(InputError, match="the chain was not kept.*keep_chain=True"):
        model.partial_fit()


def test_probabilities_are_of_whole_rows(fitted):
    full = fast(20, top=20, random_state=3).fit(RING)
    pairs = [(0, 1), (5, 20), (7, 8)]
    m = full.detection_.memberships
    a, b = (m.dense()[list(end)].astype(float) for end in zip(*pairs, strict=True))
    both = a * b
    right = both @ m.beta + m.delta * (1 - both.sum(axis=1)).clip(min=0)
    assert fitted.predict_link_proba(np.array(pairs)) == pytest.approx(right, rel=1e-12)
    assert fitted.predict_link_proba([]).shape == (0,)
    assert fitted.detection_.predict_links(pairs) == pytest.approx(right, rel=0.05), "of one byte an entry"
    with pytest.raises(InputError, match="77 is no vertex of the graph; its ids are such as 0, 1, 2"):
        fitted.predict_link_proba([(0, 77)])


def test_score(fitted):
    pairs, links = [(0, 1), (3, 17)], [1, 0]
    p = fitted.predict_link_proba(pairs)
    assert fitted.score(pairs, links) == pytest.approx((np.log(p[0]) + np.log1p(-p[1])) / 2)
    assert fitted.score(pairs, np.array(links, bool), [3, 1]) == pytest.approx((3 * np.log(p[0]) + np.log1p(-p[1])) / 4)
    assert fitted.score() == fitted.record_["held_out"]["validation"]["log_likelihood"]
    tested = fast(3, test=0.1).fit(RING)
    assert tested.score() == tested.record_["held_out"]["test"]["log_likelihood"]
    with pytest.raises(InputError, match="held out no pairs"):
        fast(3, validation=0.0).fit(RING).score()
    for y, words in ((None, "score needs y"), ([1], "give 2 values"), ([1, 2], "1 for a link and 0 for a non-link")):
        with pytest.raises(InputError, match=words):
            fitted.score(pairs, y)
    with pytest.raises(InputError, match="at least one pair"):
        fitted.score([], [])
    with pytest.raises(InputError, match="one weight for each"):
        fitted.score(pairs, links, [1])
    with pytest.raises(InputError, match="sample_weight: could not convert"):
        fitted.score(pairs, links, ["a", "b"])


def test_it_finds_planted_communities_and_predicts_links():
    """The example of the documentation: LFR with overlap, by the defaults."""
    graph = mmsbgen.graph.as_graph(DATA / "lfr-n1000-k28.txt.gz")
    model = MMSB(28, device=PROCESSOR, random_state=0).fit(graph)
    from mmsbgen.scores import evaluate, read_cover

    found = [[str(i) for i in members] for members in model.communities_]
    assert evaluate(found, read_cover(DATA / "lfr-n1000-k28.cmty.txt.gz")).onmi > 0.9
    rng = np.random.default_rng(0)
    links = graph.ids[graph.links[rng.choice(graph.n_links, 200)]]
    others = graph.ids[rng.integers(0, 1000, (200, 2))]
    assert model.predict_link_proba(links).mean() > 5 * model.predict_link_proba(others).mean()


IDS = [0, "zero", (0, "a"), frozenset({"x", "y"}), 2.5, b"\x00", date(2020, 2, 3), 2**80, True, "", "\t", None]


def odd_links(seed: int) -> list[tuple[Any, Any]]:
    """A ring of all odd ids with chords, shuffled, ends swapped at random."""
    rng = np.random.default_rng(seed)
    n = len(IDS)
    links = [(IDS[a], IDS[(a + step) % n]) for a in range(n) for step in (1, 2)]
    order = rng.permutation(len(links))
    return [links[i] if rng.random() < 0.5 else links[i][::-1] for i in order]


def test_ids_of_any_kind_in_any_order_give_the_same_partition(tmp_path):
    first, second = (fast(3, random_state=5).fit(odd_links(seed)) for seed in (0, 1))
    assert set(first.ids_.tolist()) == set(IDS)
    assert [type(i) for i in first.ids_.tolist()] == [type(i) for i in second.ids_.tolist()]
    assert first.communities_ == second.communities_
    assert np.array_equal(first.memberships_, second.memberships_)
    assert {name for one in first.communities_ for name in one} <= set(IDS)
    assert fast(3, random_state=6).fit(odd_links(0)).memberships_.tolist() != first.memberships_.tolist()
    back = MMSB.load(first.save(tmp_path / "odd.npz"))
    assert back.ids_.tolist() == first.ids_.tolist()
    assert [type(i) for i in back.ids_.tolist()] == [type(i) for i in first.ids_.tolist()]
    assert back.communities_ == first.communities_
