"""Which of several trials is the best."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.tuning_records import TrialRecord

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
    created_at: str
    program: str = ""
    """Digest of the program's tokens."""


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates of one key, best first, one of each configuration: by median time, but a run's last word stands.

    Within a run, configurations that were timed again in a later round come before those that were not, and only their
    last timing counts.  Of several runs the newest that timed its finalists again speaks for all configurations that
    it timed; for those that no such run timed, the newest does.  Runs are merged by time, without changing the order
    inside any: what came after others in a run stays behind them wherever a newer run has put these.
    """
    runs: defaultdict[str, dict[str, Candidate]] = defaultdict(dict)
    ended: dict[str, str] = {}
    for candidate in candidates:
        kept = runs[candidate.run].get(candidate.config_digest)
        if kept is None or candidate.round > kept.round:
            runs[candidate.run][candidate.config_digest] = candidate
        ended[candidate.run] = max(ended.get(candidate.run, ""), candidate.created_at)
    newest = sorted(runs, key=lambda run: (ended[run], run), reverse=True)
    compared = [run for run in newest if any(candidate.round > 0 for candidate in runs[run].values())]
    speaks: dict[str, str] = {}
    for run in [*compared, *newest]:
        for config in runs[run]:
            speaks.setdefault(config, run)
    places: dict[str, tuple[float, int]] = {}
    for run in newest:
        so_far = 0.0
        for candidate in sorted(runs[run].values(), key=lambda c: (-c.round, c.median_s, c.uid)):
            config = candidate.config_digest
            if speaks[config] == run:
                so_far = max(so_far, candidate.median_s)
                places[config] = (so_far, len(places))
            elif config in places:  # a newer run has moved it
                so_far = max(so_far, places[config][0])
    return [runs[speaks[config]][config] for config in sorted(places, key=places.__getitem__)]


def candidate(trial: TrialRecord, objective: str = "time") -> Candidate:
    """What ranking needs of a trial with status 'ok'.  Raises ``ValueError`` for one without times, or joules."""
    found = cost(trial, objective)
    if not math.isfinite(found):
        raise ValueError(f"the trial {trial.uid} has no {objective}")
    config = canonical_json(trial.config)
    # A winner has a round of its own, which it won by time.
    round_ = trial.round if objective == "time" else min(trial.round, 1)
    return Candidate(trial.uid, trial.run, round_, found, trial.config_digest, config, trial.created_at, trial.program)


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
