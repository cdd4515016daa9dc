"""Which of the configurations of near problems suits a problem that was never tuned, and what that is likely to cost.

A configuration is judged by how much slower it was than the best at each near problem, the nearest counting most: what
is good at several is taken before what happened to win at one.  The two constants below were chosen by leave-one-out
(docs/reports/selection.md).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.ranking import Candidate
from mmsbgen.db.records.tuning_records import Key

REACH = 0.4
"""A problem so much farther than the nearest (a factor of 1.5 in one size) counts e times less."""
UNTRIED = 0.25
"""What a configuration is charged where it was not tried: as if it were 28 % slower than the best there."""
NEAREST = 8
"""At most so many problems are asked."""

Config = dict[str, Any]
Carry = Callable[[Config, Mapping[str, Any], Mapping[str, Any]], Config]
"""A configuration as it was recorded, the problem of the record and the one wanted; returns what to use there."""


class Group(NamedTuple):
    """All usable trials of one key from one source, best first."""

    key: Key
    source: str
    """Name of the file that came with the package; empty for the user's own records."""
    candidates: list[Candidate]

    @property
    def shipped(self) -> bool:
        """Whether the records came with the package."""
        return bool(self.source)


class Near(NamedTuple):
    """Records of a problem and how far that is from the one wanted."""

    group: Group
    distance: float


class TransferChoice(NamedTuple):
    """A configuration for the wanted problem, the trial that it comes from, its key, and whether it was changed."""

    config: Config
    found: Candidate
    key: Key
    carried: bool


@dataclass(frozen=True)
class Loss:
    """What a kind of selection cost where records can tell: shares of speed lost, 0 for the best configuration.

    Each recorded problem was left out in turn and selected for from the others.
    """

    losses: tuple[float, ...]
    untried: int
    """How often what was selected had not been tried there; the next one that had stood for it, and where there was
    none the problem is not in ``losses``."""

    @property
    def median(self) -> float:
        """Median share of speed lost."""
        return statistics.median(self.losses)

    def __str__(self) -> str:
        text = f"expected loss {self.median:.0%}, at most {max(self.losses):.0%} so far"
        text += f" (by {len(self.losses)} recorded problems left out in turn"
        if self.untried:
            times = "once" if self.untried == 1 else f"{self.untried} times"
            text += f"; {times} the choice had not been tried there, and the next stood for it"
        return text + ")"


def unchanged(config: Config, before: Mapping[str, Any], after: Mapping[str, Any]) -> Config:
    """Carries a configuration over as it is."""
    return config


def ordered(near: Sequence[Near], params: Mapping[str, Any], carry: Carry) -> list[TransferChoice]:
    """The configurations of ``near``, which has the nearest problem first, for the problem ``params``, best first."""
    if len(near) == 1 and near[0].distance == 0:
        group = near[0].group
        return [TransferChoice(json.loads(found.config_json), found, group.key, False) for found in group.candidates]
    near = near[:NEAREST]
    weights = [math.exp((near[0].distance - member.distance) / REACH) for member in near]
    charged = UNTRIED * sum(weights)
    scores: dict[str, float] = {}
    choices: dict[str, TransferChoice] = {}
    for member, weight in zip(near, weights, strict=True):
        for text, (choice, slower) in _slowdowns(member.group, params, carry).items():
            choices.setdefault(text, choice)
            scores[text] = scores.get(text, charged) + weight * (slower - UNTRIED)
    # Sorting is stable: of equals the one of the nearest problem, and there the faster one, comes first.
    return [choices[text] for text in sorted(choices, key=lambda text: round(scores[text], 12))]


def _slowdowns(group: Group, params: Mapping[str, Any], carry: Carry) -> dict[str, tuple[TransferChoice, float]]:
    """Each configuration of a group as it is used for ``params``, with the logarithm of its time over the best's.

    The order of the group stands: where finalists were timed again, one that was faster before does not come first.
    """
    found: dict[str, tuple[TransferChoice, float]] = {}
    best = so_far = group.candidates[0].median_s
    for one in group.candidates:
        so_far = max(so_far, one.median_s)
        before: Config = json.loads(one.config_json)
        after = carry(dict(before), group.key.problem.params, params)
        choice = TransferChoice(after, one, group.key, after != before)
        found.setdefault(canonical_json(after), (choice, math.log(so_far / best)))
    return found


def loss_of(folds: Iterable[tuple[Group, Sequence[Near]]], carry: Carry) -> Loss | None:
    """What selecting cost: each fold is a group left out and the ones that answered for it, nearest first.

    None where nothing that could be selected had been tried.
    """
    losses, untried = [], 0
    for group, near in folds:
        times = {canonical_json(json.loads(c.config_json)): c.median_s for c in reversed(group.candidates)}
        order = [canonical_json(choice.config) for choice in ordered(near, group.key.problem.params, carry)]
        tried = next((place for place, text in enumerate(order) if text in times), None)
        untried += tried != 0
        if tried is not None:
            losses.append(max(0.0, 1 - group.candidates[0].median_s / times[order[tried]]))
    return Loss(tuple(losses), untried) if losses else None
