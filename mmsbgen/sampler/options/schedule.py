"""Step sizes over the course of a chain."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmsbgen.base.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Step sizes eps_t = a (1 + t/b)^-c; t counts iterations of stars, or sweeps of blocks."""

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        if not (0 < self.a < math.inf and 0 < self.b < math.inf and 0 <= self.c < math.inf):
            raise InputError(
                f"schedule a={self.a}, b={self.b}, c={self.c}: a and b must be positive numbers, c not negative"
            )

    def __call__(self, t: float) -> float:
        """The step size at time ``t``."""
        return float(self.a * (1.0 + t / self.b) ** -self.c)


#: eps of the sampling sweeps: with 7 pairs a vertex, standard deviations come out at most 7 % too large (10 % at .02).
SAMPLE_STEP = 0.01
#: Sweeps of blocks with noise in which theta follows its expected counts, before it is drawn.
FOLLOWING_SWEEPS = 50
#: The published programs' schedule: a = b^-c.
STAR_SCHEDULE = Schedule(1024.0**-0.5, 1024.0, 0.5)
#: tau = eps/2 = 0.1 (1 + s/100)^-0.6 over sweeps s.
BLOCK_SCHEDULE = Schedule(0.2, 100.0, 0.6)
