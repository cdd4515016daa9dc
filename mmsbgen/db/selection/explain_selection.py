"""Why a look-up hits or misses: the nearest records and the parts in which they differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mmsbgen.db.records.nearness import PROBLEM_PREFIX, Difference, differences, parts, problem_distance
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.index import Group

_WEIGHTS = {
    "backend": 1000.0,
    "kind": 500.0,
    "vendor": 200.0,
    "architecture": 100.0,
    "device": 50.0,
    "platform": 50.0,
    "compute units": 20.0,
    "template digest": 10.0,
}
_OTHER_TYPE = 50.0


@dataclass(frozen=True)
class NearRecord:
    """The trials of one recorded key, and what of it differs from the wanted one."""

    key: Key
    source: str
    """Name of the shipped file that has them; empty for the user's own."""
    configurations: int
    """How many worked."""
    best_ref: str
    """``uid`` of the best."""
    best_s: float
    differences: tuple[Difference, ...]
    stale: bool
    """True when only the template digest would have to be the same for a better tier, so it is never used."""


def nearest(
    wanted: Mapping[str, Any], groups: Collection[Group], *, irrelevant: Collection[str] = (), limit: int = 3
) -> list[NearRecord]:
    """The recorded keys nearest to ``wanted``, nearest first, with the parts that differ; empty without any.

    ``wanted`` names parts of a key (:func:`mmsbgen.db.records.nearness.parts`).  The first has no differences when
    there is an exact record.
    """
    found = []
    for group in groups:
        there = parts(group.key)
        differing = differences(wanted, {name: there[name] for name in there if name in wanted}, irrelevant=irrelevant)
        weight = _weight(differing)
        best = group.candidates[0]
        stale = any(d.part == "template digest" for d in differing)
        record = NearRecord(
            group.key, group.source, len(group.candidates), best.uid, best.median_s, tuple(differing), stale
        )
        found.append((weight, group.shipped, best.median_s, record))
    found.sort(key=lambda entry: entry[:3])
    return [record for *_, record in found[:limit]]


def _weight(differing: Collection[Difference]) -> float:
    total = 0.0
    for d in differing:
        if d.part.startswith(PROBLEM_PREFIX):
            total += min(problem_distance({"": d.wanted}, {"": d.found}), _OTHER_TYPE)
        else:
            total += _WEIGHTS.get(d.part, 5.0)
    return total
