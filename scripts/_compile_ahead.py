"""Compiles for a tuning run what it is likely to try next, on the processor's other cores.

A tuner tries one configuration after the other, and most of that time goes into the compiler.  What is compiled
ahead lies in the cache of binaries, where the tuner's own process finds it.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from mmsbgen.backends import DeviceInfo
from mmsbgen.backends._binary_cache import BinaryCache
from mmsbgen.backends.cuda_compile import CudaCompiler, compile_cuda, find_compiler
from mmsbgen.build import compiler_options, traits_of
from mmsbgen.db.canonical import digest
from mmsbgen.db.records import TrialRecord
from mmsbgen.errors import CompileError
from mmsbgen.family import KernelFamily, KernelSpec
from mmsbgen.problem import Problem
from mmsbgen.render import render
from mmsbgen.space import Config
from mmsbgen.tuner.report import KernelReport, Progress
from mmsbgen.tuner.search import BudgetSpentError, Candidates, search

#: So long before a kernel's time is up nothing more is compiled: its finalists are timed on a quiet machine.
_QUIET_S = 3.0
_MOST_COVERING = 100


class CompileAhead(Progress):
    """Follows a tuning run on a CUDA device and compiles what it will try; with ``jobs`` 0 it does nothing.

    These are the configurations with which the strategy begins, then those that differ in one axis from the best
    so far, newest first.  ``problem`` is the run's own in every part, since a source's text names it.  Leave the
    context to end its threads.
    """

    def __init__(
        self,
        info: DeviceInfo,
        family: KernelFamily,
        problem: Problem,
        jobs: int,
        *,
        strategy: str = "default",
        seed: int = 0,
        compiler: CudaCompiler | None = None,
        cache: BinaryCache | None = None,
    ) -> None:
        self.info, self.family, self.problem = info, family, problem
        self.strategy, self.seed = strategy, seed
        self.compiled = 0
        """How many were compiled, or found in the cache."""
        self._jobs = jobs if info.backend == "cuda" else 0
        self._compiler = compiler
        self._cache = cache or BinaryCache()
        self._waiting: queue.PriorityQueue[tuple[int, int, tuple[KernelSpec, Config] | None]]
        self._waiting = queue.PriorityQueue()
        self._order = itertools.count()
        self._asked: set[str] = set()
        self._best_s: float | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._jobs:
            self._compiler = self._compiler or find_compiler()
            self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._jobs)]
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.clear()
        for _ in self._threads:
            self._waiting.put((-1, 0, None))
        for thread in self._threads:
            thread.join()
        self._threads = []

    def kernel(self, report: KernelReport) -> None:
        """A kernel's search begins."""
        self.clear()
        self._asked.clear()
        self._best_s = None
        if self._jobs:
            first = beginning(self.strategy, report.space, report.budget, self.seed)
            self._ask(report, first, urgency=1)

    def trial(self, report: KernelReport, trial: TrialRecord) -> None:
        """A configuration was tried."""
        spent = report.budget is not None and len(report.trials) >= report.budget
        late = report.deadline is not None and time.monotonic() > report.deadline - _QUIET_S
        if spent or late or not self._jobs:
            self.clear()
        elif trial.status == "ok" and trial.median_s and trial.median_s < (self._best_s or float("inf")):
            self._best_s = trial.median_s
            self._ask(report, neighbours(report.space.configs, trial.config), urgency=2)

    def finished(self, report: KernelReport) -> None:
        """A kernel is done."""
        self.clear()

    def clear(self) -> None:
        """Forget what waits."""
        while True:
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                return

    def _ask(self, report: KernelReport, configs: Iterable[Config], urgency: int) -> None:
        spec = self.family.kernel(report.kernel)
        for config in configs:
            name = digest(dict(config))
            if name not in self._asked:
                self._asked.add(name)
                count = next(self._order)
                self._waiting.put((urgency, count if urgency == 1 else -count, (spec, config)))

    def _work(self) -> None:
        # The tuner's own process launches kernels meanwhile: compilers give way to it.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        traits = traits_of(self.info)
        while (job := self._waiting.get()[2]) is not None:
            spec, config = job
            text = render(spec, self.problem, config, traits).text
            try:
                compile_cuda(
                    text, self.info.architecture, compiler_options(traits), compiler=self._compiler, cache=self._cache
                )
            except CompileError:
                continue  # the tuner meets it again and records it
            with self._lock:
                self.compiled += 1


def beginning(strategy: str, space: Candidates, budget: int | None, seed: int) -> list[Config]:
    """The configurations with which a strategy begins, whatever it measures.

    A budget makes the default strategy spend a fifth of it on a sample and then follow what it measured.
    """
    most = _MOST_COVERING if budget is None else min(_MOST_COVERING, budget // 5)
    found: list[Config] = []

    def note(configs: Sequence[Config]) -> list[float]:
        for config in configs:
            if len(found) >= most:
                raise BudgetSpentError
            found.append(config)
        return [1.0] * len(configs)

    search(strategy, space, note, budget=budget, seed=seed)
    return found


def neighbours(configs: Iterable[Config], best: Config) -> list[Config]:
    """Those that differ from ``best`` in exactly one axis."""
    return [config for config in configs if sum(config[name] != value for name, value in best.items()) == 1]
