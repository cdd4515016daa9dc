"""The estimator ``MatrixFactorization``: stochastic gradient descent."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mmsbgen.base.declared_options import Parameters
from mmsbgen.base.errors import ParameterError
from mmsbgen.factorisation import fit_loop
from mmsbgen.factorisation.device_sweeps import StochasticSweeps
from mmsbgen.factorisation.fitted_factors import Answers, ModelFactors, given_ratings
from mmsbgen.families.mf.generated import start_factors
from mmsbgen.families.mf.reference import Factors
from mmsbgen.families.mf.schedules import SCHEDULES, STORAGES
from mmsbgen.ratings import Ratings
from mmsbgen.ratings.ratings import unique_cells

_SCHEDULES = ("auto", *SCHEDULES)


@dataclass(eq=False, repr=False)
class MatrixFactorization(Parameters, Answers):
    """Factors and biases of users and items from ratings, by stochastic gradient descent.

    It minimises the sum over ratings of ``(r - mean - b_u - c_v - <p_u, q_v>)^2`` plus ``reg`` times the squared
    lengths of both rows and of both biases.  Ratings are scaled to deviation 1 for it, so that the defaults serve
    any range.  Follows scikit-learn's conventions and implicit's names without requiring either.

    Args:
        n_factors: K.
        n_epochs: Most sweeps over the ratings.
        learning_rate: Step of the first sweep; that of sweep t is ``learning_rate / (1 + decay t^1.5)``.
        decay: How fast steps become smaller.
        reg: Penalty of factors and biases, once a rating.
        bias: Whether users and items have biases.
        schedule: ``tiles``: ratings that share a row are done in one order, the same every time; ``adds``: nobody
            waits, rows that are read may be old; others as ``mmsbgen mf schedules`` lists them; ``auto``: tiles on
            processors and adds on GPUs.
        deterministic: Whether the same seed has to give the same bits with the same device and tuning database.
            ``auto`` is tiles then, or on GPUs block-diagonals, where these wait less.
        storage: ``float32``, or ``bfloat16``: factors in 16 bits, rounded at random, half of the memory.  Slower on
            processors.
        holdout: The part of the ratings, such as 0.1, or other ratings, by which the best sweep is chosen; None fits
            all.  ``auto``: a tenth of 1000 or more, and none of fewer.
        patience: Sweeps without a better error on held-out ratings after which fitting ends.  With few ratings the
            error rises for a dozen sweeps, until factors have grown, and then falls far below that of the mean.
        random_state: An integer, None for 0, or a NumPy generator.
        device: A device for :func:`mmsbgen.backends.open_device`; the best one by default.
        database: Path or URL of the tuning database; the user's own by default.

    Attributes:
        model_: The numbers, :class:`mmsbgen.factorisation.ModelFactors`.
        n_iter_: The sweeps after which the factors were taken.
        history_: For each sweep ``sweep``, ``seconds`` and ``rmse``: of held-out ratings, or of some fitted ones.
        interrupted_: Whether Ctrl-C ended the fit.
        held_out_: Whether ratings were held out in :meth:`fit`.
        schedule_: The schedule used.
        updates_per_second_: Ratings a second, in sweeps alone.
    """

    n_factors: int = 32
    _: KW_ONLY
    n_epochs: int = 60
    learning_rate: float = 0.02
    decay: float = 0.01
    reg: float = 0.1
    bias: bool = True
    schedule: str = "auto"
    deterministic: bool = False
    storage: str = "float32"
    holdout: Any = "auto"
    patience: int = 20
    random_state: Any = None
    device: str | None = None
    database: str | Path | None = None

    def fit(self, X: Any, y: Any = None, *, columns: Any = None) -> Self:  # noqa: N803
        """Fit ratings: what :func:`mmsbgen.ratings.as_ratings` takes, or pairs ``X`` ``[E, 2]`` with ``y`` ``[E]``.

        ``columns`` are those of user, item and rating in a file or a table, as there.
        Ctrl-C stops after the current sweep, with the best factors so far.

        Raises:
            InputError: For bad ratings or parameters, and where the steps are so large that factors diverge.
        """
        self._check()
        ratings = given_ratings(X, y, columns)
        seed = fit_loop.seed_of(self.random_state)
        train, test = fit_loop.train_and_test(ratings, self.holdout, seed)
        self.held_out_ = test is not None
        m, n = ratings.user_ids.size, ratings.item_ids.size
        p, q = start_factors(seed, m, n, self.n_factors, bias=self.bias)
        scaled = fit_loop.Scaled.of(train.values)
        start = fit_loop.without_unrated(Factors(p, q, np.zeros(m), np.zeros(n)), train)
        course = self._swept(scaled, train, test, start, seed)
        self._keep(course, scaled, ratings)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, columns: Any = None) -> Self:  # noqa: N803
        """Go on from the fitted factors with ``n_epochs`` sweeps over ratings, some of which may be by new users.

        Mean, scale and range stay those of the first fit.  Without one this is :meth:`fit`.  ``holdout`` is not used.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, columns=columns)
        self._check()
        if self.n_factors != self.model_.p.shape[1]:
            raise ParameterError(
                f"n_factors={self.n_factors}: the fit has {self.model_.p.shape[1]}; call fit for others"
            )
        model, given, seed = self.model_, given_ratings(X, y, columns), fit_loop.seed_of(self.random_state)
        users, items = _grown(model, "user", given), _grown(model, "item", given)
        m, n = users.size, items.size
        root, scale = np.sqrt(self._scaled.scale), self._scaled.scale
        p, q = start_factors(seed, m, n, self.n_factors, bias=self.bias)
        b, c = np.zeros(m), np.zeros(n)
        b[: model.b.size], c[: model.c.size] = model.b / scale, model.c / scale
        numbers = ModelFactors(**(vars(model) | {"user_ids": users, "item_ids": items, "_numbers": {}}))
        u = numbers.numbers("user", given.user_ids)[given.users].astype(np.uint32)
        v = numbers.numbers("item", given.item_ids)[given.items].astype(np.uint32)
        fresh = Ratings(u, v, given.values, users, items, given.name)
        for rows, known, new in ((p, model.p, u), (q, model.q, v)):
            rated = np.flatnonzero(known.any(axis=1))
            start, rows[:] = rows.copy(), 0
            rows[new] = start[new]
            rows[rated] = known[rated] / root
        before = np.repeat(
            np.arange(model.p.shape[0], dtype=np.uint32), model.seen_offsets[1:] - model.seen_offsets[:-1]
        )
        every = Ratings(
            np.concatenate([before, u]),
            np.concatenate([model.seen_items, v]),
            np.zeros(before.size + u.size),
            users,
            items,
        )
        course = self._swept(self._scaled, fresh, None, Factors(p, q, b, c), seed)
        self._keep(course, self._scaled, unique_cells(every, "last"))
        return self

    def _check(self) -> None:
        fit_loop.need_number("n_factors", self.n_factors, 1, whole=True)
        fit_loop.need_number("n_epochs", self.n_epochs, 1, whole=True)
        fit_loop.need_number("learning_rate", self.learning_rate, 0, above=True)
        fit_loop.need_number("decay", self.decay, 0)
        fit_loop.need_number("reg", self.reg, 0)
        fit_loop.need_number("patience", self.patience, 1, whole=True)
        if self.schedule not in _SCHEDULES:
            raise ParameterError(f"schedule={self.schedule!r}: give one of {', '.join(_SCHEDULES)}")
        if self.storage not in STORAGES:
            raise ParameterError(f"storage={self.storage!r}: give one of {', '.join(STORAGES)}")
        repeating = [name for name, each in SCHEDULES.items() if each.promise == "repeats"]
        if self.deterministic and self.schedule not in ("auto", *repeating):
            raise ParameterError(
                f"deterministic with schedule={self.schedule!r}: only {', '.join(repeating)} give the same bits again"
            )

    def _swept(
        self, scaled: fit_loop.Scaled, train: Ratings, test: Ratings | None, start: Factors, seed: int
    ) -> fit_loop.FitCourse:
        cells, place = scaled.cells(train), (self.device, self.database)
        with StochasticSweeps(
            cells,
            start,
            *place,
            schedule=self.schedule,
            bias=self.bias,
            seed=seed,
            storage=self.storage,
            deterministic=self.deterministic,
        ) as on:
            self.schedule_ = on.schedule
            settings = f"learning_rate={self.learning_rate:g} and reg={self.reg:g}: give a lower learning_rate"
            course = fit_loop.fit_sweeps(
                on,
                lambda t: on.sweep(self.learning_rate / (1 + self.decay * t**1.5), self.reg),
                self.n_epochs,
                scaled,
                fit_loop.some_of(cells) if test is None else scaled.cells(test),
                None if test is None else self.patience,
                settings,
            )
        self.updates_per_second_ = len(course.history) * len(train) / max(course.swept_s, 1e-9)
        return course

    def _keep(self, course: fit_loop.FitCourse, scaled: fit_loop.Scaled, seen: Ratings) -> None:
        self._scaled = scaled
        fit_loop.keep(self, course, scaled, seen, "the best factors so far")


def _grown(model: ModelFactors, side: str, given: Ratings) -> Any:
    """The ids of a model, and behind them new ones."""
    ids, more = (model.user_ids, given.user_ids) if side == "user" else (model.item_ids, given.item_ids)
    new = more[model.numbers(side, more) < 0]
    if not new.size:
        return ids
    if ids.dtype.kind == "U" and new.dtype.kind == "i":
        new = new.astype(str)
    if ids.dtype.kind == new.dtype.kind:
        return np.concatenate([ids, new])
    both = np.empty(ids.size + new.size, object)
    both[:] = [*ids.tolist(), *new.tolist()]
    return both
