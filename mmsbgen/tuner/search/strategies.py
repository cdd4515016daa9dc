"""Strategies: the order in which a space is tried.

A strategy proposes configurations to an :data:`Evaluate`, which returns their seconds and ends the search by raising
:class:`BudgetSpentError`.  The same seed and the same results give the same order.
"""

from __future__ import annotations

import random

from mmsbgen.base.errors import InputError
from mmsbgen.tuner.search import kernel_tuner_strategies
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, Evaluate
from mmsbgen.tuner.search.default_search import default_search

OWN_STRATEGIES = ("default", "exhaustive", "random")
STRATEGIES = (*OWN_STRATEGIES, *kernel_tuner_strategies.NAMES)


def check_strategy(name: str) -> None:
    """Raise :class:`InputError` for a strategy that does not exist or whose library is missing."""
    if name not in STRATEGIES:
        raise InputError(f"no strategy {name!r}; there are {', '.join(STRATEGIES)}")
    if name not in OWN_STRATEGIES:
        kernel_tuner_strategies.require()


def search(name: str, space: Candidates, evaluate: Evaluate, *, budget: int | None, seed: int) -> None:
    """Run a strategy until it is done or ``evaluate`` ends it; ``budget`` is the number of trials, if limited.

    Every strategy begins with the default configuration.
    """
    check_strategy(name)
    try:
        evaluate([space.default])
        if name == "exhaustive":
            evaluate(space.configs)
        elif name == "random":
            evaluate(random.Random(seed).sample(space.configs, len(space.configs)))
        elif name == "default":
            default_search(space, evaluate, budget, random.Random(seed))
        else:
            kernel_tuner_strategies.run(name, space.configs, evaluate, budget=budget, seed=seed)
    except BudgetSpentError:
        pass
