"""The estimator ``ALS``: alternating least squares for ratings and for counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.declared_options import Parameters
from mmsbgen.base.errors import InputError, ParameterError
from mmsbgen.factorisation import fit_loop
from mmsbgen.factorisation.device_sweeps import LeastSquaresSweeps
from mmsbgen.factorisation.fitted_factors import Answers, given_ratings
from mmsbgen.families.mf.als_kernels import CG_STEPS
from mmsbgen.families.mf.generated import start_factors
from mmsbgen.families.mf.layout import Cells
from mmsbgen.families.mf.reference import Factors

#: Ratings that the zero of a bias counts as, and turns of both sides (Koren, Bell 2011, 5.2.1).
_DAMPING, _TURNS = 10.0, 10
_SOLVERS = ("auto", "cholesky", "cg")
#: Factors above which conjugate gradients are faster on processors (scripts/bench/bench_mf.py).
_MANY = 16
#: Mean of alpha times count up to which the loss after default sweeps was at most 2 % above that of Cholesky, on counts
#: with structure and without; at 130 it was 9 %.
_EVEN = 50.0


@dataclass(eq=False, repr=False)
class ALS(Parameters, Answers):
    """Factors of users and items, by alternating least squares.

    Explicit: biases are taken from the ratings first; factors then minimise the squared errors of the rest plus
    ``reg`` times the squared length of each row, times its number of ratings if ``weighted`` (Zhou et al. 2008).
    Implicit (Hu, Koren, Volinsky 2008): every cell has the preference 1 where a count is above 0, else 0, with the
    confidence ``1 + alpha count``.

    Args:
        n_factors: K.
        n_epochs: Most sweeps; one solves for all users, then for all items.
        reg: Penalty; by default 0.1 for ratings, which are scaled to deviation 1, and 10 for counts.
        implicit: Whether values are counts, such as plays.
        alpha: What a count of 1 adds to the confidence.
        weighted: Whether the penalty is multiplied by a row's number of ratings; always without for counts.
        solver: How rows are solved for: ``cholesky``; ``cg``, three steps of conjugate gradients from the row of the
            sweep before, as implicit has them; or ``auto``, which takes ``cg`` for more than 16 factors, unless
            ``alpha`` times the mean count is above 50: so unequal confidences need more steps.
        holdout: As for :class:`MatrixFactorization`; for ratings only, so that ``auto`` holds out no counts.
        patience: As for :class:`MatrixFactorization`.
        random_state: An integer, None for 0, or a NumPy generator.
        device: A device for :func:`mmsbgen.backends.open_device`; the best one by default.
        database: Path or URL of the tuning database; the user's own by default.

    Attributes:
        model_: The numbers, :class:`mmsbgen.factorisation.ModelFactors`.
        n_iter_: The sweeps after which the factors were taken.
        history_: For each sweep ``sweep``, ``seconds`` and ``rmse``: of held-out ratings, or of some fitted ones; of
            counts that of preferences at their cells.
        interrupted_: Whether Ctrl-C ended the fit.
        held_out_: Whether ratings were held out.
    """

    n_factors: int = 32
    _: KW_ONLY
    n_epochs: int = 15
    reg: float | None = None
    implicit: bool = False
    alpha: float = 1.0
    weighted: bool = True
    solver: str = "auto"
    holdout: Any = "auto"
    patience: int = 2
    random_state: Any = None
    device: str | None = None
    database: str | Path | None = None

    def fit(self, X: Any, y: Any = None, *, columns: Any = None) -> Self:  # noqa: N803
        """Fit ratings or counts, given as to :meth:`MatrixFactorization.fit`; raises alike, and for counts below 0."""
        fit_loop.need_number("n_factors", self.n_factors, 1, whole=True)
        fit_loop.need_number("n_epochs", self.n_epochs, 1, whole=True)
        fit_loop.need_number("alpha", self.alpha, 0, above=True)
        fit_loop.need_number("patience", self.patience, 1, whole=True)
        if self.reg is not None:
            fit_loop.need_number("reg", self.reg, 0, above=True)
        if self.solver not in _SOLVERS:
            raise ParameterError(f"solver={self.solver!r}: give one of {', '.join(_SOLVERS)}")
        ratings, seed = given_ratings(X, y, columns), fit_loop.seed_of(self.random_state)
        holdout = None if self.implicit and isinstance(self.holdout, str) and self.holdout == "auto" else self.holdout
        if self.implicit and holdout is not None:
            raise InputError("holdout is for ratings: counts have no error to stop by, leave it out")
        if self.implicit and (ratings.values < 0).any():
            raise InputError(
                f"{ratings.name} has a count of {ratings.values.min():g}; implicit feedback has none below 0: "
                "leave such rows out"
            )
        if self.implicit:
            ratings = ratings.part(ratings.values > 0)
            if not len(ratings):
                raise InputError(f"{ratings.name} has counts of 0 only; give at least one above 0")
        train, test = fit_loop.train_and_test(ratings, holdout, seed)
        self.held_out_ = test is not None
        m, n = ratings.user_ids.size, ratings.item_ids.size
        p, q = start_factors(seed, m, n, self.n_factors, bias=True)
        if self.implicit:
            scaled, b, c = fit_loop.Scaled(0.0, 1.0, -np.inf, np.inf), np.zeros(m), np.zeros(n)
            cells = scaled.cells(train)
            judged = fit_loop.some_of(cells._replace(ratings=np.ones(len(train))))
            cells = cells._replace(ratings=self.alpha * cells.ratings)
        else:
            scaled = fit_loop.Scaled.of(train.values)
            cells = scaled.cells(train)
            b, c = _biases(cells)
            judged = fit_loop.some_of(cells) if test is None else scaled.cells(test)
            cells = cells._replace(ratings=cells.ratings - b[train.users] - c[train.items])
        start = fit_loop.without_unrated(Factors(p, q, b, c), train)
        course = self._swept(cells, judged, scaled, start, test is not None)
        fit_loop.keep(self, course, scaled, ratings, "its factors", implicit=self.implicit)
        return self

    def _swept(
        self, cells: Cells, judged: Cells, scaled: fit_loop.Scaled, start: Factors, stops: bool
    ) -> fit_loop.FitCourse:
        reg = self.reg if self.reg is not None else 10.0 if self.implicit else 0.1
        weighted = self.weighted and not self.implicit
        solver = self.solver
        if solver == "auto":
            even = not self.implicit or cells.ratings.mean() <= _EVEN
            solver = "cg" if self.n_factors > _MANY and even else "cholesky"
        steps, place = CG_STEPS if solver == "cg" else 0, (self.device, self.database)
        with LeastSquaresSweeps(cells, start, *place, implicit=self.implicit, steps=steps) as on:
            return fit_loop.fit_sweeps(
                on,
                lambda t: on.sweep(reg, weighted),
                self.n_epochs,
                scaled,
                judged,
                self.patience if stops else None,
                f"reg={reg:g}: give a larger reg" + (", or solver=cg" if solver == "cholesky" else ""),
            )


def _biases(cells: Cells) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Biases of users and items by turns, each the mean of what the others leave, damped."""
    b, c = np.zeros(cells.n_users), np.zeros(cells.n_items)
    of_user = np.bincount(cells.users, minlength=cells.n_users) + _DAMPING
    of_item = np.bincount(cells.items, minlength=cells.n_items) + _DAMPING
    for _ in range(_TURNS):
        c = np.bincount(cells.items, cells.ratings - b[cells.users], cells.n_items) / of_item
        b = np.bincount(cells.users, cells.ratings - c[cells.items], cells.n_users) / of_user
    return b, c
