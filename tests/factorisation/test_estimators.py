"""Estimators of matrix factorisation: what they learn, that they repeat, and scikit-learn's and implicit's manners."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mmsbgen.base.errors import InputError, NotFittedError
from mmsbgen.factorisation import ALS, MatrixFactorization
from mmsbgen.factorisation.fit_loop import InterruptedFactorisation, Scaled, fit_sweeps
from mmsbgen.families.mf import reference
from mmsbgen.families.mf.generated import generated_ratings, order_of, start_factors
from mmsbgen.families.mf.reference import Factors, Steps
from mmsbgen.families.mf.schedules import SCHEDULES
from mmsbgen.ratings import Ratings, as_ratings
from tests.devices import PROCESSOR

DEVICE = PROCESSOR


@pytest.fixture(scope="module")
def planted() -> tuple[Ratings, Ratings]:
    """Ratings of the shape of MovieLens 100K with a planted structure of rank 8, and a tenth of them."""
    return as_ratings(generated_ratings(943, 1682, 100_000, 0)).held_out(0.1, 0)


@pytest.fixture(scope="module")
def small() -> Ratings:
    return as_ratings(generated_ratings(60, 40, 900, 1))


def rmse_of_biases(train: Ratings, test: Ratings) -> float:
    mean, b, c = train.values.mean(), np.zeros(train.user_ids.size), np.zeros(train.item_ids.size)
    for _ in range(15):
        c = np.bincount(train.items, train.values - mean - b[train.users], c.size)
        c /= np.bincount(train.items, minlength=c.size) + 5
        b = np.bincount(train.users, train.values - mean - c[train.items], b.size)
        b /= np.bincount(train.users, minlength=b.size) + 5
    return float(np.sqrt(np.mean((test.values - np.clip(mean + b[test.users] + c[test.items], 1, 5)) ** 2)))


@pytest.mark.slow
def test_defaults_beat_biases_by_the_margin_of_float64(planted: tuple[Ratings, Ratings], processor: Any) -> None:
    """The float64 run takes the same steps in a random order."""
    train, test = planted
    biases = rmse_of_biases(train, test)
    scaled, epochs = Scaled.of(train.values), 30
    x, order = (
        Factors(*start_factors(0, 943, 1682, 16, bias=True), np.zeros(943), np.zeros(1682)),
        order_of(0, len(train)),
    )
    cells = scaled.cells(train)
    for t in range(epochs):
        how = Steps(0.02 / (1 + 0.01 * t**1.5), 0.1, 0.1, 0.1, 0.0)
        x, _ = reference.sweep(x, cells.users[order], cells.items[order], cells.ratings[order], how)
    left = reference.errors(x, test.users, test.items, (test.values - scaled.mean) / scaled.scale, 0.0)
    exact = float(np.sqrt(np.mean((left * scaled.scale) ** 2)))
    assert exact < biases - 0.008
    for schedule in ("tiles", "adds", "locks", "hogwild"):
        fitted = MatrixFactorization(16, n_epochs=epochs, schedule=schedule, holdout=None, device=DEVICE).fit(train)
        assert fitted.evaluate(_with_ids(test))["rmse"] < biases - 0.85 * (biases - exact), schedule
    solved = ALS(16, holdout=None, device=DEVICE).fit(train)
    assert solved.evaluate(_with_ids(test))["rmse"] < exact


def _with_ids(test: Ratings) -> Any:
    return test.user_ids[test.users], test.item_ids[test.items], test.values


def test_the_same_seed_gives_the_same_bits(small: Ratings, processor: Any) -> None:
    def fitted(seed: int, **more: Any) -> MatrixFactorization:
        return MatrixFactorization(5, n_epochs=4, deterministic=True, random_state=seed, device=DEVICE, **more).fit(
            small
        )

    one, again, other = fitted(1), fitted(1), fitted(2)
    assert one.user_factors.tobytes() == again.user_factors.tobytes()
    assert one.item_factors.tobytes() == again.item_factors.tobytes()
    assert one.item_factors.tobytes() != other.item_factors.tobytes()
    assert one.schedule_ == "tiles"
    with pytest.raises(InputError, match="only tiles, matchings, .* give the same bits again"):
        fitted(1, schedule="adds")
    for solver in ("cholesky", "cg"):
        solved = [ALS(5, n_epochs=3, solver=solver, device=DEVICE).fit(small).user_factors.tobytes() for _ in range(2)]
        assert solved[0] == solved[1]


@pytest.mark.slow
def test_every_schedule_comes_to_the_same_error(small: Ratings, processor: Any) -> None:
    def fitted(schedule: str, **more: Any) -> float:
        model = MatrixFactorization(3, n_epochs=8, schedule=schedule, device=DEVICE, **more).fit(small)
        return float(model.history_[-1]["rmse"])

    tiles = fitted("tiles")
    assert tiles < 0.95 * small.values.std()
    assert {name: fitted(name) for name in SCHEDULES} == pytest.approx(dict.fromkeys(SCHEDULES, tiles), rel=0.01)
    assert fitted("auto", storage="bfloat16") == pytest.approx(tiles, rel=0.01)
    assert fitted("nodes", storage="bfloat16") == pytest.approx(tiles, rel=0.01)
    assert fitted("adds", storage="bfloat16") == pytest.approx(tiles, rel=0.01)


def test_a_matrix_of_rank_one_is_found(processor: Any) -> None:
    rng = np.random.default_rng(0)
    u, v = (each.ravel() for each in np.meshgrid(np.arange(30), np.arange(20), indexing="ij"))
    r = np.outer(rng.uniform(1, 2, 30), rng.uniform(1, 2, 20))[u, v]
    fitted = MatrixFactorization(1, n_epochs=200, learning_rate=0.1, decay=0.0, reg=0.0, device=DEVICE).fit((u, v, r))
    assert fitted.history_[-1]["rmse"] < 1e-3


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_least_squares_never_raise_their_objective(solver: str, small: Ratings, processor: Any) -> None:
    def objective(epochs: int) -> float:
        how = {"n_epochs": epochs, "reg": 0.3, "weighted": False, "solver": solver}
        model = ALS(6, **how, device=DEVICE).fit(small).model_
        scale = float(small.values.std())
        left = small.values - model.predicted(small.users.astype(int), small.items.astype(int), False)
        lengths = ((model.p.astype(float) ** 2).sum() + (model.q.astype(float) ** 2).sum()) / scale
        return float((left**2).sum() / scale**2 + 0.3 * lengths)

    found = [objective(epochs) for epochs in (1, 2, 4, 8)]
    assert all(later <= earlier * (1 + 1e-5) for earlier, later in itertools.pairwise(found))


@pytest.mark.slow
def test_implicit_feedback_is_solved_as_implicit_does(processor: Any) -> None:
    """The loss of Hu, Koren and Volinsky, which both descend, from other starts."""
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    users, items, counts = generated_ratings(200, 150, 4000, 2)
    matrix = sparse.csr_array((counts, (users, items)), shape=(200, 150))

    def loss(p: Any, q: Any) -> float:
        weight, wanted = matrix.toarray() + 1.0, (matrix.toarray() > 0).astype(float)
        return float((weight * (wanted - p @ q.T) ** 2).sum() + 5.0 * ((p**2).sum() + (q**2).sum()))

    ours, stepped = (
        ALS(8, n_epochs=30, reg=5.0, implicit=True, solver=solver, device=DEVICE).fit(matrix)
        for solver in ("cholesky", "cg")
    )
    shifted = matrix.astype(np.float32).tocsr()
    shifted.data += 1  # its confidence is what is given, ours 1 more
    with threadpool_limits(1, "blas"):
        theirs = AlternatingLeastSquares(8, regularization=5.0, iterations=30, use_cg=False, random_state=0)
        theirs.fit(sparse.csr_matrix(shifted), show_progress=False)
    for each in (ours, stepped):
        assert loss(each.user_factors, each.item_factors) < 1.01 * loss(theirs.user_factors, theirs.item_factors)
    ids, scores = ours.recommend(0, N=5)
    assert not set(ids.tolist()) & set(items[users == 0].tolist())
    assert list(scores) == sorted(scores, reverse=True)
    with pytest.raises(InputError, match="predicts preferences"):
        ours.score(matrix)
    with pytest.raises(InputError, match="has a count of -1; implicit feedback has none below 0"):
        ALS(implicit=True, device=DEVICE).fit(([1], [1], [-1.0]))


@pytest.mark.parametrize("k", [8, 32])
def test_fitting_does_not_stop_before_factors_have_grown(k: int, processor: Any) -> None:
    """Few ratings of a planted rank: the held-out error rises first."""
    random = np.random.default_rng(1)
    p, q = random.normal(0, 0.6, (300, 4)), random.normal(0, 0.6, (120, 4))
    cells = random.permutation(300 * 120)[:7000]
    u, v = cells // 120, cells % 120
    values = 3.4 + (p[u] * q[v]).sum(1) + random.normal(0, 0.3, u.size)
    fitted = MatrixFactorization(k, holdout=0.1, device=processor.info.spec)
    fitted.fit(np.stack([u[:6000], v[:6000]], 1), values[:6000])
    error = float(np.sqrt(np.mean((fitted.predict(np.stack([u[6000:], v[6000:]], 1)) - values[6000:]) ** 2)))
    # Without noise it would be 0; the planted products have deviation .72.
    assert error < 0.9 * values[6000:].std()


def test_fitting_stops_by_held_out_ratings_and_keeps_the_best(small: Ratings, processor: Any) -> None:
    fitted = MatrixFactorization(20, n_epochs=400, reg=0.0, learning_rate=0.1, holdout=0.3, patience=3, device=DEVICE)
    fitted.fit(small)
    errors = [each["rmse"] for each in fitted.history_]
    assert len(errors) < 400
    assert int(np.argmin(errors)) + 1 == fitted.n_iter_ == len(errors) - 3
    train, test = small.held_out(0.3, 0)
    assert fitted.evaluate(_with_ids(test))["rmse"] == pytest.approx(min(errors), rel=1e-4)
    other = MatrixFactorization(4, n_epochs=9, holdout=_with_ids(test), device=DEVICE).fit(train)
    best = min(each["rmse"] for each in other.history_)
    assert other.evaluate(_with_ids(test))["rmse"] == pytest.approx(best, rel=1e-4)


def test_unknown_ids_are_predicted_by_what_is_known(small: Ratings, processor: Any) -> None:
    fitted = MatrixFactorization(3, n_epochs=3, device=DEVICE).fit(small)
    model = fitted.model_
    got = fitted.predict([-7, 0, -7], [0, "x", -7], clip=False)
    np.testing.assert_allclose(got, [model.mean + model.c[0], model.mean + model.b[0], model.mean])
    assert fitted.evaluate(([0, -7], [0, 0], [3, 3]))["unknown_users"] == 1
    assert fitted.predict(np.array([[0, 0]])).shape == (1,)
    named = MatrixFactorization(3, n_epochs=1, device=DEVICE).fit((["7", "x"], [1, 2], [3.0, 4.0]))
    assert named.evaluate(([7], [1], [3.0]))["unknown_users"] == 0
    assert fitted.predict([0], [0], clip=True)[0] <= 5
    with pytest.raises(InputError, match="give as many of each"):
        fitted.predict([1, 2], [1])
    with pytest.raises(InputError, match="user 99 is not in the model"):
        fitted.recommend(99)
    with pytest.raises(NotFittedError, match="call fit with ratings first"):
        MatrixFactorization().predict([1], [1])


def test_recommendations_and_similar_items_are_numpys(small: Ratings, processor: Any) -> None:
    fitted = MatrixFactorization(6, n_epochs=5, device=DEVICE).fit(small)
    model, p, q = fitted.model_, fitted.user_factors, fitted.item_factors
    score = model.mean + model.b[3] + model.c + q.astype(float) @ p[3].astype(float)
    score[small.items[small.users == 3]] = -np.inf
    ids, scores = fitted.recommend(3, N=7)
    assert ids.tolist() == np.argsort(-score, kind="stable")[:7].tolist()
    np.testing.assert_allclose(scores, score[ids], rtol=1e-6)
    every, _ = fitted.recommend(3, N=1000, filter_already_liked_items=False)
    assert sorted(every.tolist()) == list(range(40))
    rest, _ = fitted.recommend(3, user_items=([3] * 2, ids[:2], [1, 1]), N=1)
    assert rest[0] == ids[2]
    several, _ = fitted.recommend([3, 5], N=4)
    assert several.shape == (2, 4)
    like, cosine = fitted.similar_items(8, N=5)
    assert (like[0], cosine[0]) == (8, 1.0)
    lengths = np.linalg.norm(q, axis=1)
    np.testing.assert_allclose(cosine, (q @ q[8])[like] / lengths[like] / lengths[8], rtol=1e-5)


def test_partial_fit_learns_new_users_and_keeps_the_rest(small: Ratings, processor: Any) -> None:
    fitted = MatrixFactorization(4, n_epochs=5, device=DEVICE).fit(small)
    before, untouched = fitted.user_factors.copy(), np.arange(60) != 2
    fitted.partial_fit((["new", "new", 2], [1, "thing", 5], [5, 5, 1]))
    assert fitted.user_factors.shape == (61, 4)
    np.testing.assert_allclose(fitted.user_factors[:60][untouched], before[untouched], rtol=1e-6)
    assert not np.array_equal(fitted.user_factors[2], before[2])
    assert fitted.predict(["new"], ["thing"])[0] > fitted.predict(["?"], ["?"])[0]
    assert "thing" not in fitted.recommend("new", N=40)[0].tolist()
    with pytest.raises(InputError, match="n_factors=9: the fit has 4"):
        fitted.set_params(n_factors=9).partial_fit(small)


def test_rows_without_ratings_do_not_enter(processor: Any) -> None:
    matrix = sparse.coo_array((np.ones(6) * [1, 2, 3, 4, 5, 1], ([0, 0, 1, 1, 4, 4], [0, 1, 1, 3, 0, 3])), shape=(5, 6))
    fitted = MatrixFactorization(9, n_epochs=3, device=DEVICE).fit(matrix)
    assert not fitted.user_factors[[2, 3]].any()
    assert not fitted.item_factors[[2, 4, 5]].any()
    with pytest.raises(InputError, match="has no rating in training"):
        fitted.similar_items(2)


@pytest.mark.parametrize("scale", [1e9, 1e-6])
def test_ratings_of_any_range_are_fitted_alike(small: Ratings, scale: float, processor: Any) -> None:
    given = small.user_ids[small.users], small.item_ids[small.items]
    one = MatrixFactorization(4, n_epochs=5, device=DEVICE).fit((*given, small.values))
    other = MatrixFactorization(4, n_epochs=5, device=DEVICE).fit((*given, small.values * scale))
    np.testing.assert_allclose(other.predict([1, 2], [3, 4]) / scale, one.predict([1, 2], [3, 4]), rtol=1e-4)


def test_constant_ratings_one_rating_and_more_factors_than_users(processor: Any) -> None:
    for given in (([1], [2], [3.0]), ([1, 2, 3], [1, 1, 2], [0.0, 0.0, 0.0])):
        for estimator in (MatrixFactorization(40, n_epochs=2, device=DEVICE), ALS(40, n_epochs=2, device=DEVICE)):
            assert estimator.fit(given).predict([1], [1])[0] == pytest.approx(given[2][0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_factors": 0}, "n_factors=0: give a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: give a number above 0"),
        ({"reg": float("nan")}, "reg=nan: give a number of at least 0"),
        ({"schedule": "fast"}, "schedule='fast': give one of auto, tiles, adds, hogwild, locks"),
        ({"storage": "float16"}, "storage='float16': give one of float32, bfloat16"),
        ({"random_state": "x"}, "random_state='x': give an integer"),
        ({"holdout": 2.0}, "holdout=2.0 of 900 ratings"),
        ({"learning_rate": 50.0}, r"not finite any more after sweep \d with learning_rate=50"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str, small: Ratings, processor: Any) -> None:
    with pytest.raises(InputError, match=message):
        MatrixFactorization(**{"n_factors": 4, "n_epochs": 9, "device": DEVICE} | parameters).fit(small)


@pytest.mark.slow
def test_scikit_learn_takes_it(small: Ratings, processor: Any) -> None:
    from sklearn.base import clone
    from sklearn.model_selection import KFold, cross_val_score

    pairs = np.stack([small.users, small.items], axis=1)
    estimator = clone(MatrixFactorization(3, n_epochs=8, device=DEVICE).set_params(reg=0.3))
    assert repr(estimator) == f"MatrixFactorization(n_factors=3, n_epochs=8, reg=0.3, device='{PROCESSOR}')"
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(estimator, pairs, small.values, cv=folds, error_score="raise")
    assert -float(small.values.std()) < np.mean(scores) < 0


@pytest.mark.slow
def test_ctrl_c_leaves_the_best_factors(small: Ratings, processor: Any) -> None:
    fitted = MatrixFactorization(4, n_epochs=10**6, device=DEVICE)
    threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.warns(InterruptedFactorisation, match=r"stopped in sweep \d+, with the best factors so far"):
        fitted.fit(small)
    assert time.monotonic() - begin < 60
    assert fitted.interrupted_
    assert fitted.n_iter_ == len(fitted.history_)
    assert fitted.evaluate(_with_ids(small))["rmse"] < small.values.std()


def test_ids_are_the_same_as_numbers_and_as_text(processor: Any) -> None:
    """An ISBN that ends with X makes all items of a file texts, and those of another file are numbers."""
    rng = np.random.default_rng(0)
    cells = [(u, v) for u in range(20) for v in range(8) if rng.random() < 0.7]
    values = [float(1 + (u + v) % 5) for u, v in cells]
    texts, users = [*(str(v) for _, v in cells), "000X"], [*(u for u, _ in cells), 0]
    named = MatrixFactorization(3, n_epochs=2, device=DEVICE).fit((users, texts, [*values, 3.0]))
    numbers = [u for u, _ in cells], [v for _, v in cells], values
    assert named.evaluate(numbers)["unknown_items"] == 0
    counted = MatrixFactorization(3, n_epochs=2, device=DEVICE).fit(numbers)
    told = counted.evaluate((list(map(str, users)), texts, [*values, 3.0]))
    assert (told["unknown_users"], told["unknown_items"]) == (0, 1)
    for one in (counted, named):
        np.testing.assert_array_equal(one.predict(["3", 3], ["5", 5])[0], one.predict([3], [5])[0])
        assert one.predict(["07"], ["05"])[0] == one.predict(["?"], ["?"])[0]
    held = MatrixFactorization(3, n_epochs=2, holdout=numbers, device=DEVICE).fit((users, texts, [*values, 3.0]))
    assert held.history_[held.n_iter_ - 1]["rmse"] == pytest.approx(held.evaluate(numbers)["rmse"], rel=1e-4)
    grown = counted.partial_fit((["3", "new"], ["5", "000X"], [4.0, 2.0]))
    assert (grown.user_ids_.size, grown.item_ids_.size) == (21, 9)


@pytest.mark.parametrize("kind", [MatrixFactorization, ALS])
def test_a_tenth_is_held_out_where_that_tells_enough(kind: Any, tmp_path: Path, processor: Any) -> None:
    users, items, values = generated_ratings(60, 40, 1000, 1)
    file, columns = tmp_path / "odd.csv", ("who", "what", "mark")
    lines = [",".join(columns), *(f"{u},{v},{r}" for u, v, r in zip(users, items, values, strict=True))]
    for count, held_out in ((1000, True), (999, False)):
        file.write_text("\n".join(lines[: count + 1]))
        assert kind(2, n_epochs=1, device=DEVICE).fit(file, columns=columns).held_out_ is held_out
    with pytest.raises(InputError, match="columns=.*pairs"):
        kind(2).fit(np.stack([users, items], axis=1), values, columns=columns)


@pytest.mark.parametrize("kind", [MatrixFactorization, ALS])
def test_what_was_held_out_is_not_recommended(kind: Any, small: Ratings, processor: Any) -> None:
    fitted = kind(3, n_epochs=2, holdout=0.3, device=DEVICE).fit(small)
    for user in range(60):
        assert not set(fitted.recommend(user, N=40)[0].tolist()) & set(small.items[small.users == user].tolist())


def test_users_with_held_out_ratings_only_stay_unknown(processor: Any) -> None:
    given = as_ratings(([*range(30), *range(30)], [0] * 30 + [1] * 30, [float(i % 5) for i in range(60)]))
    fitted = MatrixFactorization(3, n_epochs=2, holdout=0.5, device=DEVICE).fit(given)
    unrated = np.flatnonzero(~fitted.user_factors.any(axis=1))
    assert unrated.size
    rated = int(np.flatnonzero(fitted.user_factors.any(axis=1))[0])
    fitted.partial_fit(([rated], [1], [3.0]))
    assert not fitted.user_factors[unrated].any()
    assert fitted.model_.seen_items.size == 60  # the cell was there


def test_counts_of_zero_are_no_preference(processor: Any) -> None:
    users, items, counts = generated_ratings(40, 30, 300, 3)
    zeros = [(0, v) for v in range(30) if v not in items[users == 0]]
    more = [*users, *(u for u, _ in zeros)], [*items, *(v for _, v in zeros)], [*counts, *(0.0 for _ in zeros)]
    with_zeros = ALS(3, n_epochs=2, implicit=True, device=DEVICE).fit(more)
    without = ALS(3, n_epochs=2, implicit=True, device=DEVICE).fit((users, items, counts))
    np.testing.assert_allclose(with_zeros.user_factors, without.user_factors, rtol=1e-4, atol=1e-6)
    assert with_zeros.recommend(0, N=30)[0].tolist() == without.recommend(0, N=30)[0].tolist()
    with pytest.raises(InputError, match="solver='qr': give one of auto, cholesky, cg"):
        ALS(solver="qr", device=DEVICE).fit(([1], [1], [1.0]))
    with pytest.raises(InputError, match="has counts of 0 only"):
        ALS(implicit=True, device=DEVICE).fit(([1], [1], [0.0]))


@pytest.mark.slow
def test_few_steps_are_taken_where_they_come_as_far(processor: Any) -> None:
    counts = generated_ratings(40, 30, 300, 3)

    def factors(alpha: float, solver: str) -> bytes:
        how = {"n_epochs": 1, "implicit": True, "alpha": alpha, "solver": solver}
        return ALS(17, **how, device=DEVICE).fit(counts).user_factors.tobytes()

    for alpha, solver, other in ((1.0, "cg", "cholesky"), (1000.0, "cholesky", "cg")):
        assert factors(alpha, "auto") == factors(alpha, solver) != factors(alpha, other)


def test_factors_that_are_not_finite_are_never_kept(small: Ratings, processor: Any) -> None:
    """The error is of clipped predictions at a few ratings, so that it may be finite when factors are not."""

    class Broken:
        cells = Scaled.of(small.values).cells(small)

        def evaluate_on(self, *judged: Any) -> None: ...

        def keep(self) -> None: ...

        def errors(self) -> tuple[float, float]:
            return 0.5, 0.5

        def factors(self) -> Factors:
            p = np.ones((60, 2))
            p[59, 1] = np.inf
            return Factors(p, np.ones((40, 2)), np.zeros(60), np.zeros(40))

    for patience in (None, 2):
        with pytest.raises(InputError, match="not finite any more after sweep"):
            fit_sweeps(Broken(), lambda t: None, 3, Scaled.of(small.values), Broken.cells, patience, "x")  # type: ignore[arg-type]


def test_pairs_of_a_list_keep_their_types(small: Ratings, processor: Any) -> None:
    given = [7, "x", 7], ["f3", 4, 4], [3.0, 4.0, 5.0]
    fitted = MatrixFactorization(2, n_epochs=1, device=DEVICE).fit([[7, "f3"], ["x", 4], [7, 4]], given[2])
    assert set(fitted.user_ids_.tolist()) == {7, "x"}
    np.testing.assert_array_equal(fitted.predict([(7, "f3"), ("x", 4)]), fitted.predict([7, "x"], ["f3", 4]))
    for wrong in (("ab", "cd"), (7, "f3"), ([7], "f"), ("ab",), (7,), ([[1, 2, 3]],), ([[[7]]], [4])):
        with pytest.raises(InputError, match="give"):
            fitted.predict(*wrong)
    with pytest.raises(InputError, match="give a list of one dimension"):
        fitted.recommend([[1, 2]])


def test_columns_of_a_file_are_named_alike_for_fit_and_score(tmp_path: Path, pocl_device: Any) -> None:
    (tmp_path / "r.csv").write_text("who,title,stars,when\na,x,1,9\na,y,2,9\nb,x,3,9\nb,y,5,9\n")
    named = {"columns": ("who", "title", "stars")}
    made = MatrixFactorization(n_factors=2, n_epochs=2, device=pocl_device.info.spec).fit(tmp_path / "r.csv", **named)
    error = made.evaluate(tmp_path / "r.csv", **named)["rmse"]
    assert made.score(tmp_path / "r.csv", **named) == -error
    assert made.partial_fit(tmp_path / "r.csv", **named).evaluate(tmp_path / "r.csv", **named)["ratings"] == 4
