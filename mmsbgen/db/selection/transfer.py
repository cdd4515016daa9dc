"""Ranks configurations of near problems for a problem that was not tuned.

The score of a configuration is its slowdown against the best one at each near problem, weighted by nearness.  So a
configuration that is good at several problems precedes one that is the best at a single one.  ``REACH`` and ``UNTRIED``
were chosen by leave-one-out cross-validation (docs/reports/selection.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.ranking import Candidate, of_newest_programs
from mmsbgen.db.records.tuning_records import Key

REACH = 0.4
"""Additional distance, a factor of 1.5 in one size, at which the weight of a problem falls by a factor of e."""
UNTRIED = 0.25
"""Assumed log slowdown of a configuration at a problem where it was not tried: 28 % slower than the best."""
NEAREST = 8
"""Maximum number of near problems."""
_DIGITS = 4
"""Digits of a score that count, 0.01 % of a time: a far problem does not decide between configurations that tie."""

Config = dict[str, Any]
Carry = Callable[[Config, Mapping[str, Any], Mapping[str, Any]], Config]
"""Adapts a recorded configuration; takes it, the recorded problem and the wanted problem."""


class Group(NamedTuple):
    """All candidates of one key from one source, best first."""

    key: Key
    source: str
    """Name of the shipped file; empty for the user's own records."""
    candidates: list[Candidate]

    @property
    def shipped(self) -> bool:
        """Whether the records came with the package."""
        return bool(self.source)


class Near(NamedTuple):
    """Records of a problem and its distance from the wanted problem."""

    group: Group
    distance: float


class TransferChoice(NamedTuple):
    """A configuration for the wanted problem, its trial and key, and whether it was adapted."""

    config: Config
    found: Candidate
    key: Key
    carried: bool


def unchanged(config: Config, before: Mapping[str, Any], after: Mapping[str, Any]) -> Config:
    """A ``Carry`` that returns the configuration unchanged."""
    return config


def ordered(near: Sequence[Near], params: Mapping[str, Any], carry: Carry) -> list[TransferChoice]:
    """The configurations of ``near``, sorted nearest first, for the problem ``params``, best first.

    A configuration has a choice for each of its records, one after the other, nearest and newest program first: the
    first may be of a program that has changed.  Records of an exact problem with older programs come last.
    """
    if len(near) == 1 and near[0].distance == 0:
        group = near[0].group
        found = [one for part in _by_age(group) for one in part]
        return [TransferChoice(json.loads(one.config_json), one, group.key, False) for one in found]
    near = near[:NEAREST]
    weights = [math.exp((near[0].distance - member.distance) / REACH) for member in near]
    charged = UNTRIED * sum(weights)
    scores: dict[str, float] = {}
    choices: dict[str, list[TransferChoice]] = {}
    for member, weight in zip(near, weights, strict=True):
        for text, (found_there, slower) in _slowdowns(member.group, params, carry).items():
            choices.setdefault(text, []).extend(found_there)
            scores[text] = scores.get(text, charged) + weight * (slower - UNTRIED)
    # Sorting is stable: ties are broken by the nearest problem, then by the order there.
    best_first = sorted(choices, key=lambda text: round(scores[text], _DIGITS))
    return [choice for text in best_first for choice in choices[text]]


def _by_age(group: Group) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates of the newest programs of their configurations, and those of older programs."""
    newest = of_newest_programs(group.candidates)
    if len(newest) == len(group.candidates):
        return newest, []
    uids = {one.uid for one in newest}
    return newest, [one for one in group.candidates if one.uid not in uids]


def _slowdowns(group: Group, params: Mapping[str, Any], carry: Carry) -> dict[str, tuple[list[TransferChoice], float]]:
    """Each configuration of a group adapted to ``params``, with the logarithm of its slowdown against the best.

    The slowdowns are those of the newest programs.

    The slowdowns follow the order of the group: a configuration that ranks behind re-timed finalists counts as at least
    as slow as they are.
    """
    found: dict[str, tuple[list[TransferChoice], float]] = {}
    newest, older = _by_age(group)
    best = so_far = newest[0].median_s
    for place, one in enumerate([*newest, *older]):
        if place < len(newest):
            so_far = max(so_far, one.median_s)
        before: Config = json.loads(one.config_json)
        after = carry(dict(before), group.key.problem.params, params)
        choice = TransferChoice(after, one, group.key, after != before)
        found.setdefault(canonical_json(after), ([], math.log(so_far / best)))[0].append(choice)
    return found
