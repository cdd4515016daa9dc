"""Means over seeds next to the spread between seeds: comparisons, their tests, and tests corrected for their number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats


@dataclass(frozen=True)
class Comparison:
    """A mode's means over seeds next to the plain mode's, at one iteration, in one metric."""

    mean: float
    sd: float
    plain: float
    plain_sd: float
    seeds: int

    @property
    def spread(self) -> float:
        """Standard deviation between seeds, of both modes together."""
        return float(((self.sd**2 + self.plain_sd**2) / 2) ** 0.5)

    @property
    def off(self) -> float:
        """By how many spreads the mean is above the plain mode's."""
        difference = self.mean - self.plain
        return difference / self.spread if self.spread else math.copysign(math.inf, difference) if difference else 0.0

    @property
    def within(self) -> bool:
        """Whether the means differ by no more than the spread."""
        return abs(self.mean - self.plain) <= self.spread

    @property
    def p(self) -> float:
        """Chance of means that differ as much between modes that do not (Welch's t-test)."""
        if self.mean == self.plain:
            return 1.0
        sides = (self.mean, self.sd, self.seeds, self.plain, self.plain_sd, self.seeds)
        return float(stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue) if self.spread else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "spread": self.spread, "off": self.off, "within": self.within, "p": self.p}


def compared(values: Sequence[float], plain: Sequence[float]) -> Comparison:
    """The comparison of a mode's values by seed with the plain mode's."""
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    return Comparison(mean, sd, statistics.fmean(plain), statistics.stdev(plain), len(values))


def holm(values: Sequence[float]) -> list[float]:
    """p of tests corrected for their number, so that any is below a level by chance no more often than the level says.

    Holm's step-down method, which holds however the tests depend on each other.
    """
    corrected, least = [0.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = corrected[i] = max(least, min(1.0, (len(values) - rank) * values[i]))
    return corrected


def outside_by_chance(seeds: int) -> float:
    """The share of comparisons of modes that do not differ whose means are more than a spread apart."""
    return float(2 * stats.t.sf((seeds / 2) ** 0.5, 2 * seeds - 2))
