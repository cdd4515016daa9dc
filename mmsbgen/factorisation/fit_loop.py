"""The loop over sweeps: early stopping, Ctrl-C, divergence, and what a fit leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, ParameterError, warn_user
from mmsbgen.base.processes import in_parts
from mmsbgen.base.progress import stage
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.factorisation.device_sweeps import DeviceSweeps
from mmsbgen.factorisation.fitted_factors import ModelFactors
from mmsbgen.families.mf.layout import Cells, by_row
from mmsbgen.families.mf.reference import Factors
from mmsbgen.ratings import Ratings, as_ratings
from mmsbgen.ratings.orders import counted
from mmsbgen.ratings.ratings import looked_up, mean_and_deviation

#: Ratings of an error in training.
_SOME = 100_000
#: Ratings of which a part is held out without being asked for.
_ENOUGH = 1000


class InterruptedFactorisation(UserWarning):
    """A fit was stopped by Ctrl-C; the estimator has the best factors so far, and ``partial_fit`` goes on."""


@dataclass(frozen=True)
class Scaled:
    """Ratings as sweeps see them: less ``mean``, over ``scale``, their standard deviation."""

    mean: float
    scale: float
    low: float
    high: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Scaled:
        """The scale of ratings; constant ones have scale 1."""
        mean, deviation = mean_and_deviation(values)
        low, high = float(values.min()), float(values.max())
        constant = deviation <= 1e-12 * max(abs(low), abs(high))
        return cls(mean, 1.0 if constant else deviation, low, high)

    def cells(self, ratings: Ratings) -> Cells:
        """The ratings of sweeps."""
        (values,) = in_parts(lambda part: ((ratings.values[part] - self.mean) / self.scale,), len(ratings))
        return Cells(ratings.users, ratings.items, values, ratings.user_ids.size, ratings.item_ids.size)

    def back(self, x: Factors) -> Factors:
        """Factors and biases for ratings as they were given."""
        root = np.float32(np.sqrt(self.scale))
        return Factors(x.p * root, x.q * root, x.b * np.float32(self.scale), x.c * np.float32(self.scale))


@dataclass
class FitCourse:
    """What the loop did.

    Attributes:
        factors: The best ones on held-out ratings, or the last.
        history: A mapping for each sweep: ``sweep``, ``seconds`` so far, and ``rmse``.
        best: The sweep after which ``factors`` were taken, from 1 on.
        interrupted: Whether Ctrl-C ended it.
        swept_s: Seconds in sweeps alone.
    """

    factors: Factors
    history: list[dict[str, Any]]
    best: int
    interrupted: bool
    swept_s: float


def fit_sweeps(
    on: DeviceSweeps,
    sweep: Callable[[int], None],
    n_epochs: int,
    scaled: Scaled,
    judged: Cells,
    patience: int | None,
    settings: str,
) -> FitCourse:
    """Sweeps until the error on ``judged`` ratings has not become less for ``patience`` of them, or ``n_epochs``.

    Without ``patience`` all sweeps are done, and the last factors are taken.

    Raises:
        InputError: If factors are not finite any more; it tells the ``settings``.
    """
    low, high = ((bound - scaled.mean) / scaled.scale for bound in (scaled.low, scaled.high))
    on.evaluate_on(judged, low, high)
    history: list[dict[str, Any]] = []
    kept, interrupted, swept_s = 0, False, 0.0
    begin, best = time.perf_counter(), np.inf

    def need_finite(number: int, *arrays: Any) -> None:
        if not all(np.isfinite(each).all() for each in arrays):
            raise InputError(f"the factors are not finite any more after sweep {number} with {settings}")

    with StopRequest().listening() as stop, stage(f"fitting {on.cells.users.size} ratings", n_epochs, "sweeps") as told:
        for number in range(n_epochs):
            before = time.perf_counter()
            sweep(number)
            swept_s += time.perf_counter() - before
            rmse = on.errors()[0] * scaled.scale
            need_finite(number + 1, rmse)
            seconds = time.perf_counter() - begin
            history.append({"sweep": number + 1, "seconds": seconds, "rmse": rmse})
            if patience is None or rmse < best:
                best, kept = rmse, number + 1
                if patience is not None:
                    on.keep()
            told.tell(number + 1)
            interrupted = bool(stop)
            if stop or (patience is not None and number + 1 - kept >= patience):
                break
        factors = on.factors()  # Ctrl-C would lose them
    need_finite(kept, *vars(factors).values())
    return FitCourse(factors, history, kept, interrupted, swept_s)


def some_of(cells: Cells) -> Cells:
    """The first ratings, for an error in training."""
    return Cells(cells.users[:_SOME], cells.items[:_SOME], cells.ratings[:_SOME], cells.n_users, cells.n_items)


def train_and_test(ratings: Ratings, holdout: Any, seed: int) -> tuple[Ratings, Ratings | None]:
    """The ratings to fit, and those to stop by: a part of them, or others; None without ``holdout``.

    ``auto`` is a tenth of :data:`_ENOUGH` ratings or more: the error on a tenth of fewer tells too little.  Of other
    ratings those by users and of items are left out that the former have not.
    """
    if isinstance(holdout, str) and holdout == "auto":
        holdout = 0.1 if len(ratings) >= _ENOUGH else None
    if holdout is None:
        return ratings, None
    if isinstance(holdout, float):
        return ratings.held_out(holdout, seed)
    given = as_ratings(holdout)
    known_u, known_v = ({name: at for at, name in enumerate(x.tolist())} for x in (ratings.user_ids, ratings.item_ids))
    u = looked_up(known_u, given.user_ids, "users")[given.users]
    v = looked_up(known_v, given.item_ids, "items")[given.items]
    kept = (u >= 0) & (v >= 0)
    if not kept.any():
        raise InputError("the held-out ratings have no user and item of those to fit; give others")
    places = u[kept].astype(np.uint32), v[kept].astype(np.uint32)
    return ratings, Ratings(*places, given.values[kept], ratings.user_ids, ratings.item_ids, given.name)


def keep(
    fitted: Any, course: FitCourse, scaled: Scaled, seen: Ratings, factors: str, *, implicit: bool = False
) -> None:
    """Give an estimator what its sweeps left; a warning about Ctrl-C says which ``factors`` these are."""
    x, (order, offsets) = scaled.back(course.factors), by_row(seen.users, seen.user_ids.size)
    ids, items = (seen.user_ids, seen.item_ids), seen.items[order]
    bounds = scaled.mean, scaled.low, scaled.high
    fitted.model_ = ModelFactors(x.p, x.q, x.b, x.c, *bounds, *ids, offsets, items, implicit=implicit)
    fitted.n_iter_, fitted.history_, fitted.interrupted_ = course.best, course.history, course.interrupted
    if course.interrupted:
        warn_user(f"stopped in sweep {len(course.history)}, with {factors}", InterruptedFactorisation)


def without_unrated(x: Factors, ratings: Ratings) -> Factors:
    """The factors with 0 for users and items without ratings, whose rows have their start still."""
    p, q, b, c = x.p.copy(), x.q.copy(), x.b.copy(), x.c.copy()
    no_user, no_item = counted(ratings.users, p.shape[0]) == 0, counted(ratings.items, q.shape[0]) == 0
    p[no_user], b[no_user], q[no_item], c[no_item] = 0, 0, 0, 0
    return Factors(p, q, b, c)


def seed_of(random_state: Any) -> int:
    """The seed of a ``random_state``: an integer, None for 0, or a NumPy generator that draws it."""
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 2**63:
        return int(random_state)
    draw = getattr(random_state, "integers", getattr(random_state, "randint", None))
    if draw is None:
        raise ParameterError(f"random_state={random_state!r}: give an integer from 0 on, None or a NumPy generator")
    return int(draw(2**31))


def need_number(name: str, value: Any, least: float, *, above: bool = False, whole: bool = False) -> None:
    """Raise ParameterError for a parameter that is no number of at least, or ``above``, ``least``."""
    kinds = int | np.integer if whole else int | float | np.integer | np.floating
    right = isinstance(value, kinds) and not isinstance(value, bool) and np.isfinite(value)
    if not right or value < least or (above and value == least):
        kind = "a whole number" if whole else "a number"
        raise ParameterError(f"{name}={value!r}: give {kind} {'above' if above else 'of at least'} {least:g}")
