"""Sweeps on a device: the ratings, laid out for the chosen schedule, and the factors that sweeps change."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends import open_device
from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.base.progress import stage
from mmsbgen.families.mf import MF
from mmsbgen.families.mf.als_kernels import scratch_of
from mmsbgen.families.mf.generated import order_of
from mmsbgen.families.mf.layout import Cells, by_row, narrowed, padded, widened
from mmsbgen.families.mf.reference import Factors
from mmsbgen.families.mf.schedules import SCHEDULES, Part, automatic, groups_of
from mmsbgen.families.mf.workloads import STRETCHES, features
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.runtime import ChosenKernel, opened_runtime
from mmsbgen.ratings.orders import items_at

_REAL = np.float32
_FACTORS = ("user_factors", "item_factors", "user_bias", "item_bias")


class DeviceSweeps:
    """Factors and ratings on an open device; a context manager that closes it.

    What :meth:`_place` of a subclass takes are further arguments.
    """

    def __init__(
        self,
        cells: Cells,
        start: Factors,
        device: str | None,
        database: str | Path | None,
        storage: str = "float32",
        **placing: Any,
    ) -> None:
        self.cells, self.k, self.storage, self._features = cells, start.p.shape[1], storage, features(cells)
        with contextlib.ExitStack() as opened:
            self.device = opened.enter_context(open_device(device))
            self.runtime = opened.enter_context(opened_runtime(self.device, MF, database))
            rows = [padded(each, _REAL) for each in (start.p, start.q)]
            p, q = map(narrowed, rows) if storage == "bfloat16" else rows
            arrays = p, q, start.b.astype(_REAL), start.c.astype(_REAL)
            self.values: dict[str, Any] = dict(zip(_FACTORS, map(self.device.upload, arrays), strict=True))
            self._evaluated: dict[str, Any] | None = None
            self._kept: dict[str, Any] | Factors | None = None
            self._place(**placing)
            self._close = opened.pop_all()

    def _place(self, *_: Any, **placing: Any) -> None:
        """Build kernels and lay the ratings out on the device."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._close.close()

    def kernel(self, name: str, **more: Any) -> ChosenKernel:
        """A kernel in its best configuration for these ratings."""
        problem = self.problem(**more).only(MF.kernel(name).parameters)
        return self.runtime.kernel(name, problem)

    def problem(self, **more: Any) -> Problem:
        """The problem of these ratings."""
        return MF.problem(K=self.k, dtype="float32", storage=self.storage, **self._features, **more)

    def keep(self) -> None:
        """Keep the factors as they are now, for :meth:`factors`: on the device, or on the host where that is full."""
        if not isinstance(self._kept, dict):
            own = {name: self.values[name] for name in _FACTORS}
            try:
                self._kept = {name: self.device.alloc(each.shape, each.dtype) for name, each in own.items()}
            except DeviceMemoryError:
                self._kept = self._on_host(own)
                return
        for name, kept in self._kept.items():
            self.device.copy(kept, self.values[name])

    def factors(self) -> Factors:
        """The factors that were kept last, or as they are now, float32 on the host."""
        return self._kept if isinstance(self._kept, Factors) else self._on_host(self._kept or self.values)

    def _on_host(self, values: dict[str, Any]) -> Factors:
        p, q, b, c = (self.device.download(values[name]) for name in _FACTORS)
        return Factors(widened(p[:, : self.k].copy()), widened(q[:, : self.k].copy()), b, c)

    def evaluate_on(self, cells: Cells, low: float, high: float) -> None:
        """Take the ratings that :meth:`errors` is about, and what predictions are clipped to."""
        self._judge = self.kernel("square_error")
        self._evaluated = {
            "users": self.device.upload(cells.users),
            "items": self.device.upload(cells.items),
            "ratings": self.device.upload(cells.ratings.astype(_REAL)),
            "mean": _REAL(0),
            "low": _REAL(low),
            "high": _REAL(high),
            "n_ratings": np.uint32(cells.users.size),
            "sums_of_errors": self.device.alloc((STRETCHES, 2), np.float64),
        }

    def errors(self) -> tuple[float, float]:
        """Root of the mean squared error, and mean absolute error; not finite if the factors are not."""
        assert self._evaluated is not None
        values = {name: self.values[name] for name in _FACTORS} | self._evaluated
        self._judge.launch(int(self._evaluated["n_ratings"]), values)
        squares, absolute = self.device.download(values["sums_of_errors"]).sum(axis=0)
        count = int(self._evaluated["n_ratings"])
        return float(np.sqrt(squares / count)), float(absolute / count)


