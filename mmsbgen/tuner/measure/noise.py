"""What noise says about repetitions: when a configuration is hopeless, and whether one is faster than another."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Noise", "Verdict", "judge", "median_interval"]

#: Chance to give up a configuration that is as fast as the best, over all looks at its repetitions.
_MISTAKE = 1e-3
#: Repetitions for which a limit is worked out, which is how often one looks: with more of them the last limit holds,
#: and who is above it with all has been so with the first ten.
_LIMITS = 10
#: Confidence of the intervals that finalists are compared by.
_CONFIDENCE = 0.9
#: What a simpler configuration may cost where noise leaves room for more: log seconds.
_INDIFFERENT = 0.01


class Noise:
    """How repetitions scatter about the median of their configuration, over all configurations timed so far.

    The scatter is taken for one of ratios, the same for all configurations of a kernel on a device.
    """

    def __init__(self) -> None:
        self._ratios: list[float] = []
        self._least = math.inf
        self.best_s: float | None = None
        """Seconds that the best median may well have: the upper end of its interval.  The least of many medians is
        too low by itself, as each has its error."""

    def add(self, times: Sequence[float]) -> None:
        """Take note of a configuration's repetitions, seconds; fewer than three tell nothing of the scatter."""
        median = statistics.median(times)
        if median < self._least:
            self._least, self.best_s = median, median_interval(times)[1]
        if len(times) >= 3:
            for value in times:
                bisect.insort(self._ratios, value / median)

    def limits(self) -> tuple[float, ...] | None:
        """Ratios to ``best_s`` above which a configuration is hopeless, after 1, 2, ... repetitions.

        When all of r repetitions lie above L times the best, a configuration whose median is no worse than the best
        has done so by chance with probability S(L)^r, where S(L) is the share of repetitions above L times their
        median.  The limit is the least L for which that is at most one in ten thousand, as one looks ten times;
        infinite where so few repetitions are known that no L is.  None while that holds for all.
        """
        count = len(self._ratios)
        found = []
        for repetitions in range(1, _LIMITS + 1):
            # One more than were seen above, so that what was never seen is not taken for impossible.
            above = math.floor((_MISTAKE / _LIMITS) ** (1 / repetitions) * (count + 1)) - 1
            found.append(max(1.0, self._ratios[count - 1 - above]) if 0 <= above < count else math.inf)
        return tuple(found) if math.isfinite(found[-1]) else None


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the median of what ``values`` are drawn from, whatever its distribution.

    It runs between two of the values in their order, the closest pair for which that holds with a confidence of 90 %,
    as the number of values below the median is binomial; between least and largest where there are fewer than five.
    """
    ordered, count = sorted(values), len(values)
    chance, cut = 0.5**count, 0
    below = chance
    while cut + 1 < (count + 1) // 2:
        chance *= (count - cut) / (cut + 1)
        if 1 - 2 * (below + chance) < _CONFIDENCE:
            break
        below += chance
        cut += 1
    # ``cut`` values may be left out on each side: P(fewer than cut + 1 below the median) = ``below``.
    return ordered[cut], ordered[count - 1 - cut]


@dataclass(frozen=True)
class Verdict:
    """Who of the finalists wins, and how sure that is."""

    winner: int
    """Position of the winner."""
    rival: int
    """Position of the fastest of the others."""
    margin: float
    """By which part the rival is slower than the winner; negative where a simpler one was preferred to it."""
    noise: float
    """Half of the interval of that margin."""
    rounds: int
    """In how many rounds they were timed: margin and noise are about these alone."""
    tied: tuple[int, ...]
    """Positions of those that cannot be told from the fastest, the winner among them, the fastest first."""
    near: tuple[int, ...]
    """Those of ``tied`` that are at most 1 % behind the fastest by the median: the winner is the simplest of them."""

    @property
    def decided(self) -> bool:
        """Whether the fastest is faster than all others beyond the noise."""
        return len(self.tied) == 1


def judge(times: Sequence[Sequence[float]], complexity: Sequence[Any]) -> Verdict:
    """Compare finalists that were timed in turns: ``times[i][r]`` are the seconds of finalist i in round r.

    They are compared round by round, so that what slows a whole round says nothing.  Of those that cannot be told
    from the fastest, and are at most 1 % behind it by the median, the least complex wins.  Raises ``ValueError`` with
    fewer than two finalists.
    """
    if len(times) < 2:
        raise ValueError("a comparison needs two finalists")
    logs = [[math.log(value) for value in row] for row in times]
    rounds = list(zip(*logs, strict=True))
    middle = [statistics.fmean(values) for values in rounds]
    score = [statistics.median(a - b for a, b in zip(row, middle, strict=True)) for row in logs]
    order = sorted(range(len(times)), key=lambda i: score[i])
    fastest = order[0]
    tied = [i for i in order if i == fastest or _behind(logs, i, fastest)[0] <= 0]
    near = [i for i in tied if score[i] - score[fastest] <= _INDIFFERENT]
    winner = min(near, key=lambda i: (complexity[i], score[i]))
    rival = next(i for i in order if i != winner)
    low, high = _behind(logs, rival, winner)
    margin = statistics.median(a - b for a, b in zip(logs[rival], logs[winner], strict=True))
    return Verdict(
        winner, rival, math.expm1(margin), math.expm1((high - low) / 2), len(rounds), tuple(tied), tuple(near)
    )


def _behind(logs: Sequence[Sequence[float]], slower: int, faster: int) -> tuple[float, float]:
    """The interval of the log ratio of two finalists."""
    return median_interval([a - b for a, b in zip(logs[slower], logs[faster], strict=True)])
