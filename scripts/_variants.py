"""Variants of kernels, and checking many of them in processes side by side.  For the scripts that check."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from _variant_worker import Result, Worker
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.errors import InputError
from mmsbgen.base.processes import cores
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.space import Traits, describe

#: What is drawn for a problem beside K and dtype.
DRAWN: dict[str, tuple[Any, ...]] = {
    "n": (1, 2, 3, 5, 11),
    "step": ("split", "split", "reflected", "published"),
    "theta_step": ("reflected", "published", "gain"),
    "noise": ("on", "off"),
    "partners": ("uniform", "stratified", "shared", "shared-uniform", "block"),
}

#: How many are drawn for one that is taken, and how often that may be in vain before a space counts as exhausted.
_DRAWS, _PATIENCE = 100, 30


class Variant(NamedTuple):
    """One thing to check; ``key`` is stable over runs."""

    kernel: str
    problem: dict[str, Any]
    config: dict[str, Any]

    @property
    def key(self) -> str:
        return json.dumps(self, sort_keys=True)

    @property
    def group(self) -> str:
        """The row of the report: the kernel, and its placement where it has one."""
        return f"{self.kernel} {self.config.get('placement', '')}".strip()

    def __str__(self) -> str:
        return f"{self.kernel} {describe(self.problem)} {describe(self.config)}"


def spread(
    kernels: KernelFamily, spec: KernelSpec, traits: Traits, ks: Sequence[int], fixed: Mapping[str, Any]
) -> Iterator[Variant]:
    """Valid variants of a kernel without end to speak of, each the one of a few drawn with most pairs of new values.

    Values are those of the axes, of which ``fixed`` keeps some, and of the problem.  The order is the same every time.
    Unlike an enumeration it begins at once, however large the space.
    """
    rng = random.Random(f"{spec.name} {describe(fixed)}")
    axes = {axis.name: (fixed[axis.name],) if axis.name in fixed else axis.values for axis in spec.space.axes}
    choices = {"K": tuple(ks), "dtype": ("float32", "float64"), "storage": STORAGES, **DRAWN}
    own = spec.parameters if kernels.name == "mmsb" else ()  # other families are checked at their default sizes
    choices = {name: values for name, values in choices.items() if name in own}
    known: set[str] = set()
    pairs: set[Any] = set()

    def draw() -> Variant | None:
        config = {name: rng.choice(values) for name, values in axes.items()}
        values = {name: rng.choice(among) for name, among in choices.items()}
        try:
            problem = spec.check_problem(kernels.problem(**values))
        except InputError:
            return None  # values that make no problem together
        if spec.space.refusal(config, problem, traits) is not None:
            return None
        variant = Variant(spec.name, values, config)
        return None if variant.key in known else variant

    while True:
        drawn = [variant for variant in (draw() for _ in range(_DRAWS)) if variant is not None]
        for _ in range(_PATIENCE):
            if drawn:
                break
            drawn = [variant for variant in (draw() for _ in range(_DRAWS)) if variant is not None]
        if not drawn:
            return
        new = [_pairs(variant) - pairs for variant in drawn]
        best = max(range(len(drawn)), key=lambda i: len(new[i]))
        pairs |= new[best]
        known.add(drawn[best].key)
        yield drawn[best]


def _pairs(variant: Variant) -> set[Any]:
    """All pairs of values of axes and problem."""
    values = sorted({**variant.problem, **variant.config}.items())
    return set(itertools.combinations(values, 2))


def in_turns(groups: dict[str, Iterator[Variant]]) -> Iterator[Variant]:
    """One of each group after the other, until all are through."""
    queues = dict(sorted(groups.items()))
    while queues:
        for name in list(queues):
            variant = next(queues[name], None)
            if variant is None:
                del queues[name]
            else:
                yield variant


def run(
    info: DeviceInfo,
    pending: Iterator[Variant],
    keep: Callable[[Variant, Result], None],
    *,
    seconds: float,
    jobs: int,
    timeout: float,
    family: str,
) -> None:
    """Check variants in ``jobs`` processes until they or the time run out; ``keep`` is called by one at a time.

    ``timeout`` is for one variant, seconds.  When it is interrupted the processes are ended, and what they were at is
    not kept.
    """
    end = time.monotonic() + seconds
    lock = threading.Lock()
    stopped = threading.Event()
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        # The gigabytes that thousands of kernels compile to are no use to anyone, nor is to drop the user's for them.
        tempfile.TemporaryDirectory(prefix="mmsbgen-variants-") as cache,
        Progress(*columns, console=Console(stderr=True)) as progress,
        ThreadPoolExecutor(jobs) as pool,
    ):
        # Half as many threads again as cores: some wait for the device.
        threads = -(-3 * cores() // (2 * jobs)) if info.backend == "cuda" else 0
        workers = [Worker(info.spec, timeout, cache, threads, family) for _ in range(jobs)]
        task = progress.add_task(info.platform, total=None)

        def taken() -> Variant | None:
            with lock:
                return next(pending, None) if time.monotonic() < end and not stopped.is_set() else None

        def work(worker: Worker) -> None:
            for variant, result in worker.check_all(iter(taken, None)):
                with lock:
                    if stopped.is_set():
                        break
                    keep(variant, result)
                progress.update(task, advance=1, description=variant.group)
            worker.close(kill=stopped.is_set())

        try:
            for future in [pool.submit(work, worker) for worker in workers]:
                future.result()
        except BaseException:
            stopped.set()
            for worker in workers:
                worker.stop()
            raise
