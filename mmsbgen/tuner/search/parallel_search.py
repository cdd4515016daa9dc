"""One search on several devices of the same kind: each device searches a part of the space, within a common budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from mmsbgen.db.records.canonical_json import digest
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, Evaluate
from mmsbgen.tuner.search.strategies import search


class ParallelLimit:
    """The lock and the counts that the threads of a parallel search share.

    A search's state is changed under the lock; :meth:`waiting` releases it while a candidate is measured.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.lock = threading.Lock()
        self.in_flight = 0
        """Number of candidates that are being measured."""
        self.failed = False
        """Whether a thread met an error, so that the others end too."""

    def full(self, tried: int, budget: int | None) -> bool:
        """Whether nothing more may begin: a thread failed, or tried and running candidates use up the budget."""
        return self.failed or (budget is not None and tried + self.in_flight >= budget)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Release the lock, if it is held, until the device has answered."""
        if not self.lock.locked():
            yield
            return
        self.in_flight += 1
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()
            self.in_flight -= 1


class _OneByOne:
    """Evaluates configurations one at a time under the lock, within the common budget."""

    def __init__(self, lanes: ParallelLimit, evaluate: Evaluate, full: Callable[[], bool]) -> None:
        self.lanes, self.evaluate, self.full = lanes, evaluate, full
        for told in ("part", "cost"):
            if hasattr(evaluate, told):
                setattr(self, told, getattr(evaluate, told))

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        found = []
        for config in configs:
            with self.lanes.lock:
                if self.full():
                    raise BudgetSpentError
                try:
                    found += self.evaluate([config])
                except BudgetSpentError:
                    raise
                except BaseException:
                    self.lanes.failed = True
                    raise
        return found


def deal(space: Candidates, parts: int) -> list[Candidates]:
    """Split the space into ``parts`` by the digests of its configurations, in the same way in every run.

    The default is in the first part; any other part has its first configuration as default.  Empty parts are left out.
    """
    hands: list[list[dict[str, Value]]] = [[] for _ in range(parts)]
    for config in space.configs:
        hands[0 if config == space.default else int(digest(config), 16) % parts].append(config)
    dealt = []
    for configs in filter(None, hands):
        default = space.default if space.default in configs else configs[0]
        dealt.append(replace(space, configs=configs, default=default))
    return dealt


def search_in_parallel(
    lanes: ParallelLimit,
    name: str,
    space: Candidates,
    evaluate: Evaluate,
    *,
    tried: Callable[[], int],
    budget: int | None,
    seed: int,
) -> None:
    """As :func:`mmsbgen.tuner.search.strategies.search`, with one thread per device; ``tried`` counts trials so far.

    Each thread runs the strategy on its part with its share of the budget.  The common budget ends all threads, so that
    one may use what another leaves.
    """
    if lanes.count == 1:
        search(name, space, evaluate, budget=budget, seed=seed)
        return
    parts = deal(space, lanes.count)
    one_by_one = _OneByOne(lanes, evaluate, lambda: lanes.full(tried(), budget))

    def lane(part: Candidates) -> None:
        try:
            search(name, part, one_by_one, budget=None if budget is None else -(-budget // len(parts)), seed=seed)
        except BaseException:
            lanes.failed = True
            raise

    with ThreadPoolExecutor(len(parts), thread_name_prefix="lane") as pool:
        for future in [pool.submit(lane, part) for part in parts]:
            future.result()


def try_in_parallel(
    lanes: ParallelLimit,
    configs: Sequence[Config],
    evaluate: Evaluate,
    *,
    tried: Callable[[], int],
    budget: int | None,
) -> None:
    """Measure ``configs`` in parallel, within what is left of the budget.

    Raises :class:`BudgetSpentError` if that was less than all, and the first other error of a thread, after which no
    configuration begins.
    """
    one_by_one = _OneByOne(lanes, evaluate, lambda: lanes.full(tried(), budget))
    with ThreadPoolExecutor(lanes.count, thread_name_prefix="lane") as pool:
        futures = [pool.submit(one_by_one, [config]) for config in configs]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if worst := [error for error in errors if not isinstance(error, BudgetSpentError)] or errors:
        raise worst[0]
