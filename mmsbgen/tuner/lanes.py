"""One search over several devices that are alike: each lane searches a part of the space, what they find is shared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from mmsbgen.db.canonical import digest
from mmsbgen.problem import Value
from mmsbgen.space import Config
from mmsbgen.tuner.search import BudgetSpentError, Candidates, Evaluate, search

__all__ = ["Lanes", "deal", "search_in_lanes"]


class Lanes:
    """Lets several threads use what only one may use at a time, except while they wait for a device.

    A search's state is touched under the lock; :meth:`waiting` gives it up while a candidate is measured.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.lock = threading.Lock()
        self.in_flight = 0
        """Candidates that are being measured."""
        self.failed = False
        """Whether a lane met an error, so that the others end too."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Give the lock up, if lanes are running, until the device has answered."""
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


def deal(space: Candidates, parts: int) -> list[Candidates]:
    """The space in ``parts`` by the digests of its configurations, the same for every run; empty parts are left out.

    The default is in the first; the others begin with a configuration of their own.
    """
    hands: list[list[dict[str, Value]]] = [[] for _ in range(parts)]
    for config in space.configs:
        hands[0 if config == space.default else int(digest(config), 16) % parts].append(config)
    dealt = []
    for configs in filter(None, hands):
        default = space.default if space.default in configs else configs[0]
        dealt.append(replace(space, configs=configs, default=default))
    return dealt


def search_in_lanes(
    lanes: Lanes,
    name: str,
    space: Candidates,
    evaluate: Evaluate,
    *,
    tried: Callable[[], int],
    budget: int | None,
    seed: int,
) -> None:
    """As :func:`mmsbgen.tuner.search.search`, with one lane a device; ``tried`` counts against ``budget``.

    Each lane runs the strategy on its part with its share of the budget; what one leaves goes to the others.
    """
    parts = deal(space, lanes.count) if lanes.count > 1 else [space]
    if len(parts) == 1 and lanes.count == 1:
        search(name, space, evaluate, budget=budget, seed=seed)
        return

    def one_by_one(configs: Sequence[Config]) -> list[float]:
        found = []
        for config in configs:
            with lanes.lock:
                if lanes.failed or (budget is not None and tried() + lanes.in_flight >= budget):
                    raise BudgetSpentError
                found += evaluate([config])
        return found

    def lane(part: Candidates) -> None:
        try:
            search(name, part, one_by_one, budget=None if budget is None else -(-budget // len(parts)), seed=seed)
        except BaseException:
            lanes.failed = True
            raise

    with ThreadPoolExecutor(len(parts), thread_name_prefix="lane") as pool:
        for future in [pool.submit(lane, part) for part in parts]:
            future.result()
