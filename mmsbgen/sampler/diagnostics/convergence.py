"""Whether a run has converged, in numbers and in plain words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.best_community import leading_communities
from mmsbgen.sampler.diagnostics.communities import Memberships, largest
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.options.phases import TOLERANCE, WINDOW, settled

#: Moments whose leading communities are remembered; beyond, every second one is forgotten.
_MOMENTS = 32
#: Elements of the state above which the leading communities are looked up at every eighth evaluation only.
_LARGE = 1 << 24
#: Share of vertices with the same leading community below which a run is called unsettled.
_AGREEMENT = 0.9


class StabilityWatch:
    """Remembers which community was each vertex's largest, as the run went on."""

    def __init__(self) -> None:
        self.moments: list[tuple[int, npt.NDArray[np.int32]]] = []
        self._seen = 0

    def look(self, sampler: Sampler) -> None:
        """Take note of the present state; call it at evaluations."""
        self._seen += 1
        if sampler.split.graph.n_vertices * sampler.shape.k > _LARGE and self._seen % 8:
            return
        if sampler.options.refines:
            leading = leading_communities(sampler)
        else:
            parts = [largest(sampler.rows(*chunk)[0], 1)[0][:, 0] for chunk in sampler.state_chunks()]
            leading = np.concatenate(parts)
        self.moments.append((sampler.iteration, leading.astype(np.int32)))
        if len(self.moments) > _MOMENTS:
            # The latest stays.
            self.moments = self.moments[1::2] if len(self.moments) % 2 == 0 else self.moments[::2]

    def agreement(self, begin: int) -> float | None:
        """Share of vertices whose largest community is still that of half-way since ``begin``; None if not known."""
        if len(self.moments) < 2:
            return None
        end, last = self.moments[-1]
        middle = begin + (end - begin) / 2
        when, before = min(self.moments[:-1], key=lambda moment: abs(moment[0] - middle))
        if abs(when - middle) > (end - begin) / 4:
            # A run that was resumed late has seen no state from half-way.
            return None
        return float(np.mean(before == last))


def convergence(sampler: Sampler, trace: Trace, found: Memberships, watch: StabilityWatch) -> dict[str, Any]:
    """What the run record says of convergence.

    ``settled`` (at the end, of a run of open length when it set its end; None: too little to tell),
    ``effective_communities`` (exp of the entropy of the mean row, of the entries that were kept), ``mean_row_sum``,
    ``agreement`` (of the leading communities of the two halves since the last refinement), and ``text``, a verdict for
    people.
    """
    course, sweep = sampler.course, _sweep(sampler)
    since = [row for row in trace if row["iteration"] > course.changed_at]
    verdict = True if course.settled_at is not None else settled(since, sweep, course.changed_at)
    mass = np.bincount(found.indices.ravel(), found.values.ravel(), minlength=found.k)
    share = mass[mass > 0] / mass.sum()
    agreement = watch.agreement(course.changed_at)
    return {
        "settled": verdict,
        "effective_communities": float(np.exp(-(share * np.log(share)).sum())) if share.size else 0.0,
        "mean_row_sum": trace[-1]["mean_row_sum"] if trace else math.nan,
        "agreement": agreement,
        "text": _not_known(sampler, since, sweep) if verdict is None else _text(sampler, verdict, agreement),
    }


def _sweep(sampler: Sampler) -> float:
    """Iterations in which every vertex is updated once, of stars in the mean."""
    if sampler.options.block or not sampler.chain.vertex_updates:
        return float(sampler.per_sweep)
    return sampler.iteration * sampler.split.graph.n_vertices / sampler.chain.vertex_updates


def _text(sampler: Sampler, verdict: bool, agreement: float | None) -> str:
    same = (
        ""
        if agreement is None
        else f"; {agreement:.0%} of the vertices kept their largest community in the second half"
    )
    unit = "sweep" if sampler.options.block else "iteration"
    done = _counted(sampler.iteration / sampler.per_sweep, unit)
    if not verdict:
        return (
            f"Warning: the run has not converged. After {done} the held-out log-likelihood still rises by more than "
            f"{TOLERANCE:.1%} from {WINDOW} evaluations, or those of a sweep, to the next{same}. Communities may still "
            "change: give it more iterations (-n)."
        )
    # The verdict is one of the end: noise moves the moment from which on it holds too far to name one.
    if agreement is not None and agreement < _AGREEMENT:
        return (
            f"Warning: at the end, after {done}, the held-out log-likelihood has settled, the communities have not"
            f"{same}. Compare another seed before you rely on single vertices."
        )
    return f"Converged: at the end, after {done}, the held-out log-likelihood has settled{same}."


def _not_known(sampler: Sampler, since: Trace, sweep: float) -> str:
    """Why nothing is known, and what would tell."""
    said = "Not known whether the run has converged"
    if not len(sampler.split.validation.pairs):
        return f"{said}: no pairs are held out that could tell (--validation)."
    changed = sampler.course.changed_at
    done, times = _counted((sampler.iteration - changed) / sweep, "sweep"), _counted(len(since), "time")
    until = "; without -n it goes on until it has" if sampler.options.block and sampler.options.iterations else ""
    return (
        f"{said}: too short. Since {'the last refinement' if changed else 'the start'} it has made {done} and was "
        f"evaluated {times}; to tell takes 2 sweeps ({math.ceil(2 * sweep)} iterations) and {2 * WINDOW} evaluations "
        f"at the least. Give it more iterations (-n){until}."
    )


def _counted(value: float, unit: str) -> str:
    """Two digits are enough of a few, whole numbers of many."""
    number = f"{value:.2g}" if value < 10 else f"{value:.0f}"
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"
