#!/usr/bin/env python
"""Matrix factorisation: ratings a second, and seconds to an equal error, of our schedules, ALS and other libraries.

Ratings are generated with the shape and skew of MovieLens 100K (``tiny``), 1M (``million``) or 10M (``ten``).  A tenth
is held out; all methods have ``--factors`` and settings of their own, found by hand for 32.  Seconds are those of
sweeps and of the evaluation after each, without reading and compiling.  All are timed until they come within 0.2 % of
the error that each of them reaches.

implicit's ALS is for counts: it is compared by the seconds of a sweep over the same cells, ours in the same mode.
Ours and implicit's solve by Cholesky and by conjugate gradients.
LIBMF (``pip install libmf``) is taken where it is installed.  It tells no error by sweep, and has runs of several
lengths.

``--write FILE.npz`` writes the ratings of ``--size`` instead, for ``mmsbgen mf schedules FILE.npz -k 16``: that of
``netflix`` is too large for the rest.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from _harness import chosen_devices, parser, progress
from _report import Report
from scipy import sparse

from mmsbgen.factorisation import ALS, MatrixFactorization
from mmsbgen.families.mf.generated import generated_ratings
from mmsbgen.ratings import Ratings, as_ratings

SIZES = {
    "tiny": (943, 1682, 100_000),
    "million": (6040, 3706, 1_000_209),
    "ten": (69_878, 10_677, 10_000_054),
    "netflix": (480_189, 17_770, 99_072_112),
}
#: A method has come to an error if it is above it by no more than this part.
CLOSE = 0.002
#: Of LIBMF's factors, the best of three.
PENALTY = 0.12
SOLVERS = {"Cholesky": "cholesky", "3 steps of CG": "cg"}
Curve = list[tuple[float, float]]


def ours(train: Ratings, test: Ratings, k: int, device: str, sweeps: int) -> dict[str, tuple[Curve, float]]:
    """Seconds and errors after each sweep, and ratings a second, by method."""
    found: dict[str, tuple[Curve, float]] = {}
    held = test.user_ids[test.users], test.item_ids[test.items], test.values
    for schedule in ("tiles", "adds", "locks"):
        fit = MatrixFactorization(k, n_epochs=sweeps, schedule=schedule, holdout=held, patience=sweeps, device=device)
        fit.fit(train)
        found[f"SGD, {schedule}"] = _curve(fit), fit.updates_per_second_
        progress(f"{device}: {schedule} {fit.updates_per_second_ / 1e6:.2f} million ratings/s")
    for name, solver in SOLVERS.items():
        n = max(3, sweeps // 4)
        solved = ALS(k, n_epochs=n, reg=0.13, solver=solver, holdout=held, patience=sweeps, device=device).fit(train)
        seconds = solved.history_[-1]["seconds"] / len(solved.history_)
        found[f"ALS, {name}"] = _curve(solved), len(train) / seconds
        progress(f"{device}: ALS by {name} {seconds:.3f} s a sweep")
    return found


def _curve(fit: Any) -> Curve:
    return [(each["seconds"], each["rmse"]) for each in fit.history_]


def libmf_curve(train: Ratings, test: Ratings, k: int, sweeps: int, threads: int) -> Curve | None:
    """Seconds and errors of LIBMF's runs of 1 to ``sweeps`` sweeps, or None if it is not installed."""
    try:
        from libmf import mf
    except ImportError:
        return None
    triples = np.stack([train.users, train.items, train.values], axis=1).astype(np.float64)
    penalty = {"lambda_p1": 0.0, "lambda_q1": 0.0, "lambda_p2": PENALTY, "lambda_q2": PENALTY}
    curve = []
    for count in sorted({1, sweeps // 4, sweeps // 2, sweeps}):
        engine = mf.MF(k=k, nr_iters=count, eta=0.1, nr_threads=threads, nr_bins=20, quiet=True, **penalty)
        begin = time.perf_counter()
        engine.fit(triples)
        seconds = time.perf_counter() - begin
        # The wrapper's own predict of 0.9.2 gives other numbers than its factors.
        model = engine.model
        p, q = (np.ctypeslib.as_array(*each) for each in ((model.P, (model.m, k)), (model.Q, (model.n, k))))
        found = np.einsum("ek,ek->e", p[test.users], q[test.items])
        error = np.clip(np.where(np.isfinite(found), found, model.b), 1, 5) - test.values
        curve.append((seconds, float(np.sqrt(np.mean(error * error)))))
    return curve


def matrix_of(ratings: Ratings) -> Any:
    """The ratings as a sparse matrix of users by items."""
    shape = ratings.user_ids.size, ratings.item_ids.size
    return sparse.csr_matrix((ratings.values.astype(np.float32), (ratings.users, ratings.items)), shape=shape)


def implicit_seconds(train: Ratings, k: int, device: str) -> dict[str, float]:
    """Seconds of a sweep over counts: of ours, and of implicit's by its two solvers on as many threads as cores."""
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    matrix = matrix_of(train)
    found: dict[str, float] = {}
    for name, solver in SOLVERS.items():
        fit = ALS(k, n_epochs=4, implicit=True, solver=solver, device=device).fit(matrix)
        found[f"mmsbgen, {name}"] = float(np.median(np.diff([each["seconds"] for each in fit.history_])))
    for name, solver in SOLVERS.items():
        theirs: list[float] = []
        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(k, regularization=10.0, iterations=4, use_cg=solver == "cg", random_state=0)
            model.fit(matrix, show_progress=False, callback=lambda number, seconds, loss, to=theirs: to.append(seconds))
        found[f"implicit, {name}"] = float(np.median(theirs))
    return found


def time_to(curve: Curve, error: float) -> float | None:
    """The first seconds at which a curve is at an error or below."""
    return next((seconds for seconds, reached in curve if reached <= error), None)


def equal_error(curves: list[Curve]) -> float:
    """The error that all curves come to."""
    return max(min(error for _, error in curve) for curve in curves) * (1 + CLOSE)


def main() -> None:
    """Time all methods and write the report."""
    options = parser(__doc__, repetitions=1, database=False)
    options.add_argument("--size", choices=SIZES, default="million")
    options.add_argument("--write", type=Path, metavar="FILE.npz", help="only write the ratings")
    options.add_argument("--factors", type=int, default=32)
    options.add_argument("--sweeps", type=int, default=40)
    options.add_argument("--threads", type=int, default=2, help="of LIBMF")
    given = options.parse_args()
    (m, n, count), k = SIZES[given.size], given.factors
    ratings = as_ratings(generated_ratings(m, n, count, 0))
    if given.write:
        sparse.save_npz(given.write, matrix_of(ratings))
        return
    train, test = ratings.held_out(0.1, 0)
    report = Report("Matrix factorisation", f"{len(train)} ratings of {m} users and {n} items, K = {k}.")
    theirs = libmf_curve(train, test, k, given.sweeps, given.threads)
    for device in chosen_devices(given.device):
        report.devices.append(device)
        found: dict[str, tuple[Curve, float | None]] = dict(ours(train, test, k, device.spec, given.sweeps))
        if theirs is not None:
            found[f"LIBMF, {given.threads} threads"] = theirs, None
        error = equal_error([curve for curve, _ in found.values()])
        rows = [
            [name, "" if rate is None else f"{rate / 1e6:.2f}", f"{min(e for _, e in curve):.4f}", _text(curve, error)]
            for name, (curve, rate) in found.items()
        ]
        report.text(f"## {device.platform}")
        report.table(["method", "million ratings/s", "least RMSE", f"s to RMSE {error:.4f}"], rows)
        solvers = implicit_seconds(train, k, device.spec)
        report.table(["ALS over counts", "s a sweep"], [[name, f"{seconds:.3f}"] for name, seconds in solvers.items()])
        report.data[device.platform] = {name: {"curve": curve, "rate": rate} for name, (curve, rate) in found.items()}
        report.data[device.platform]["counts"] = solvers
    report.write(f"mf-{given.size}-k{k}" if k != 32 else f"mf-{given.size}", given.output)


def _text(curve: Curve, error: float) -> str:
    seconds = time_to(curve, error)
    return "never" if seconds is None else f"{seconds:.3g}"


if __name__ == "__main__":
    main()
