"""Records that come with the package: look-ups use them, though they are in no database."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.tuning_records import DeviceRecord, RoofRecord, RunRecord, TrialRecord
from mmsbgen.db.selection.index import SHIPPED


class Shipped(NamedTuple):
    """The shipped records of all devices."""

    devices: dict[str, DeviceRecord]
    """By key."""
    trials: dict[str, TrialRecord]
    """By uid."""
    runs: dict[str, RunRecord]
    """By uuid."""
    roofs: list[RoofRecord]
    """Newest first."""


@cache
def shipped() -> Shipped:
    """The records in the package, read once."""
    bundles = [jsonl.read(path) for path in sorted([*SHIPPED.glob("*.jsonl"), *SHIPPED.glob("*.jsonl.gz")])]
    trials = {trial.uid: trial for bundle in bundles for trial in bundle.trials}
    return Shipped(
        {trial.key.device.key: trial.key.device for trial in trials.values()},
        trials,
        {run.uuid: run for bundle in bundles for run in bundle.runs},
        sorted((roof for bundle in bundles for roof in bundle.roofs), key=lambda roof: roof.measured_at, reverse=True),
    )
