"""Statistics of repetitions: when a configuration is hopeless, and whether one is faster than another."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: With fewer times no interval of their median has the confidence below.
FEWEST_TIMES = 5

#: Probability to stop timing a configuration that is as fast as the best, over all checks of its repetitions.
_MISTAKE = 1e-3
#: Repetitions with a limit of their own, which is the number of checks.  The last limit holds for further ones: a
#: configuration that is above it with all of them was so with the first ten.
_LIMITS = 10
#: Confidence of the intervals by which finalists are compared.
_CONFIDENCE = 0.9
#: How much slower than the fastest a simpler winner may be, in log seconds, if the noise allows.
_INDIFFERENT = 0.01


class Noise:
    """Scatter of repetitions about the median of their configuration, over all configurations timed so far.

    Ratios to the median are assumed to have the same distribution for all configurations of a kernel on a device.
    """

    def __init__(self) -> None:
        self._ratios: list[float] = []
        self._least = math.inf
        self.best_s: float | None = None
        """Upper end of the interval of the best median, in seconds.

        The least of many medians is itself too low, as each has an error.
        """

    def add(self, times: Sequence[float]) -> None:
        """Add a configuration's repetitions in seconds; fewer than three are not used for the scatter."""
        median = statistics.median(times)
        if median < self._least:
            self._least, self.best_s = median, median_interval(times)[1]
        if len(times) >= 3:
            for value in times:
                bisect.insort(self._ratios, value / median)

    def limits(self) -> tuple[float, ...] | None:
        """Ratios to ``best_s`` above which a configuration is hopeless, after 1, 2, ... repetitions.

        Let S(L) be the share of repetitions above L times their median.  If a configuration's median is no worse than
        the best, all of its r repetitions exceed L times the best with a probability of at most S(L)^r.  The limit is
        the least L for which that is at most 1e-4, as there are ten checks.  It is infinite if too few repetitions are
        known for such an L.  Returns None if all limits are infinite.
        """
        count = len(self._ratios)
        found = []
        for repetitions in range(1, _LIMITS + 1):
            # One more than was observed above L, so that what was never observed does not count as impossible.
            above = math.floor((_MISTAKE / _LIMITS) ** (1 / repetitions) * (count + 1)) - 1
            found.append(max(1.0, self._ratios[count - 1 - above]) if 0 <= above < count else math.inf)
        return tuple(found) if math.isfinite(found[-1]) else None


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A confidence interval of the median of the distribution that ``values`` are drawn from, whatever that is.

    Its ends are two of the sorted values, the closest pair with a confidence of 90 %, as the number of values below the
    median is binomial.  With fewer than five values, they are the least and the largest.
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
class FinalsVerdict:
    """The winner of the finalists, and how certain that is."""

    winner: int
    """Position of the winner."""
    rival: int
    """Position of the fastest of the others."""
    margin: float
    """How much slower the rival is, relative to the winner; negative where a simpler one was preferred to it."""
    noise: float
    """Half the width of the interval of that margin."""
    rounds: int
    """Number of rounds that were timed; margin and noise describe these alone."""
    tied: tuple[int, ...]
    """Positions of those not distinguishable from the fastest, including the winner; the fastest first."""
    near: tuple[int, ...]
    """Those of ``tied`` with a margin of at most 1 % behind the fastest: the winner is the simplest of them."""

    @property
    def decided(self) -> bool:
        """Whether the fastest is faster than all others beyond the noise."""
        return len(self.tied) == 1


def compared(times: Sequence[Sequence[float]]) -> list[float]:
    """Score of each configuration: median over the rounds of its log seconds less the mean of the round.

    ``times[i][r]`` are the seconds of configuration i in round r.  Raises ``ValueError`` for rows of unequal lengths.
    """
    logs = [[math.log(value) for value in row] for row in times]
    middle = [statistics.fmean(values) for values in zip(*logs, strict=True)]
    return [statistics.median(a - b for a, b in zip(row, middle, strict=True)) for row in logs]


def judge(times: Sequence[Sequence[float]], complexity: Sequence[Any]) -> FinalsVerdict:
    """Compare finalists that were timed in turns: ``times[i][r]`` are the seconds of finalist i in round r.

    They are compared round by round, so that a slow round affects all alike.  Of those not distinguishable from the
    fastest, and at most 1 % behind it by the margin, the least complex wins.  Raises ``ValueError`` with fewer than two
    finalists.
    """
    if len(times) < 2:
        raise ValueError("a comparison needs two finalists")
    logs = [[math.log(value) for value in row] for row in times]
    score = compared(times)
    order = sorted(range(len(times)), key=lambda i: score[i])
    fastest = order[0]
    tied = [i for i in order if i == fastest or _behind(logs, i, fastest)[0] <= 0]
    near = [i for i in tied if _margin(logs, i, fastest) <= _INDIFFERENT]
    winner = min(near, key=lambda i: (complexity[i], score[i]))
    rival = next(i for i in order if i != winner)
    low, high = _behind(logs, rival, winner)
    margin, noise = math.expm1(_margin(logs, rival, winner)), math.expm1((high - low) / 2)
    return FinalsVerdict(winner, rival, margin, noise, len(times[0]), tuple(tied), tuple(near))


def _margin(logs: Sequence[Sequence[float]], slower: int, faster: int) -> float:
    """The median log ratio of two finalists, round by round."""
    return statistics.median(a - b for a, b in zip(logs[slower], logs[faster], strict=True))


def _behind(logs: Sequence[Sequence[float]], slower: int, faster: int) -> tuple[float, float]:
    """The confidence interval of the log ratio of two finalists."""
    return median_interval([a - b for a, b in zip(logs[slower], logs[faster], strict=True)])
