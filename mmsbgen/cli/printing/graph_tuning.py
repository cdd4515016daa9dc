"""What ``mmsbgen tune --graph`` does around the search: a state to tune on before it, whole sweeps after it."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.stop_signals import TimeUpError, ending_at
from mmsbgen.cli.shared.common import seconds
from mmsbgen.cli.shared.graph_problem import GraphRun

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import Store
    from mmsbgen.sampler.run.graph_chain import ChainGain
    from mmsbgen.tuner.run.tuning_report import TuneReport

_CHAIN_S = 10.0
"""Most seconds for the sweeps before the search, and again for those after it."""
_CHAIN_SHARE = 0.15
"""Largest share of a budget for each."""
_FEWEST_TURNS = 3
"""Fewer say nothing about a difference."""
_SHORT_S = 20.0
"""Shorter budgets are for the search alone."""
_RECORD_SHARE = 0.4
"""Largest share of a budget for the sweeps before the search and the start that they need."""
_LATE = "there was no time for it"


class GraphTuning:
    """The chains of one tune; ``options`` are keywords of :func:`mmsbgen.tuner.run.tune.tune`.

    The budget of seconds counts from ``began``, of :func:`time.monotonic`.
    """

    def __init__(self, run: GraphRun, options: dict[str, Any], began: float) -> None:
        from mmsbgen.base.libraries import import_lightly
        from mmsbgen.sampler.run.graph_chain import GraphChain

        import_lightly()
        budget_s = options["budget_seconds"]
        self._began, self._budget_s = began, math.inf if budget_s is None else budget_s
        self._chain = GraphChain(run.parts, run.options)
        self._chain_s = _CHAIN_S if budget_s is None else min(_CHAIN_S, _CHAIN_SHARE * budget_s)
        if options["objective"] != "time" or (budget_s is not None and budget_s < _SHORT_S):
            self._chain_s = 0.0
        self._failed = ""

    @contextmanager
    def recorded(self, device: str | None, options: dict[str, Any]) -> Iterator[Path | None]:
        """The file of a state of the graph's chain, if times depend on it; ``options`` get the rest of the budget.

        A device without room or time for a chain, or a configuration that fails in it, leaves generated inputs.  Raises
        :class:`InputError` if reading the graph took the whole budget.
        """
        with tempfile.TemporaryDirectory(prefix="mmsbgen-") as folder:
            file = Path(folder) / "state.npz"
            is_recorded = False
            try:
                with ending_at(self._began + _RECORD_SHARE * self._budget_s):
                    is_recorded = self._chain_s > 0 and self._chain.record(device, file, self._chain_s)
            except TimeUpError:
                self._failed, self._chain_s = _LATE, 0.0
            except MmsbgenError as error:
                self._failed = str(error)
            if options["budget_seconds"] is not None:
                options["budget_seconds"] = self._left()
            yield file if is_recorded else None

    def _left(self) -> float:
        """Seconds for the search; the sweeps after it are left out if they would take more than half of the rest."""
        left_s = rest_of(self._began, self._budget_s)
        if left_s < 2 * self._chain_s:
            self._chain_s = 0.0
        return left_s - self._chain_s

    def gain(self, report: TuneReport, store: Store) -> ChainGain | str | None:
        """Whole sweeps as tuned and by the defaults, which are selected if they are faster in every turn.

        None if there was no time, or every kernel has its default; a sentence if a chain failed.
        """
        from mmsbgen.db.exchange.jsonl import Bundle
        from mmsbgen.tuner.run.finals import as_winners
        from mmsbgen.tuner.run.tune_options import last_moment

        tuned = [one for one in report.kernels if one.best is not None and one.default not in (None, one.best)]
        if not any(kernel.trials for kernel in report.kernels):
            return None
        if self._failed:
            return f"Generated inputs were measured instead of those of a chain of the graph: {self._failed}"
        if not tuned or not self._chain_s:
            return None
        try:
            with ending_at(last_moment(self._began, self._budget_s)):
                gain = self._chain.gain(report.info.spec, store, self._chain_s)
        except (MmsbgenError, TimeUpError) as error:
            return f"Whole sweeps could not be compared with the defaults: {str(error) or _LATE}"
        if gain.slower:
            store.add_bundle(Bundle([], [], as_winners(report.run, [one.default for one in tuned if one.default])))
        return gain


def rest_of(began: float, budget_s: float) -> float:
    """Seconds that are left of a budget; raises :class:`InputError` if reading the graph took all of them."""
    left_s = began + budget_s - time.monotonic()
    if left_s <= 0:
        raise spent_on_reading(budget_s)
    return left_s


def spent_on_reading(budget_s: float) -> InputError:
    """The error of a budget that was over when the graph had been read."""
    return InputError(f"--budget-seconds {budget_s:g}: that was spent on reading the graph; give more")


def sentence(gain: ChainGain) -> str:
    """A sentence on the sweeps of a graph as tuned and by the defaults."""
    tuned_s, default_s = statistics.median(gain.tuned), statistics.median(gain.default)
    if len(gain.ratios) < _FEWEST_TURNS:
        return f"a sweep of this graph takes about {seconds(tuned_s)}; there was no time to compare with the defaults"
    saved_s = 100 * (default_s - tuned_s)
    saved = f"{abs(saved_s):.2g} s {'less' if saved_s >= 0 else 'more'} in 100 sweeps"
    if min(gain.ratios) <= 1.0 <= max(gain.ratios):
        saved = "so they cannot be told apart"
    text = (
        f"a sweep of this graph takes {seconds(tuned_s)}, by the defaults {seconds(default_s)}: "
        f"{gain.ratio:.2f}x ({min(gain.ratios):.2f} to {max(gain.ratios):.2f} in {len(gain.ratios)} turns), {saved}"
    )
    return text + ("; so the defaults stay in use" if gain.slower else "")
