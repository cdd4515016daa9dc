"""A tuning run for a process of its own, importable there."""

from __future__ import annotations

import os

from mmsbgen.db.store import open_store
from mmsbgen.tuner.measure import Limits
from mmsbgen.tuner.timing import Patience
from mmsbgen.tuner.tune import tune
from mmsbgen.tuner.worker import resolve_family


def tune_many(device: str, family: str, database: str, mark: str) -> None:
    """Try all of a space of 51; all processes that come of it have ``mark`` in their environment."""
    os.environ["TUNING_MARK"] = mark
    with open_store(database) as store:
        tune(
            device,
            family,
            ["many"],
            resolve_family(family).problem(n=1 << 14),
            store=store,
            strategy="exhaustive",
            limits=Limits(run_s=20.0),
            patience=Patience(repetitions=3, enough_s=0.0),
            roof_bytes=1 << 20,
        )
