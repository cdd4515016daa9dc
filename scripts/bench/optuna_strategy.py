"""Optuna's optimiser TPE on recorded spaces, as a strategy to compare with.

Optuna knows no constraints between axes: the untried configuration nearest to its proposal is tried, and it learns from
that one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from mmsbgen.tuner.search.candidates import Candidates, Evaluate

#: Share of the budget that is drawn at random, and the most of that, which is Optuna's default.
_FIRST = 0.2
_MOST_FIRST = 10


def optuna_tpe(space: Candidates, evaluate: Evaluate, budget: int | None, seed: int) -> None:
    """Let the multivariate TPE choose, the default configuration first, until ``evaluate`` ends it or all are tried."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes: dict[str, list[Any]] = {}
    for name in space.configs[0]:
        if len(values := {config[name] for config in space.configs}) > 1:
            axes[name] = sorted(values, key=lambda value: (isinstance(value, str), value))
    kinds: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(range(len(values)))
        if isinstance(values[-1], str | bool)
        else IntDistribution(0, len(values) - 1)
        for name, values in axes.items()
    }
    codes = np.array([[values.index(config[name]) for name, values in axes.items()] for config in space.configs])
    word = np.array([isinstance(kind, CategoricalDistribution) for kind in kinds.values()])
    length = np.where(word, 1, codes.max(axis=0))
    first = max(2, min(_MOST_FIRST, int(_FIRST * (budget or len(codes)))))
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=first)
    )
    untried = np.ones(len(codes), bool)
    place = space.configs.index(space.default)
    while True:
        (seconds,) = evaluate([space.configs[place]])
        untried[place] = False
        if not untried.any():
            return
        # Infinity is refused.  TPE ranks what was pruned last.
        works = bool(np.isfinite(seconds))
        study.add_trial(
            optuna.create_trial(
                params={name: int(code) for name, code in zip(kinds, codes[place], strict=True)},
                distributions=kinds,
                value=float(np.log(seconds)) if works else None,
                state=optuna.trial.TrialState.COMPLETE if works else optuna.trial.TrialState.PRUNED,
            )
        )
        asked = study.ask(kinds)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        wanted = np.array([asked.params[name] for name in kinds])
        apart = np.where(word, codes != wanted, np.abs(codes - wanted) / length).sum(axis=1)
        place = int(np.argmin(np.where(untried, apart, np.inf)))
