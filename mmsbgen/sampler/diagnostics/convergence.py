"""Whether a run has converged, in numbers and as text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.diagnostics.explained_links import Ints
from mmsbgen.sampler.diagnostics.memberships import Memberships, by_community, largest
from mmsbgen.sampler.diagnostics.state_rows import leading_communities
from mmsbgen.sampler.options.phases import TOLERANCE, WINDOW, one_community, settled
from mmsbgen.sampler.posterior.draws import effective_number

#: Most snapshots of leading communities; beyond it, every second one is dropped.
_MOMENTS = 32
#: Elements of the state above which a snapshot is taken at every eighth evaluation only.
_LARGE = 1 << 24
#: Share of vertices that kept their largest community, below which communities count as unsettled.
_AGREEMENT = 0.9
#: Part of its row's largest share above which a community is kept: of two equal ones, either may be the largest.
_KEPT = 0.75
#: Rows that are looked at together.
_ROWS = 1 << 20


class StabilityWatch:
    """Snapshots of the largest community of every vertex that moves, during a run."""

    def __init__(self) -> None:
        self.moments: list[tuple[int, npt.NDArray[np.int32]]] = []
        self._seen = 0

    def look(self, sampler: Sampler) -> None:
        """Take a snapshot of the current state; called at evaluations."""
        self._seen += 1
        if sampler.split.graph.n_vertices * sampler.shape.k > _LARGE and self._seen % 8:
            return
        if sampler.options.refines:
            leading = leading_communities(sampler)
        else:
            parts = [largest(sampler.rows(*chunk)[0], 1)[0][:, 0] for chunk in sampler.state_chunks()]
            leading = np.concatenate(parts)
        self.moments.append((sampler.iteration, np.delete(leading, sampler.left_out).astype(np.int32)))
        if len(self.moments) > _MOMENTS:
            # Keep the latest snapshot.
            self.moments = self.moments[1::2] if len(self.moments) % 2 == 0 else self.moments[::2]

    def agreement(self, begin: int, found: Memberships, left_out: Ints) -> float | None:
        """Share of vertices that still have much of their largest community half-way from ``begin``; None if unknown.

        ``found`` are the memberships at the end, ``left_out`` the vertices without a place in snapshots, ascending.
        """
        if len(self.moments) < 2:
            return None
        end, last = self.moments[-1]
        middle = begin + (end - begin) / 2
        when, before = min(self.moments[:-1], key=lambda moment: abs(moment[0] - middle))
        if abs(when - middle) > (end - begin) / 4:
            # A run that was resumed late has no snapshot near half-way.
            return None
        other = np.flatnonzero(before != last)
        vertices = other + np.searchsorted(left_out - np.arange(left_out.size), other, side="right")
        lost = 0
        for first in range(0, other.size, _ROWS):
            part = slice(first, first + _ROWS)
            indices, values = found.indices[vertices[part]], found.values[vertices[part]]
            shares = np.where(indices == before[other[part], None], values, 0).max(axis=1)
            lost += int(np.count_nonzero(shares < _KEPT * values[:, 0]))
        return 1 - lost / before.size


def convergence(sampler: Sampler, trace: Trace, found: Memberships, watch: StabilityWatch) -> dict[str, Any]:
    """The entry of the run record on convergence.

    ``settled``: whether the log-likelihood has settled at the end or, for a run of open length, when its end was set;
    None if unknown.  ``effective_communities``: exp of the entropy of the mean row, from the stored entries.
    ``mean_row_sum``: at the last evaluation.  ``agreement``: share of vertices whose largest community half-way from
    the last refinement has at least 3/4 of their largest share at the end.  ``text``: the verdict for people.
    """
    course, sweep = sampler.course, _sweep(sampler)
    since = [row for row in trace if row["iteration"] > course.changed_at]
    chance = one_community(sampler.split.density)
    verdict = True if course.settled_at is not None else settled(since, sweep, course.changed_at, chance)
    mass = by_community(found.indices, found.values, found.width)
    agreement = watch.agreement(course.changed_at, found, sampler.left_out)
    return {
        "settled": verdict,
        "effective_communities": effective_number(mass),
        "mean_row_sum": trace[-1]["mean_row_sum"] if trace else math.nan,
        "agreement": agreement,
        "text": _not_known(sampler, since, sweep) if verdict is None else _text(sampler, verdict, agreement),
    }


def _sweep(sampler: Sampler) -> float:
    """Iterations in which every vertex is updated once; for stars on average."""
    if sampler.options.block or not sampler.chain.vertex_updates:
        return float(sampler.per_sweep)
    return sampler.iteration * sampler.split.graph.n_vertices / sampler.chain.vertex_updates


def _text(sampler: Sampler, verdict: bool, agreement: float | None) -> str:
    kept = (
        ""
        if agreement is None
        else f"{agreement:.0%} of the vertices kept their largest community through the second half of the run."
    )
    also = f" {kept}" if kept else ""
    unit = "sweep" if sampler.options.block else "iteration"
    done = _counted(sampler.iteration / sampler.per_sweep, unit)
    if not verdict:
        return (
            f"Warning: the run has not converged. After {done} the held-out log-likelihood still rises by more than "
            f"{TOLERANCE:.1%} from {WINDOW} evaluations, or those of a sweep, to the next.{also} Communities "
            "may still change: give it more iterations (-n)."
        )
    # The text names the length of the run only: noise makes the time of convergence too uncertain.
    if agreement is not None and agreement < _AGREEMENT:
        return (
            f"Warning: after {done} the held-out log-likelihood has settled, but the communities have not. Only {kept} "
            "Compare with another seed before you rely on individual vertices."
        )
    return f"Converged: after {done} the held-out log-likelihood has settled.{also}"


def _not_known(sampler: Sampler, since: Trace, sweep: float) -> str:
    """Text for an unknown verdict: the reason and the remedy."""
    said = "Not known whether the run has converged"
    if not len(sampler.split.validation.pairs):
        return f"{said}: no pairs are held out that could tell (--validation)."
    changed = sampler.course.changed_at
    done, times = _counted((sampler.iteration - changed) / sweep, "sweep"), _counted(len(since), "time")
    until = "; without -n it goes on until it has" if sampler.options.block and sampler.options.iterations else ""
    remedy = f"Give it more iterations (-n){until}."
    if sampler.iteration < sampler.limit:
        remedy = "It was interrupted."
    iterations = math.ceil(2 * sweep)
    needed = "2 sweeps" if iterations == 2 else f"2 sweeps ({iterations} iterations)"
    return (
        f"{said}: it is too short. Since {'the last refinement' if changed else 'the start'} it has made {done} and "
        f"was evaluated {times}; to tell takes at least {needed} and {2 * WINDOW} evaluations. {remedy}"
    )


def _counted(value: float, unit: str) -> str:
    """``value`` with its unit: two digits below 10, else rounded to an integer."""
    number = f"{value:.2g}" if value < 10 else f"{value:.0f}"
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"
