"""Explains look-ups by the nearest records and the parts of their keys that differ."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mmsbgen.db.records.nearness import PROBLEM_PREFIX, Difference, differences, parts, problem_distance
from mmsbgen.db.records.ranking import Candidate, of_newest_programs
from mmsbgen.db.records.tuning_records import PROGRAM
from mmsbgen.db.selection.index import Group, Program

_DIGEST = "template digest"
_WEIGHTS = {
    "backend": 1000.0,
    "kind": 500.0,
    "vendor": 200.0,
    "architecture": 100.0,
    "device": 50.0,
    "platform": 50.0,
    "compute units": 20.0,
    _DIGEST: 10.0,
}
_OTHER_TYPE = 50.0


@dataclass(frozen=True)
class NearRecord:
    """The trials of one recorded key, and its differences from the wanted key."""

    group: Group
    best: Candidate
    """The best trial."""
    configurations: int
    """Number of configurations that worked."""
    differences: tuple[Difference, ...]
    template_digest: str
    """Template digest of the best trial's program."""

    @property
    def stale(self) -> bool:
        """Whether that digest differs from the wanted one, so that the record is never used."""
        return any(found.part == _DIGEST for found in self.differences)


def nearest(
    wanted: Mapping[str, Any],
    groups: Collection[Group],
    *,
    implied: Mapping[str, Any] | None = None,
    limit: int = 3,
    program: Program | None = None,
) -> list[NearRecord]:
    """The recorded keys nearest to ``wanted``, nearest first, with the parts that differ.

    The first has no differences if there is an exact record.

    Args:
        wanted: Parts of a key by name (:func:`mmsbgen.db.records.nearness.parts`).
        groups: The records.
        implied: Values of problem parameters that a key may leave out.
        limit: Maximum number of results.
        program: Returns the present digest of a record's program; called for the best record of each key.
    """
    found, left_out = [], {PROBLEM_PREFIX + name: value for name, value in (implied or {}).items()}
    for group in groups:
        newest = of_newest_programs(group.candidates)
        best, there, asked = newest[0], left_out | parts(group.key), left_out | dict(wanted)
        there[_DIGEST] = best.program or there[_DIGEST]
        if program is not None and asked.get(_DIGEST) == PROGRAM:
            asked[_DIGEST] = program(group.key, json.loads(best.config_json))
        differing = differences(asked, {name: there[name] for name in there if name in asked})
        record = NearRecord(group, best, len(newest), tuple(differing), str(there[_DIGEST]))
        found.append((_weight(differing), group.shipped, best.median_s, record))
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
