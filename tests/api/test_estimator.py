"""The estimator: scikit-learn's conventions, what it finds, going on, and its file."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import sklearn.base
import sklearn.utils
import sklearn.utils.estimator_checks as checks
import sklearn.utils.validation

import mmsbgen
from mmsbgen import MMSB
from mmsbgen.errors import InputError, NotFittedError, ParameterError
from mmsbgen.estimator.mmsb import OPTIONS, InterruptedFit
from mmsbgen.sampler.options import Options, Schedule

pytestmark = pytest.mark.opencl

DATA = Path(__file__).parents[1] / "data"
RING = [(a, (a + step) % 30) for a in range(30) for step in (1, 2)]
FAST = {"device": "pocl", "iterations": 6, "start": "random", "mini_batch_size": 8, "n_partners": 4}


def fast(k: int = 5, **params: Any) -> MMSB:
    return MMSB(k, **{**FAST, **params})


@pytest.fixture(scope="module")
def fitted() -> MMSB:
    return fast(20, top=4, random_state=3).fit(RING)


# Conventions ---------------------------------------------------------------------------------------------------


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


# What it finds -------------------------------------------------------------------------------------------------


def test_it_finds_what_detect_finds(fitted):
    options = {**FAST, "random_state": 3, "top": 4}
    found = mmsbgen.detect(np.array(RING), 20, **options)
    assert fitted.communities_ == found.communities
    assert np.array_equal(fitted.memberships_, found.memberships.dense())
    assert np.array_equal(fitted.strengths_, found.memberships.beta)
    assert fitted.community_labels_ == list(found.cover.labels)
    assert (fitted.n_vertices_in_, fitted.n_links_in_, fitted.n_communities_) == (30, 60, 20)
    assert (fitted.n_iter_, fitted.seed_, fitted.interrupted_) == (6, 3, False)
    assert fitted.trace_[-1]["iteration"] == 6
    assert fitted.record_["iterations"] == 6
    assert fitted.ids_.tolist() == list(range(30))
    assert fast(20, top=4, random_state=3).fit_predict(RING).tolist() == fitted.labels_.tolist()
    places = {label: members for label, members in zip(fitted.community_labels_, fitted.communities_, strict=True)}
    for vertex, label in enumerate(fitted.labels_.tolist()):
        inside = [one for one, members in places.items() if vertex in members]
        assert label == (max(inside, key=lambda one: fitted.memberships_[vertex, one]) if inside else -1)


def test_sparse_memberships(fitted):
    model = copy.deepcopy(fitted).set_params(sparse_output=True)
    assert isinstance(model.memberships_, scipy.sparse.csr_array)
    assert model.memberships_.has_sorted_indices
    assert np.array_equal(model.memberships_.toarray(), fitted.memberships_)
    assert model.memberships_.nnz == 30 * 4
    assert model.memberships_ is model.memberships_


def test_memberships_that_do_not_fit_are_refused(fitted, monkeypatch):
    model = copy.deepcopy(fitted)
    model._cache.clear()
    monkeypatch.setattr("mmsbgen.estimator.fitted.available_host_memory", lambda: (100, "a test"))
    with pytest.raises(InputError, match="take 2.4 kB, and a test leaves 100 B: set sparse_output=True"):
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
    for rule, threshold in (("threshold", 0.02), ("link", 0.01), ("top", 3), ("share", 0.05)):
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
    a, b = (full.memberships_[list(end)].astype(float) for end in zip(*pairs, strict=True))
    both = a * b
    right = both @ full.strengths_ + full.detection_.memberships.delta * (1 - both.sum(axis=1)).clip(min=0)
    assert fitted.predict_link_proba(np.array(pairs)) == pytest.approx(right, rel=1e-12)
    assert fitted.predict_link_proba([]).shape == (0,)
    assert fitted.detection_.predict_links(pairs) != pytest.approx(right, rel=1e-3), "of the kept entries"
    with pytest.raises(InputError, match="77 is no vertex of the graph"):
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
    model = MMSB(28, device="pocl", random_state=0).fit(graph)
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


# Going on ------------------------------------------------------------------------------------------------------

COURSE = {"evaluate_every": 4, "burn_in_iterations": 5, "test": 0.1, "random_state": 2}


@pytest.mark.parametrize(
    "extra",
    [{}, {"mini_batch": "random-node"}, {"noise": True, "average": True}],
    ids=["block", "stars", "block with noise, averaged"],
)
def test_partial_fit_gives_the_bits_of_a_longer_run(extra):
    options = {**COURSE, **extra}
    straight = fast(4, **options, iterations=21).fit(RING)
    parts = fast(4, **options, iterations=10).fit(RING)
    assert parts.partial_fit(iterations=4) is parts
    assert parts.n_iter_ == 14
    parts.partial_fit(RING, iterations=7)
    assert parts.n_iter_ == straight.n_iter_ == 21
    assert np.array_equal(parts.memberships_, straight.memberships_)
    assert np.array_equal(parts.strengths_, straight.strengths_)
    assert parts.communities_ == straight.communities_
    without_time = [[{k: v for k, v in row.items() if k != "seconds"} for row in m.trace_] for m in (parts, straight)]
    assert without_time[0] == without_time[1]
    assert parts.score() == straight.score()


def test_partial_fit_begins_goes_on_and_adds_what_it_should(tmp_path):
    model = fast(3).partial_fit(RING)
    assert np.array_equal(model.memberships_, fast(3).fit(RING).memberships_)
    assert model.partial_fit().n_iter_ == 12, "as many as fit makes"
    assert model.partial_fit(iterations=0).n_iter_ == 12
    assert fast(3).partial_fit(RING, iterations=2).n_iter_ == 2
    open_run = MMSB(3, device="pocl", start="random").fit(RING)
    end = open_run.n_iter_
    assert open_run.partial_fit().n_iter_ == end + 50, "30 vertices are one block"
    with pytest.raises(InputError, match="goes on with the graph that was fitted, list; for another one call fit"):
        model.partial_fit([(0, 1), (1, 2)])
    for bad in (-1, "x", 2.5):
        with pytest.raises(InputError, match=f"iterations={bad!r}"):
            model.partial_fit(iterations=bad)
    model.set_params(alpha=0.5, rule="threshold", threshold=0.9)
    with pytest.raises(ParameterError, match="alpha was None when the model was fitted and is 0.5 now"):
        model.partial_fit()
    assert model.n_iter_ == 12
    assert model.set_params(alpha=None).partial_fit().n_iter_ == 18
    assert model.communities_ == model.get_communities("threshold", 0.9)


def test_a_number_chosen_by_held_out_pairs_stays():
    model = MMSB(device="pocl", random_state=1).fit(nx.disjoint_union(nx.complete_graph(12), nx.complete_graph(12)))
    k = model.n_communities_
    assert model.record_["tried"]
    assert model.partial_fit(iterations=3).n_communities_ == k
    assert model.n_communities == "auto"


def test_a_fit_that_fails_leaves_the_one_before(fitted):
    model = copy.deepcopy(fitted)
    for graph, params, words in (
        (np.zeros((3, 3)), {}, "third column"),
        (RING, {"alpha": -1}, "alpha=-1"),
        (RING, {"schedule": 3}, "schedule=3: give three numbers"),
        (RING, {"eta": "x"}, "eta='x'"),
        (RING, {"random_state": "x"}, "random_state='x': give an integer"),
        (RING, {"n_communities": 0}, "n_communities=0"),
        (RING, {"n_communities": "many"}, "n_communities='many'"),
        (RING, {"rule": "best"}, "rule 'best'"),
        (RING, {"top": 0}, "top=0"),
        (RING, {"top": 2.5}, "top=2.5"),
        (RING, {"alpha": "x"}, "alpha='x': it must be a number"),
        (RING, {"validation": []}, r"validation=\[\]: it must be a number"),
        (RING, {"threshold": "x"}, "threshold 'x' of rule share: it must be a number"),
        (RING, {"device": "toaster"}, "toaster"),
    ):
        with pytest.raises(InputError, match=words):
            sklearn.base.clone(model).set_params(**params).fit(graph)
        with pytest.raises(InputError, match=words):
            model.set_params(**params).fit(graph)
        assert np.array_equal(model.memberships_, fitted.memberships_)
        model.set_params(**fitted.get_params())
    assert model.partial_fit(iterations=1).n_iter_ == 7


def test_random_states():
    by_generator = fast(3, random_state=np.random.default_rng(4))
    first, second = by_generator.fit(RING).seed_, by_generator.fit(RING).seed_
    assert first != second
    again = fast(3, random_state=first).fit(RING)
    by_generator.set_params(random_state=np.random.default_rng(4)).fit(RING)
    assert np.array_equal(again.memberships_, by_generator.memberships_)
    assert by_generator.partial_fit(iterations=1).seed_ == first
    assert fast(3, random_state=np.random.RandomState(1)).fit(RING).seed_ > 0
    assert fast(3).fit(RING).seed_ == 0
    numpy_numbers = fast(np.int64(3), alpha=np.float32(0.5), schedule=(0.2, 100, 0.6), random_state=np.uint8(7)).fit(
        RING
    )
    same = fast(3, alpha=0.5, schedule=Schedule(0.2, 100, 0.6), random_state=7).fit(RING)
    assert np.array_equal(numpy_numbers.memberships_, same.memberships_)


def test_an_interrupted_fit_can_go_on():
    straight = fast(4, iterations=500, evaluate_every=50, refine=False).fit(RING)
    model = fast(4, iterations=500, evaluate_every=50, refine=False)
    before, end = signal.getsignal(signal.SIGINT), time.monotonic() + 60

    def interrupt() -> None:
        # Until the run listens, the signal would end the tests.
        while signal.getsignal(signal.SIGINT) == before:
            if time.monotonic() > end:
                return
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.warns(InterruptedFit, match=r"interrupted after iteration \d+; partial_fit\(\) goes on"):
        model.fit(RING)
    thread.join()
    assert model.interrupted_
    assert model.n_iter_ < 500
    assert model.partial_fit().n_iter_ == 500
    assert not model.interrupted_
    assert np.array_equal(model.memberships_, straight.memberships_)


# Files and copies ----------------------------------------------------------------------------------------------


def test_save_and_load(fitted, tmp_path):
    path = fitted.save(tmp_path / "model.npz")
    back = MMSB.load(str(path))
    assert back.get_params() == fitted.get_params()
    for name in ("memberships_", "labels_", "strengths_", "ids_"):
        assert np.array_equal(getattr(back, name), getattr(fitted, name)), name
        assert getattr(back, name).dtype == getattr(fitted, name).dtype, name
    for name in ("communities_", "community_labels_", "n_iter_", "seed_", "trace_", "record_", "interrupted_"):
        assert getattr(back, name) == getattr(fitted, name), name
    assert back.get_communities("link", 0.01) == fitted.get_communities("link", 0.01)
    assert np.array_equal(back.predict_link_proba([(0, 1)]), fitted.predict_link_proba([(0, 1)]))
    straight = fast(20, top=4, random_state=3, iterations=9, evaluate_every=1).fit(RING)
    on = fast(20, top=4, random_state=3, evaluate_every=1).fit(RING)
    on = MMSB.load(on.save(tmp_path / "on.npz")).partial_fit(iterations=3)
    assert np.array_equal(on.memberships_, straight.memberships_)
    small = fitted.save(tmp_path / "small.npz", chain=False)
    with np.load(path) as whole, np.load(small) as archive:
        assert set(whole) - set(archive) == {"chain"}
    with pytest.raises(InputError, match="the chain was not kept"):
        MMSB.load(small).partial_fit()
    odd = fast(3, schedule=(0.2, 100, 0.6), eta=[1, 2], random_state=np.random.default_rng(0), database=tmp_path / "db")
    back = MMSB.load(odd.fit(RING).save(tmp_path / "odd.npz"))
    assert (back.schedule, back.eta, back.random_state) == (Schedule(0.2, 100, 0.6), (1.0, 2.0), odd.seed_)
    assert back.partial_fit(iterations=1).n_iter_ == 7


def test_files_that_are_no_models(fitted, tmp_path):
    path = fitted.save(tmp_path / "model.npz")
    whole = path.read_bytes()
    with pytest.raises(InputError, match="there is no file"):
        MMSB.load(tmp_path / "absent")
    for name, content in (("text", b"hello"), ("empty", b""), ("cut", whole[: len(whole) // 2])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="no model of mmsbgen"):
            MMSB.load(tmp_path / name)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(InputError, match="no model of mmsbgen"):
        MMSB.load(tmp_path / "other.npz")
    with pytest.raises(InputError, match="no model of mmsbgen"):
        MMSB.load(tmp_path)

    def changed(name: str, change: Any) -> Path:
        with np.load(path) as archive:
            arrays = dict(archive)
        arrays[name] = change(arrays[name])
        np.savez(tmp_path / "changed.npz", **arrays)
        return tmp_path / "changed.npz"

    def meta(**new: Any) -> Any:
        return lambda old: np.frombuffer(json.dumps(json.loads(old.tobytes()) | new).encode(), np.uint8)

    with pytest.raises(InputError, match=r"written by mmsbgen 99\.0, this is .*: load it with that version"):
        MMSB.load(changed("meta", meta(format=2, version="99.0")))
    with pytest.raises(InputError, match="it is a cake"):
        MMSB.load(changed("meta", meta(kind="cake")))
    for name, change in (
        ("links", lambda a: a[:-1]),
        ("links", lambda a: a + 100),
        ("ids", lambda a: a + 1),
        ("ids", lambda a: a.astype(object)),
        ("communities", lambda a: a + 20),
        ("shares", lambda a: a[:, :2]),
        ("cover_members", lambda a: a + 30),
        ("cover_sizes", lambda a: a[1:]),
        ("cover_labels", lambda a: a - 20),
    ):
        with pytest.raises(InputError, match="no model of mmsbgen"):
            MMSB.load(changed(name, change))
    damaged = bytearray(whole)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("shares.npy").header_offset
    damaged[at + 200] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(InputError, match="damaged or no model"):
        MMSB.load(tmp_path / "damaged")


def test_saving_is_whole_or_not_at_all(fitted, tmp_path):
    class Odd:
        def __repr__(self) -> str:
            return "odd"

    thing = Odd()
    model = fast(3).fit([(thing, 1), (1, 2), (2, 3), (3, thing)])
    assert thing in model.ids_.tolist()
    (tmp_path / "before").write_text("mine")
    with pytest.raises(InputError, match="id odd is a .*Odd, which cannot be written to a file"):
        model.save(tmp_path / "before")
    assert (tmp_path / "before").read_text() == "mine"
    with pytest.raises(InputError, match="cannot write"):
        fitted.save(tmp_path / "before" / "below")
    assert [p.name for p in tmp_path.iterdir()] == ["before"]


def test_copies_and_pickles_have_chains_of_their_own(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = fast(3).fit(RING)
    (folder,) = tmp_path.iterdir()
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)]
    assert len(list(tmp_path.iterdir())) == 3, "a shallow copy shares its chain"
    expected = copy.deepcopy(model).partial_fit(iterations=2).memberships_
    del model
    for other in copies:
        assert np.array_equal(other.partial_fit(iterations=2).memberships_, expected)
    gc.collect()
    assert not folder.exists(), "the chain that nobody goes on from is gone"
    del copies, other
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_forked_process_leaves_the_chain_to_its_parent(tmp_path):
    """In an interpreter of its own, as forking a process with threads is no good."""
    code = (
        "import os, sys, numpy as np\n"
        "from mmsbgen.sampler.kept import KeptChain\n"
        "chain = KeptChain.new()\n"
        "chain.path.write_bytes(b'rows')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(chain.written, len(os.listdir(sys.argv[1])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True 1\n"
    assert not list(tmp_path.iterdir()), "the parent has taken it away at its end"


def test_without_a_folder_for_the_chain_nothing_begins(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(InputError, match=r"no place for the chain .*TMPDIR.*keep_chain=False"):
        fast(3).fit(RING)
    assert fast(3, keep_chain=False).fit(RING).n_iter_ == 6


def test_a_fit_that_fails_leaves_no_chain_and_promises_none(monkeypatch, tmp_path):
    def ended(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("mmsbgen.api.cover", ended)
    with pytest.raises(KeyboardInterrupt) as raised:
        fast().fit(RING)
    assert not getattr(raised.value, "__notes__", ())
    del raised
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_the_chain_there_is_a_result(monkeypatch, tmp_path, capsys):
    from mmsbgen.sampler import checkpoint

    def full(*args: Any) -> None:
        raise InputError("cannot write it: no space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    model = fast(3, verbose=True).fit(RING)
    assert model.n_iter_ == 6
    assert "Going on without a checkpoint: cannot write it: no space" in capsys.readouterr().err
    with pytest.raises(InputError, match="the chain was not kept"):
        model.partial_fit()
