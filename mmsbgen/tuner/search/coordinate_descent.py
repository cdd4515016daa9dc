"""The last stage of a search: coordinate descent from its fastest configurations.

A search measures one configuration after the other, while the device's speed may change.  Here configurations are timed
in turns, so that such changes affect all alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.noise import compared
from mmsbgen.tuner.measure.timing import Timing
from mmsbgen.tuner.search.candidates import BudgetSpentError
from mmsbgen.tuner.search.surrogate import coordinates

#: Fewest and most configurations in a comparison, and how far (relative) their least times may be above the best's.
_FEWEST = 3
_MOST = 12
_NEAR = 0.3
#: Seconds of device time for a comparison, and its fewest and most rounds.
COMPARE_S = 2.0
_FEWEST_ROUNDS = 5
_MOST_ROUNDS = 101
#: Least gain, in log seconds, for which another configuration replaces the best.
_STEP = 0.002
#: Most finalists besides the built-in default.
_FINALISTS = 5

Turns = Callable[[Sequence[Config], int], list[Timing]]
"""Times configurations in turns, for a number of rounds."""
Try = Callable[[Sequence[Config]], object]
"""Measures untried configurations; raises :class:`BudgetSpentError` where the budget ends."""


class CoordinateDescent:
    """Coordinate descent from the best of a search; ``attempt`` adds the trials that it makes to ``trials``.

    A comparison takes ``seconds`` on the device, or five rounds of three where those take longer.  None begins after
    ``deadline`` (of :func:`time.monotonic`).
    """

    def __init__(
        self,
        configs: Sequence[Config],
        trials: Sequence[TrialRecord],
        turns: Turns,
        attempt: Try,
        seconds: float = COMPARE_S,
        deadline: float | None = None,
    ) -> None:
        self.configs = configs
        self.trials = trials
        self.turns = turns
        self.attempt = attempt
        self.seconds = seconds
        self.deadline = math.inf if deadline is None else deadline
        self.axes = coordinates(configs)
        self.places: dict[tuple[tuple[str, Value], ...], int] = {
            _name(config): place for place, config in enumerate(configs)
        }

    def finalists(self, default: TrialRecord | None, *, climb: bool) -> list[TrialRecord]:
        """The finalists, likely best first, followed by the default.

        Compares the best trials of the search.  With ``climb`` it tries the neighbours of the fastest, compares them
        with it, and repeats this from the fastest of them.  It stops when no neighbour is faster, or when the budget or
        the time is spent.  Raises what ``turns`` raises.
        """
        order = self._compare(self._near(self.trials))
        steps, found = order[:1], order[1:3] if self._left() > 0 else order[1:]
        while climb and order and self._left() > 0:
            place = self._place(order[0])
            steps_away = [] if place is None else neighbours(self.configs, self.axes, place)
            climb = self._try_all(steps_away)
            round_it = [trial for trial in self._near(self.trials) if self._place(trial) in steps_away]
            order = self._compare([order[0], *round_it])
            if order[0] in steps or len(steps) > _MOST:
                break
            steps.insert(0, order[0])
        finalists: list[TrialRecord] = []
        for trial in (*steps[:2], *order[1:3], *found, *steps[2:]):
            if trial not in finalists and len(finalists) < _FINALISTS:
                finalists.append(trial)
        return [*finalists, *([default] if default is not None and default not in finalists else [])]

    def _try_all(self, places: Sequence[int]) -> bool:
        """Measure the untried among ``places``; False if the budget was spent before."""
        tried = {self._place(trial) for trial in self.trials}
        fresh = [self.configs[place] for place in places if place not in tried]
        try:
            if fresh:
                self.attempt(fresh)
        except BudgetSpentError:
            return False
        return True

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def _place(self, trial: TrialRecord) -> int | None:
        return self.places.get(_name(trial.config))

    def _near(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The three fastest trials and all within 30 % of the best, by least time; includes trials stopped early."""
        works = sorted((trial for trial in trials if trial.status == "ok"), key=lambda trial: min(trial.times))
        limit = (1 + _NEAR) * min(works[0].times) if works else 0.0
        return [trial for place, trial in enumerate(works) if place < _FEWEST or min(trial.times) <= limit]

    def _compare(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The trials, fastest first as timed in turns; the first one stays first unless another is clearly faster.

        Slow ones are left out where there are too many.  The order is unchanged if no time is left.
        """
        few, seconds = list(trials[:_MOST]), min(self.seconds, self._left())
        if seconds <= 0:
            return few
        while len(few) > _FEWEST and _FEWEST_ROUNDS * sum(min(trial.times) for trial in few) > seconds:
            few.pop()
        if len(few) < 2 or _FEWEST_ROUNDS * sum(min(trial.times) for trial in few) > self._left():
            return few
        one_round = sum(trial.median_s or 0.0 for trial in few)
        rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(seconds / one_round)))
        scores = compared([timing.times for timing in self.turns([trial.config for trial in few], rounds)])
        order = sorted(range(len(few)), key=lambda place: scores[place])
        if scores[0] - scores[order[0]] < _STEP:
            order.remove(0)
            order.insert(0, 0)
        return [few[place] for place in order]


def neighbours(configs: Sequence[Config], axes: npt.NDArray[Any], index: int) -> list[int]:
    """Indices of configurations one step from ``configs[index]``, in the order of their axes.

    A step sets one axis to the next smaller or larger number, or to any other word.  Constraints may tie one axis to
    another: of the configurations with the new value, the one nearest to ``configs[index]`` is taken.  ``axes`` are the
    coordinates ``[configurations, dimensions]``.
    """
    apart = ((axes - axes[index]) ** 2).sum(axis=1)
    found: list[int] = []
    for name, at in configs[index].items():
        column = [config[name] for config in configs]
        for value in _next_to(at, set(column)):
            there = np.array([other == value for other in column])
            nearest = int(np.argmin(np.where(there, apart, math.inf)))
            if nearest not in found:
                found.append(nearest)
    return found


def _next_to(value: Value, values: set[Value]) -> list[Value]:
    """The next smaller and the next larger number; every other word."""
    if isinstance(value, str | bool):
        return sorted(values - {value}, key=repr)
    ordered = sorted(values, key=float)
    place = ordered.index(value)
    return ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2]


def _name(config: Config) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(config.items()))
