"""Times of the schedules on given ratings, measured by sweeps of step size 0."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.errors import CompileError, DeviceMemoryError, LaunchError
from mmsbgen.factorisation.device_sweeps import StochasticSweeps
from mmsbgen.factorisation.fit_loop import Scaled
from mmsbgen.families.mf.generated import start_factors
from mmsbgen.families.mf.reference import Factors
from mmsbgen.families.mf.schedules import SCHEDULES
from mmsbgen.ratings import Ratings

#: Sweeps of which the median counts, after one that is not timed.
_SWEEPS = 3


def schedule_times(
    ratings: Ratings,
    n_factors: int,
    device: str | None = None,
    database: str | Path | None = None,
    storage: str = "float32",
) -> Iterator[dict[str, Any]]:
    """Try each schedule on a device, with steps of size 0.

    Yields:
        For each schedule its ``schedule`` and ``promise``, the ``steps`` of a sweep after which all wait (0: none),
        seconds of ``placing`` and of a ``sweep``, and ``ratings_per_second``; or, where it cannot be, the ``error``.
    """
    cells = Scaled.of(ratings.values).cells(ratings)
    p, q = start_factors(0, cells.n_users, cells.n_items, n_factors, bias=True)
    start = Factors(p, q, np.zeros(cells.n_users), np.zeros(cells.n_items))
    for name, each in SCHEDULES.items():
        found: dict[str, Any] = {"schedule": name, "promise": each.promise}
        try:
            with StochasticSweeps(
                cells, start, device, database, schedule=name, bias=True, seed=0, storage=storage
            ) as on:
                taken = []
                for _ in range(_SWEEPS + 1):
                    begin = time.perf_counter()
                    on.sweep(0.0, 0.0)
                    taken.append(time.perf_counter() - begin)
                sweep = float(np.median(taken[1:]))
                found |= {"steps": on.steps, "placing": on.placing_s, "sweep": sweep}
                found["ratings_per_second"] = cells.users.size / sweep
        except (CompileError, DeviceMemoryError, LaunchError) as error:
            found["error"] = str(error)
        yield found
