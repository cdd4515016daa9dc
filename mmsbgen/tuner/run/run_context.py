"""Context of a run: where it measures, its record, and its stop request."""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmsbgen.base.libraries import versions
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.db.records.tuning_records import RunRecord
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.tuner.measure.measurer import Measures
from mmsbgen.tuner.run.earlier_trials import end_dead_runs, this_process
from mmsbgen.tuner.search.parallel_search import ParallelLimit

_VERSIONED = ("mmsbgen", "numpy", "pyopencl", "pycuda", "kernel_tuner")


class Entry:
    """A run's entry in a store, made by the first search that has something to measure; refused runs leave none."""

    def __init__(self, store: Store, run: RunRecord) -> None:
        self.run = run
        self._store = store
        self._beginning = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        """Store the beginning of the run, unless a search on another device has done so."""
        with self._beginning:
            if not self._begun:
                end_dead_runs(self._store)
                self._store.begin_run(self.run)
                self._begun = True

    def end(self, status: str) -> None:
        """Store how the run ended, if it began."""
        if self._begun:
            self._store.finish_run(self.run.uuid, status=status)


@dataclass(frozen=True)
class RunContext:
    """Context of a search: measurer, run, stop request, and the limit shared by its devices."""

    measurer: Measures
    entry: Entry
    interrupt: StopRequest
    lanes: ParallelLimit = field(default_factory=lambda: ParallelLimit(1))

    @property
    def run(self) -> RunRecord:
        """The record of the run."""
        return self.entry.run


def new_run(
    strategy: str,
    budget_trials: int | None,
    budget_seconds: float | None,
    seed: int,
    extra: Mapping[str, Any] | None = None,
) -> RunRecord:
    """The record of a new run of this process."""
    return RunRecord(
        strategy=strategy,
        budget={"trials": budget_trials, "seconds": budget_seconds},
        seed=seed,
        host=platform.node(),
        versions=versions(*_VERSIONED),
        extra={"process": this_process(), **(extra or {})},
    )
