"""Strategies held against recorded sweeps: what would each have found, and at what cost?  No device is needed.

A sweep is what the database has of one kernel for one problem on one device.  A strategy may try what was recorded, and
is answered with the recorded seconds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import recorded_traits
from mmsbgen.kernels.space import Config, Traits
from mmsbgen.tuner.run.kernel_trials import spent_s
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, model_of
from mmsbgen.tuner.search.strategies import search
from mmsbgen.tuner.search.surrogate import expected_slowdowns

Unit = Literal["trials", "seconds"]
"""What a budget counts: configurations, or the seconds that compiling and measuring them took."""


@dataclass(frozen=True)
class Sweep:
    """Recorded configurations of one kernel, problem and device.

    ``seconds`` has the time of each by digest, infinity for one that failed, and ``cost_s`` what trying it took:
    compiling it, by whichever process, and its launches.
    """

    key: Key
    spec: KernelSpec
    problem: Problem
    traits: Traits
    configs: tuple[Config, ...]
    seconds: dict[str, float]
    cost_s: dict[str, float]

    @property
    def best_s(self) -> float:
        """Seconds of the fastest."""
        return min(self.seconds.values())

    @property
    def total_s(self) -> float:
        """What trying all of them took."""
        return sum(self.cost_s.values())

    @property
    def label(self) -> str:
        """Kernel, platform and the problem's sizes, for a table."""
        params = self.key.problem.params
        sizes = " ".join(f"{name}={params[name]}" for name in params if isinstance(params[name], int))
        words = [str(value) for value in params.values() if isinstance(value, str)]
        return f"{self.spec.name} {sizes} {' '.join(words)}".strip()

    @property
    def has_default(self) -> bool:
        """Whether the built-in default, with which every tune begins, was recorded."""
        return dict(self.spec.default(self.problem, self.traits)) in [dict(config) for config in self.configs]

    def candidates(self, *, seed: int = 0, blind: bool = False, expected: tuple[float, ...] = ()) -> Candidates:
        """The recorded configurations as a space, with what other records let expect of each.

        A search begins with the built-in default; with one that the seed draws where that was not recorded, and with
        ``blind``, as a default may have been chosen on this very device.
        """
        configs = [dict(config) for config in self.configs]
        default = dict(self.spec.default(self.problem, self.traits))
        if blind or default not in configs:
            default = random.Random(seed).choice(configs)
        return Candidates(configs, default, Counter(), {}, model_of(self.spec, self.problem, self.traits), expected)

    def valid(self) -> int:
        """How many configurations are valid here with the modes as recorded: what an exhaustive sweep would have."""
        modes = {name: {config[name] for config in self.configs} for name in self.spec.modes}
        return sum(
            all(config[name] in values for name, values in modes.items())
            for config in self.spec.space.configs(self.problem, self.traits)
        )


def sweeps(trials: Iterable[TrialRecord], family: KernelFamily, *, least: int = 50) -> list[Sweep]:
    """The sweeps of at least ``least`` configurations among records, largest first.

    A configuration counts with the least of its repetitions: what else runs on a machine makes a kernel slower, never
    faster.  Configurations that the declaration of today refuses are left out.
    """
    by_key: dict[Key, dict[str, list[TrialRecord]]] = {}
    for trial in trials:
        if trial.key.problem.family == family.name and trial.key.kernel.name in family.kernels:
            by_key.setdefault(trial.key, {}).setdefault(trial.config_digest, []).append(trial)
    found = []
    for key, records in by_key.items():
        spec, traits = family.kernel(key.kernel.name), recorded_traits(key.device)
        try:
            problem = family.problem(**key.problem.params)
        except InputError:
            continue
        configs, seconds, cost = [], {}, {}
        for name, measured in records.items():
            config = measured[0].config
            if spec.space.refusal(config, problem, traits) is not None:
                continue
            configs.append(config)
            seconds[name] = min((s for t in measured if t.status == "ok" for s in t.times), default=math.inf)
            cost[name] = _cost(measured)
        if len(configs) >= least and math.isfinite(min(seconds.values())):
            found.append(Sweep(key, spec, problem, traits, tuple(configs), seconds, cost))
    return sorted(found, key=lambda sweep: (-len(sweep.configs), sweep.key.key))


def _cost(measured: Sequence[TrialRecord]) -> float:
    """Seconds of the first record: later ones found a compiled kernel."""
    first = min((t for t in measured if t.round == 0), key=lambda t: t.created_at, default=measured[0])
    return sum(spent_s(first))


@dataclass(frozen=True)
class Replay:
    """One strategy's search: ``losses`` are by which part its find after each trial is slower than the sweep's best."""

    strategy: str
    seed: int
    cost_s: float
    losses: tuple[float, ...]

    @property
    def tried(self) -> int:
        """How many configurations it tried."""
        return len(self.losses)

    @property
    def loss(self) -> float:
        """The loss at its end."""
        return self.losses[-1]


def replay(
    sweep: Sweep,
    strategy: str,
    *,
    seed: int,
    share: float = 0.1,
    unit: Unit = "trials",
    blind: bool = False,
    expected: tuple[float, ...] = (),
) -> Replay:
    """Let a strategy search a sweep with ``share`` of the trials, or of the seconds, that all of it took.

    With ``blind``, and where the built-in default was not recorded, it does not begin with that.  A budget in seconds
    ends as in a tune: with the configuration at hand when it is spent.  Beside the package's strategies there is
    "optuna_tpe".  Raises :class:`InputError` for an unknown strategy.
    """
    space = sweep.candidates(seed=seed, blind=blind, expected=expected)
    trials = max(1, round(share * len(sweep.configs)))
    most = trials if unit == "trials" else len(sweep.configs)
    limit = share * sweep.total_s if unit == "seconds" else math.inf
    recorded = _Recorded(sweep, most, limit, unit)
    budget = trials if unit == "trials" else None
    if strategy == "optuna_tpe":
        from optuna_strategy import optuna_tpe

        with suppress(BudgetSpentError):
            optuna_tpe(space, recorded, budget, seed)
    else:
        search(strategy, space, recorded, budget=budget, seed=seed)
    bests = itertools.accumulate(recorded.seen.values(), min)
    return Replay(strategy, seed, recorded.spent, tuple(best / sweep.best_s - 1 for best in bests))


def known_of_others(sweep: Sweep, index: Index, family: KernelFamily) -> tuple[float, ...]:
    """What the records of other problems on the device let one expect of a sweep; empty without enough."""
    here = sweep.key
    others = [group for group in index.groups(here) if group.key.problem.params != here.problem.params]
    return expected_slowdowns(family, here, others, sweep.configs)


class _Recorded:
    """Answers a strategy from a sweep, within a budget; ``cost`` is told where that counts seconds, as in a tune."""

    def __init__(self, sweep: Sweep, most: int, limit: float, unit: Unit) -> None:
        self.sweep, self.most, self.limit = sweep, most, limit
        self.seen: dict[str, float] = {}
        self.spent = 0.0
        self.cost = (lambda config: (sweep.cost_s[digest(dict(config))], 0.0)) if unit == "seconds" else None

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        names = [digest(dict(config)) for config in configs]
        for name in names:
            if name in self.seen:
                continue
            if len(self.seen) >= self.most or self.spent >= self.limit:
                raise BudgetSpentError
            self.seen[name] = self.sweep.seconds[name]
            self.spent += self.sweep.cost_s[name]
        return [self.seen[name] for name in names]

    def part(self) -> float:
        """Which part of the budget is spent."""
        return max(len(self.seen) / self.most, self.spent / self.limit)