class StochasticSweeps(DeviceSweeps):
    """Sweeps of stochastic gradient descent by one schedule.

    Attributes:
        schedule: A name of :data:`mmsbgen.families.mf.schedules.SCHEDULES`; for ``auto`` that of
            :func:`mmsbgen.families.mf.schedules.automatic` which waits least.
        steps: After how many steps of a sweep all wait; 0 where nobody does, or where locks decide.
        placing_s: Seconds that the layout took.
    """

    def _place(self, *, schedule: str, bias: bool, seed: int, deterministic: bool = False) -> None:
        cells = self.cells
        names: tuple[str, ...] = (schedule,)
        if schedule == "auto":
            names = automatic(self.device.info.kind, cells, deterministic=deterministic)
        self._seeds = np.random.SeedSequence(seed)
        kernels = {
            kernel: self.kernel(kernel, bias="on" if bias else "off")
            for name in names
            for kernel in SCHEDULES[name].kernels
        }
        groups = max(groups_of(each.config) for each in kernels.values())
        with stage(f"placing {cells.users.size} ratings") as placing:
            shuffled = cells.at(order_of(seed, cells.users.size))
            placed = {name: SCHEDULES[name].placed(shuffled, groups) for name in names}
            self.schedule = min(names, key=lambda name: sum(part.waits for part in placed[name]))
            parts = placed[self.schedule]
            self._calls = [
                (kernels[part.kernel], part.count, self._uploaded(shuffled.at(part.order), part)) for part in parts
            ]
        self.placing_s = placing.seconds
        self.steps = sum(part.arrays["steps"].size - 1 for part in parts if "steps" in part.arrays)

    def _uploaded(self, own: Cells, part: Part) -> dict[str, Any]:
        given = {"users": own.users, "items": own.items, "ratings": own.ratings.astype(_REAL)} | dict(part.arrays)
        return {
            name: self.device.upload(each) if isinstance(each, np.ndarray) else each for name, each in given.items()
        }

    def sweep(self, step: float, reg: float) -> None:
        """One sweep over all ratings."""
        now = {name: _REAL(reg) for name in ("reg_user", "reg_item", "reg_bias")}
        now |= {"step": _REAL(step), "mean": _REAL(0), "seed": self._seeds.spawn(1)[0].generate_state(1)[0]}
        for kernel, count, own in self._calls:
            own |= self.values | now
            kernel.launch(count, own).wait()


class LeastSquaresSweeps(DeviceSweeps):
    """Sweeps of alternating least squares: the rows of all users, then those of all items.

    Rows are solved for by ``steps`` of conjugate gradients from what they were, or with 0 by Cholesky.
    """

    def _place(self, *, implicit: bool, steps: int) -> None:
        cells = self.cells
        self._solve = self.kernel("als_cg" if steps else "als_rows", feedback="implicit" if implicit else "explicit")
        scratch = scratch_of(self._solve.problem, self._solve.config, _REAL)
        shared: dict[str, Any] = {name: self.device.alloc(array.shape, array.dtype) for name, array in scratch.items()}
        shared["steps"] = np.uint32(steps)
        with stage(f"placing {cells.users.size} ratings"):
            self._halves = [
                shared | self._half("user_factors", "item_factors", cells.users, cells.items, cells.n_users),
                shared | self._half("item_factors", "user_factors", cells.items, cells.users, cells.n_items),
            ]

    def _half(self, own: str, fixed: str, rows: NDArray[Any], others: NDArray[Any], n_rows: int) -> dict[str, Any]:
        order, offsets = by_row(rows, n_rows)
        others, ratings = items_at(order, others, self.cells.ratings)
        return {
            "solution": self.values[own],
            "fixed": self.values[fixed],
            "offsets": self.device.upload(offsets),
            "others": self.device.upload(others),
            "ratings": self.device.upload(ratings.astype(_REAL)),
            "n_rows": np.uint32(n_rows),
            "n_fixed": np.uint32(self.values[fixed].shape[0]),
        }

    def sweep(self, reg: float, weighted: bool) -> None:
        """Users given the items, then items given the users."""
        for half in self._halves:
            half |= {"reg": _REAL(reg), "weighted": np.uint32(weighted)}
            self._solve.launch(int(half["n_rows"]), half).wait()
