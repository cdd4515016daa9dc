"""kernel_tuner's strategies on this package's spaces and measurements.

kernel_tuner gets the list of valid configurations and a runner that asks for seconds; it compiles and measures nothing
itself.  Axis values are passed as their indices, since some strategies do arithmetic on them.  Visits to known
configurations are answered from memory; a strategy that makes no other visits is stopped.
"""

from __future__ import annotations

import importlib
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mmsbgen.base.libraries import library
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.space import Config

NAMES = (
    "random_sample",
    "minimize",
    "basinhopping",
    "diff_evo",
    "genetic_algorithm",
    "greedy_mls",
    "ordered_greedy_mls",
    "greedy_ils",
    "dual_annealing",
    "mls",
    "pso",
    "simulated_annealing",
    "firefly_algorithm",
)
_SMALL = 8
"""Spaces up to this size are tried exhaustively: they are too small for the populations of strategies."""
_GENERATORS_LOCK = threading.Lock()
"""Held while a strategy runs with its own states of the global generators, and never while it waits for seconds."""
_IDLE_VISITS = 5000
"""Successive visits to known configurations after which a strategy counts as converged and is stopped."""


def require() -> None:
    """Raise :class:`mmsbgen.base.errors.MissingDependencyError` when kernel_tuner is not installed."""
    with _quiet():
        library("kernel_tuner.searchspace", "its strategies")


def run(
    name: str,
    configs: Sequence[dict[str, Value]],
    evaluate: Callable[[Sequence[Config]], list[float]],
    *,
    budget: int | None,
    seed: int,
) -> None:
    """Let kernel_tuner's strategy ``name`` choose among ``configs``; exceptions of ``evaluate`` are passed on."""
    require()
    if len(configs) <= _SMALL:
        evaluate(configs)
        return
    generators = _Generators(seed)

    def measure(wanted: Sequence[Config]) -> list[float]:
        with generators.waiting():
            return evaluate(wanted)

    with _quiet(), generators.running():
        from kernel_tuner.interface import Options
        from kernel_tuner.searchspace import Searchspace
        from kernel_tuner.util import TuningBudget

        strategy = importlib.import_module(f"kernel_tuner.strategies.{name}")
        names = list(configs[0])
        values = {n: sorted({config[n] for config in configs}, key=_order) for n in names}
        values = {n: found for n, found in values.items() if len(found) > 1} or {names[0]: values[names[0]]}
        codes = [{n: found.index(config[n]) for n, found in values.items()} for config in configs]
        axes = {n: list(range(len(found))) for n, found in values.items()}

        class Space(Searchspace):  # type: ignore[misc]
            """A search space that avoids two defects of kernel_tuner's.

            Some strategies move to a random neighbour and break down where a configuration has none.  Latin hypercubes
            are drawn by a generator that cannot be seeded.  A random sample replaces both.
            """

            def get_LHS_sample(self, num_samples: int) -> Any:  # noqa: N802
                return self.get_random_sample(num_samples)

            def get_random_neighbor(self, param_config: Any, *args: Any, **kwargs: Any) -> Any:
                found = super().get_random_neighbor(param_config, *args, **kwargs)
                return self.get_random_sample(1)[0] if found is None else found

        space = Space(None, None, None, from_cache={"tune_params": axes, "cache": dict(enumerate(codes))})
        most = min(budget or len(configs), len(configs))
        options = Options(
            objective=["time"],
            objective_higher_is_better=[False],
            strategy_options=Options(max_fevals=most),
            max_fevals=most,
            tune_params=axes,
            restrictions=[],
            metrics=None,
            cache={},
            verbose=False,
            budget=TuningBudget(None, 2**62),
        )
        by_code = {tuple(code.values()): config for code, config in zip(codes, configs, strict=True)}
        strategy.tune(space, _runner(by_code, list(axes), measure), options)


def _runner(
    by_code: dict[tuple[int, ...], dict[str, Value]],
    names: list[str],
    evaluate: Callable[[Sequence[Config]], list[float]],
) -> Any:
    """A runner for kernel_tuner.  The class is local, as its base class needs kernel_tuner loaded."""
    from kernel_tuner.runners.runner import Runner
    from kernel_tuner.util import RuntimeFailedConfig, StopCriterionReached

    class Measured(Runner):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.known: dict[tuple[int, ...], float] = {}
            self.idle = 0

        def get_device_info(self) -> Any:
            return None

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            return {}

        def run(self, parameter_space: Any, tuning_options: Any) -> list[dict[str, Any]]:
            return [self._one(tuple(int(value) for value in element)) for element in parameter_space]

        def _one(self, code: tuple[int, ...]) -> dict[str, Any]:
            self.idle += 1
            if self.idle > _IDLE_VISITS or len(self.known) == len(by_code):
                raise StopCriterionReached("nothing new is visited any more")
            if code not in self.known:
                (self.known[code],) = evaluate([by_code[code]])
                self.idle = 0
            result: dict[str, Any] = dict(zip(names, code, strict=True))
            result["time"] = self.known[code]
            if not np.isfinite(self.known[code]):
                result["time"] = result["__error__"] = RuntimeFailedConfig()
            return result

    return Measured()


def _order(value: Value) -> tuple[bool, Any]:
    return (True, value) if isinstance(value, str) else (False, value)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Generators:
    """Seeded states of the global generators of Python and NumPy, which kernel_tuner draws from.

    They are swapped with the caller's while kernel_tuner runs, and back while it waits for a measurement.  Strategies
    of several threads take turns by a lock.  A measurement may take other locks, so this one is released before it
    begins and taken again after it ended.
    """

    def __init__(self, seed: int) -> None:
        self._held: tuple[Any, Any] = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take the lock and put the states held here in use, until the block is left."""
        with _GENERATORS_LOCK:
            self._exchange()
            try:
                yield
            finally:
                self._exchange()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within :meth:`running`: put the caller's states back and release the lock, until the block is left."""
        self._exchange()
        _GENERATORS_LOCK.release()
        try:
            yield
        finally:
            _GENERATORS_LOCK.acquire()
            self._exchange()

    def _exchange(self) -> None:
        used = random.getstate(), np.random.get_state()
        random.setstate(self._held[0])
        np.random.set_state(self._held[1])
        self._held = used
