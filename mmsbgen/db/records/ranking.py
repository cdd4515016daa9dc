"""Ranking of trials by an objective."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.tuning_records import Key, QuarantineRecord, TrialRecord

OBJECTIVES = ("time", "energy", "edp")
"""Quantities to minimise: seconds a call, joules a call, or their product."""


class Candidate(NamedTuple):
    """The fields of a trial with status 'ok' that ranking and selection need.

    ``median_s`` is the ranked quantity: seconds, or the value of another objective.
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

    @property
    def identity(self) -> tuple[str, str]:
        """The digests of the configuration and of its program."""
        return self.config_digest, self.program


_Measured = TypeVar("_Measured", Candidate, TrialRecord)
_Keyed = TypeVar("_Keyed", TrialRecord, QuarantineRecord)


def by_key(records: Iterable[_Keyed]) -> dict[Key, list[_Keyed]]:
    """The records of each key."""
    found: dict[Key, list[_Keyed]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    return found


def of_newest_programs(found: Iterable[_Measured]) -> list[_Measured]:
    """Those of the program that was measured last with their configuration, in the order given."""
    found = list(found)
    newest: dict[str, tuple[str, str]] = {}
    for one in found:
        last = (one.created_at, one.program)
        newest[one.config_digest] = max(newest.get(one.config_digest, last), last)
    return [one for one in found if one.program == newest[one.config_digest][1]]


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates of one key, one for each configuration and program, best first.

    A configuration whose program has changed has one for each program.  "Configuration" below means both.

    Within a run, configurations are ordered by their last round, latest first, then by the median of that round.

    A configuration that several runs have timed is represented by one of them: the newest run with re-timed finalists,
    else the newest run.  Runs are merged by median time, newest first: a configuration never precedes one that was
    better in the run that represents it.
    """
    runs: defaultdict[str, dict[tuple[str, str], Candidate]] = defaultdict(dict)
    ended: dict[str, str] = {}
    for candidate in candidates:
        kept = runs[candidate.run].get(candidate.identity)
        if kept is None or candidate.round > kept.round:
            runs[candidate.run][candidate.identity] = candidate
        ended[candidate.run] = max(ended.get(candidate.run, ""), candidate.created_at)
    newest = sorted(runs, key=lambda run: (ended[run], run), reverse=True)
    compared = [run for run in newest if any(candidate.round > 0 for candidate in runs[run].values())]
    speaks: dict[tuple[str, str], str] = {}
    for run in [*compared, *newest]:
        for config in runs[run]:
            speaks.setdefault(config, run)
    places: dict[tuple[str, str], tuple[float, int]] = {}
    for run in newest:
        so_far = 0.0
        for candidate in sorted(runs[run].values(), key=lambda c: (-c.round, c.median_s, c.uid)):
            config = candidate.identity
            if speaks[config] == run:
                so_far = max(so_far, candidate.median_s)
                places[config] = (so_far, len(places))
            elif config in places:  # already placed by a newer run
                so_far = max(so_far, places[config][0])
    return [runs[speaks[config]][config] for config in sorted(places, key=places.__getitem__)]


def candidate(trial: TrialRecord, objective: str = "time") -> Candidate:
    """The candidate of a trial with status 'ok'; raises ``ValueError`` if it lacks the objective's value."""
    found = cost(trial, objective)
    if not math.isfinite(found):
        raise ValueError(f"the trial {trial.uid} has no {objective}")
    config = canonical_json(trial.config)
    # The winner by time has a further round, which must not count for other objectives.
    round_ = trial.round if objective == "time" else min(trial.round, 1)
    return Candidate(trial.uid, trial.run, round_, found, trial.config_digest, config, trial.created_at, trial.program)


def check_objective(name: str) -> None:
    """Raise :class:`InputError` for an objective that does not exist."""
    if name not in OBJECTIVES:
        raise InputError(f"no objective {name!r}; there are {', '.join(OBJECTIVES)}")


def cost(trial: TrialRecord, objective: str) -> float:
    """The objective's value: seconds, joules, or joules times seconds; infinity if unknown."""
    if trial.status != "ok" or trial.median_s is None:
        return math.inf
    if objective == "time":
        return trial.median_s
    if trial.energy_j is None:
        return math.inf
    return trial.energy_j if objective == "energy" else trial.energy_j * trial.median_s
