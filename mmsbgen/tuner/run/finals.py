"""Finals: the best trials of a search timed again in turns, and a verdict with margin and noise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mmsbgen.db.records.canonical_json import utc_now
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.noise import FEWEST_TIMES, FinalsVerdict, judge, median_interval
from mmsbgen.tuner.measure.timing import Timing

_FEWEST = 3
_MOST = 6
FINAL_S = 8.0
_MOST_ROUNDS = 401
#: Seconds of finals over those of the launches that count.
_BESIDE = 1.5
#: Of two parts of the rounds the second is left out where the first decides: the noise is this small, or this many
#: times smaller than the margin.
_FIRST_PART = 0.25
_FINE = 0.001
_CLEAR = 3.0
#: Seconds to measure the energy of one finalist: 20 steps of a counter that moves ten times a second.
METER_S = 2.1
#: Largest share of a kernel's time for measuring the winner's energy.
_METERED = 0.1


def choose(ranked: Sequence[TrialRecord], default: TrialRecord | None) -> list[TrialRecord]:
    """The finalists: the first three, up to three more that may be as fast as the first, and the default."""
    if not ranked:
        return []
    first = median_interval(ranked[0].times)[1]
    chosen = [
        trial
        for place, trial in enumerate(ranked[:_MOST])
        if place < _FEWEST or median_interval(trial.times)[0] <= first
    ]
    if default is not None and default not in chosen:
        chosen.append(default)
    return chosen


def in_time(chosen: Sequence[TrialRecord], seconds: float) -> list[TrialRecord]:
    """The finalists without the slowest ones, if the fewest rounds of all take longer than ``seconds``."""
    kept = list(chosen)
    # A launch that is discarded precedes each round.
    while len(kept) > 1 and _BESIDE * FEWEST_TIMES * sum(trial.median_s or 0.0 for trial in kept) > seconds:
        kept.remove(max(kept[1:], key=lambda trial: trial.median_s or 0.0))
    return kept


def rounds_for(chosen: Sequence[TrialRecord], seconds: float = FINAL_S) -> int:
    """Number of rounds: as many as take ``seconds`` on the device, within bounds."""
    one_round = sum(trial.median_s or 0.0 for trial in chosen)
    return max(FEWEST_TIMES, min(_MOST_ROUNDS, int(seconds / max(one_round, 1e-9))))


def timed_in_turns(
    configs: Sequence[Config],
    rounds: int,
    turns: Callable[[Sequence[Config], int], list[Timing]],
    seconds: float = math.inf,
) -> list[Timing]:
    """Time finalists in turns: a quarter of the rounds, and the others unless that decides, or ``seconds`` are over."""
    begin, first = time.monotonic(), max(FEWEST_TIMES, int(_FIRST_PART * rounds))
    found = turns(configs, first)
    left = seconds - (took := time.monotonic() - begin)
    if left < (rounds - first) * took / first:  # the device is slower than it was, or busy
        rounds = first + max(0, int(left / took * first))
    now = judge([timing.times for timing in found], range(len(configs)))
    if rounds <= first or now.noise < _FINE or (now.decided and now.margin > _CLEAR * now.noise):
        return found
    more = turns(configs, rounds - first)
    return [replace(a, times=a.times + b.times) for a, b in zip(found, more, strict=True)]


def metered(count: int, winner: int, seconds: tuple[float, float] | None) -> Iterator[int]:
    """Positions of the finalists whose energy is measured, the winner's first.

    ``seconds`` are the kernel's begin and end by :func:`time.monotonic`; None without a budget of seconds, when all are
    measured.  Finalists are measured while there is time left.  The winner is measured even without, if that takes at
    most a tenth of the kernel's time.  Measuring all could take longer than a short search.
    """
    for place in sorted(range(count), key=lambda place: place != winner):
        if seconds is not None:
            begin, end = seconds
            if not (end - time.monotonic() >= METER_S or (place == winner and _METERED * (end - begin) >= METER_S)):
                return
        yield place


def as_winners(run: str, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials as those of a round after the finals, by which a run selects their configurations."""
    return [replace(trial, run=run, round=3, created_at=utc_now()) for trial in trials]


def verdict_of(finals: Sequence[TrialRecord], complexity: Callable[[Config], Any]) -> FinalsVerdict | None:
    """The verdict on finalists that were timed in turns; None with fewer than two."""
    if len(finals) < 2:
        return None
    return judge([trial.times for trial in finals], [complexity(trial.config) for trial in finals])
