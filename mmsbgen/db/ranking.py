"""Which of several trials is the best."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from mmsbgen.db.canonical import canonical_json
from mmsbgen.db.records import TrialRecord
from mmsbgen.errors import InputError

OBJECTIVES = ("time", "energy", "edp")
"""What is made small: seconds a call, joules a call, or their product."""


class Candidate(NamedTuple):
    """What ranking and selection need of a trial with status 'ok'.

    ``median_s`` ranks: seconds, or what another objective makes small.
    """

    uid: str
    run: str
    round: int
    median_s: float
    config_digest: str
    config_json: str


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates of one key, best first: by median time, except that a run's own last word on its finalists stands.

    Within a run, configurations that were timed again in a later round come before those that were not,
    and only their last timing counts.  Runs are merged by time, without changing the order inside any.
    """
    runs: defaultdict[str, dict[str, Candidate]] = defaultdict(dict)
    for candidate in candidates:
        kept = runs[candidate.run].get(candidate.config_digest)
        if kept is None or candidate.round > kept.round:
            runs[candidate.run][candidate.config_digest] = candidate
    merged: list[tuple[float, float, str, Candidate]] = []
    for latest in runs.values():
        so_far = 0.0
        for candidate in sorted(latest.values(), key=lambda c: (-c.round, c.median_s, c.uid)):
            so_far = max(so_far, candidate.median_s)
            merged.append((so_far, candidate.median_s, candidate.uid, candidate))
    return [entry[-1] for entry in sorted(merged, key=lambda entry: (entry[0], -entry[3].round, entry[1], entry[2]))]


def candidate(trial: TrialRecord, objective: str = "time") -> Candidate:
    """What ranking needs of a trial with status 'ok'.  Raises ``ValueError`` for one without times, or joules."""
    found = cost(trial, objective)
    if not math.isfinite(found):
        raise ValueError(f"the trial {trial.uid} has no {objective}")
    config = canonical_json(trial.config)
    # A winner has a round of its own, which it won by time.
    round_ = trial.round if objective == "time" else min(trial.round, 1)
    return Candidate(trial.uid, trial.run, round_, found, trial.config_digest, config)


def check_objective(name: str) -> None:
    """Raise :class:`InputError` for an objective that does not exist."""
    if name not in OBJECTIVES:
        raise InputError(f"no objective {name!r}; there are {', '.join(OBJECTIVES)}")


def cost(trial: TrialRecord, objective: str) -> float:
    """What the objective makes small: seconds, joules, or joules times seconds; infinity where it is not known."""
    if trial.status != "ok" or trial.median_s is None:
        return math.inf
    if objective == "time":
        return trial.median_s
    if trial.energy_j is None:
        return math.inf
    return trial.energy_j if objective == "energy" else trial.energy_j * trial.median_s
