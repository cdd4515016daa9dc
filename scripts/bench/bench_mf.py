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

With ``--schedules``, a sweep of each schedule is timed instead, K = 16 and 128, factors in 32 and in 16 bits.  Told is,
too, what part of its changes hogwild loses.  The size ``netflix`` is for that: ``--scale S`` takes S of the ratings,
and users and items by its root.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _harness import chosen_devices, parser, progress
from _report import Report
from scipy import sparse

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.factorisation import ALS, MatrixFactorization
from mmsbgen.factorisation.schedule_times import schedule_times
from mmsbgen.families.mf import MF
from mmsbgen.families.mf.generated import generated_ratings
from mmsbgen.families.mf.layout import Cells
from mmsbgen.families.mf.schedules import STORAGES
from mmsbgen.families.mf.workloads import features, sgd_workload
from mmsbgen.kernels.build import build, release, traits_of, upload
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


def implicit_seconds(train: Ratings, k: int, device: str) -> dict[str, float]:
    """Seconds of a sweep over counts: of ours, and of implicit's by its two solvers on as many threads as cores."""
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    shape = train.user_ids.size, train.item_ids.size
    matrix = sparse.csr_matrix((train.values.astype(np.float32), (train.users, train.items)), shape=shape)
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


def schedule_rows(ratings: Ratings, k: int, device: str, storage: str) -> list[list[str]]:
    """For each schedule what it promises, its steps, and seconds; or its error."""
    rows = []
    for each in schedule_times(ratings, k, device, storage=storage):
        cells = ["", "", "", each["error"]] if "error" in each else [
            each["steps"] or "", f"{each['placing']:.3g}", f"{each['sweep'] * 1e3:.4g}",
            f"{each['ratings_per_second'] / 1e6:.4g}",
        ]  # fmt: skip
        rows.append([each["schedule"], each["promise"], *map(str, cells)])
        progress(f"{device}, K = {k}, {storage}: " + ", ".join(rows[-1]))
    return rows


def lost_part(ratings: Ratings, k: int, device: str) -> float:
    """The part of the changes that a sweep of hogwild loses, when each adds 1 to all coordinates of both rows."""
    cells = Cells(ratings.users, ratings.items, ratings.values, ratings.user_ids.size, ratings.item_ids.size)
    problem, spec = MF.problem(K=k, **features(cells)), MF.kernel("sgd_hogwild")
    given = sgd_workload(spec.name, cells, problem, 0)
    with open_device(device) as opened:
        config = dict(spec.default(problem, traits_of(opened.info))) | {"operator": "witness"}
        arguments = given.prepared(config).arguments
        placed = upload(opened, given.prepared(config))
        build(opened, spec, problem, config).launch(given.count, placed).wait()
        names = ("user_factors", "item_factors")
        kept = sum((opened.download(placed[name]) - arguments[name]).sum(dtype=np.float64) for name in names)
        release(placed)
    return float(1 - kept / (2 * given.count * arguments["user_factors"].shape[1]))


def time_schedules(size: str, scale: float, report: Report, devices: list[DeviceInfo]) -> None:
    """A table of schedules for each device and K."""
    m, n, count = SIZES[size]
    users, items = (round(side * scale**0.5) for side in (m, n))
    ratings = as_ratings(generated_ratings(users, items, round(count * scale), 0))
    report.text(f"{len(ratings)} ratings of {users} users and {items} items.")
    for device in devices:
        report.devices.append(device)
        for k in (128, 16):
            for storage in STORAGES:
                rows = schedule_rows(ratings, k, device.spec, storage)
                report.text(f"## {device.platform}, K = {k}, {storage}")
                report.table(["schedule", "promise", "steps", "placing s", "sweep ms", "million ratings/s"], rows)
                report.data[f"{device.platform} K={k} {storage}"] = rows
            try:
                lost = f"hogwild loses {lost_part(ratings, k, device.spec):.2%} of its changes."
            except MmsbgenError as error:
                lost = f"what hogwild loses: {error}"
            progress(lost)
            report.text(lost)


def main() -> None:
    """Time all methods and write the report."""
    options = parser(__doc__, repetitions=1, database=False)
    options.add_argument("--size", choices=SIZES, default="million")
    options.add_argument("--schedules", action="store_true", help="time a sweep of each schedule")
    options.add_argument("--scale", type=float, default=1.0, help="part of the ratings, with --schedules")
    options.add_argument("--factors", type=int, default=32)
    options.add_argument("--sweeps", type=int, default=40)
    options.add_argument("--threads", type=int, default=2, help="of LIBMF")
    given = options.parse_args()
    if given.schedules:
        report = Report("Schedules of matrix factorisation", "Medians of three sweeps.")
        time_schedules(given.size, given.scale, report, chosen_devices(given.device))
        report.write(f"mf-schedules-{given.size}", given.output)
        return
    (m, n, count), k = SIZES[given.size], given.factors
    train, test = as_ratings(generated_ratings(m, n, count, 0)).held_out(0.1, 0)
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
