"""Labels of some vertices spread to all others along the links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mmsbgen.algorithms.functions import check_undirected, check_weights
from mmsbgen.algorithms.known_labels import Format, LabelWarning, known_labels
from mmsbgen.algorithms.row_rounds import divided, run_rounds, totals
from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.row_inputs import matrix_in
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs

Rule = Literal["harmonic", "spread", "published"]
Solver = Literal["gradients", "changes", "rounds"]

#: What solves the equations of each rule, the default first.
_SOLVERS: dict[Rule, tuple[Solver, ...]] = {
    "harmonic": ("gradients", "changes", "rounds"),
    "spread": ("changes", "rounds"),
    "published": ("rounds",),
}


@dataclass(frozen=True, eq=False)
class LabelShares:
    """Shares of labels of all vertices.

    Attributes:
        ids: The ids of the vertices as in the input, ``[N]``.
        classes: The labels ``[F]``.
        shares: ``[N, F]``; rows sum to 1, or are 0 where no label came.
        known: The vertices whose labels were given, ``[S]``, indices into ``ids``.
        rounds: Rounds that were made, or steps of conjugate gradients.
        residual: The largest change of a number in the last round over all vertices, or in one that would follow.
        missing: Of ``harmonic``, how far a row that labels can reach is from a sum of 1 before it is divided by it: all
            shares that rounds found are within it of the solution.  Of ``spread`` 1 if such a row is 0; else 0.
        converged: Whether ``residual`` is at most the tolerance, and ``missing`` at most a hundred times it or a tenth.
        passes: Links read, over all links: less than ``rounds`` where only changes were sent.
        device: The name of the device.
        unreached: Vertices that no path of links of positive weight joins to a known one, as indices into ``ids``.
        labels_format: How a file of labels was read; None for labels that were given otherwise.
    """

    ids: NDArray[Any]
    classes: NDArray[Any]
    shares: NDArray[np.floating[Any]]
    known: NDArray[np.int64]
    rounds: int
    residual: float
    converged: bool
    missing: float
    passes: float
    device: str
    unreached: NDArray[np.int64]
    labels_format: Format | None = None

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each vertex's largest share ``[N]``; -1 (None unless labels are integers) where all are 0."""
        found, none = self.classes[self.shares.argmax(axis=1)], ~self.shares.any(axis=1)
        if self.classes.dtype.kind == "i":
            found[none] = -1
        elif none.any():
            found = found.astype(object)
            found[none] = None
        return found  # type: ignore[no-any-return]


def propagate(
    graph: Any,
    labels: Any,
    *,
    rule: Rule = "harmonic",
    alpha: float = 0.85,
    tolerance: float = 1e-3,
    max_rounds: int = 1000,
    weights: str | None = None,
    labels_format: Format | None = None,
    solver: Solver | None = None,
    device: str | None = None,
    database: str | Path | None = None,
) -> LabelShares:
    """Spread the known labels of some vertices to all others.

    Each rule repeats ``x_v = apply(sum_u w_uv x_u)``, where x are rows of shares, D sums of weights and y known shares:

    * ``harmonic``: ``x = D^-1 W x`` where nothing is known, and x = y elsewhere: the share of random walks from v that
      first meet that label (Zhu, Ghahramani, Lafferty 2003);
    * ``spread``: ``x = alpha D^-1/2 W D^-1/2 x + (1 - alpha) y`` (Zhou et al. 2004), which may change known labels;
    * ``published``: ``x = normalise(alpha D^-1 W x + (1 - alpha) x)`` from y on, without holding known labels.  In a
      connected graph all rows tend to the same one: for comparisons only.

    Args:
        graph: Any undirected graph that :func:`mmsbgen.graph.as_arcs` takes.
        labels: As for :func:`mmsbgen.algorithms.known_labels.known_labels`.
        rule: The rule.
        alpha: The weight of neighbours in ``spread`` and ``published``, above 0 and below 1.
        tolerance: Rounds end when no number changes by more; 1 is a whole row, of ``spread`` a mean one.  They go on
            while a row that labels can reach is 0, or, of ``harmonic``, lacks a hundred times this or a tenth.
        max_rounds: Most rounds; a :class:`LabelWarning` tells when they were not enough.
        weights: The attribute that holds weights, as for :func:`mmsbgen.graph.as_arcs`.
        labels_format: How a file of labels is read: ``"pairs"`` or ``"communities"``; by default by its lines.
        solver: ``"gradients"``, conjugate gradients, for ``harmonic`` alone and its default; ``"changes"``, rounds in
            which vertices send only changes above the tolerance while few have any, the default of ``spread``; or
            ``"rounds"`` over all vertices, which alone are for ``published``.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Raises:
        InputError: For a directed graph, a weight that is negative or not finite, labels that cannot be used, and
            values outside their range.
    """
    if rule not in get_args(Rule):
        raise InputError(f"rule={rule!r} is not one of {', '.join(get_args(Rule))}")
    fitting = _SOLVERS[rule]
    solver = fitting[0] if solver is None else solver
    if solver not in fitting:
        raise InputError(f"solver={solver!r} does not fit rule={rule!r}: give one of {', '.join(fitting)}")
    if not 0 < alpha < 1:
        raise InputError(f"alpha={alpha}: give a number above 0 and below 1")
    arcs = as_arcs(graph, weights=weights)
    check_undirected(arcs, "labels spread along links")
    check_weights(arcs)
    given = known_labels(arcs, labels, labels_format)
    total = totals(arcs)
    linked = total > 0
    seeds, scale = given.shares, np.where(linked, 1.0, 0.0)
    if rule == "harmonic":
        scale[given.vertices] = 0.0
    else:
        scale *= alpha
    if rule == "spread":
        # Rows over sqrt(D) obey x = alpha D^-1 W x + (1 - alpha) y / sqrt(D), whose mean by D is made 1.
        root = np.sqrt(np.where(linked, total, 1.0))[given.vertices]
        mean = root[linked[given.vertices]].sum() / max(total.sum(), 1e-300)
        seeds = (1 - alpha) * seeds / (root * (mean or 1.0))[:, None]
    by_one = divided(arcs, total)
    reached = cache(lambda: _joined(by_one, given.vertices))

    def missing(rows: NDArray[Any]) -> float:
        sums = np.abs(rows).sum(axis=1, dtype=np.float64)
        # The chances to meet some known label first sum to 1.  Rounds from 0 on come to them from below, conjugate
        # gradients from either side, and some of their numbers may be negative.
        short = np.abs(1 - sums) if rule == "harmonic" else np.where(sums > 0, 0.0, 1.0)
        if not sums.all():
            short[~reached()] = 0
        return float(short.max())

    found = run_rounds(
        by_one,
        scale,
        given.vertices,
        seeds,
        rule="published" if rule == "published" else "seeded",
        largest=float(seeds.max()) if rule != "spread" else float(seeds.max()) / (1 - alpha),
        tolerance=tolerance,
        max_rounds=max_rounds,
        changes=solver == "changes",
        weight_of=total if solver == "gradients" else None,
        device=device,
        database=database,
        missing=missing if rule != "published" else None,
    )
    if not found.converged:
        told = (
            f"shares still change by {found.residual:.3g} after {plural(found.rounds, 'round')}, and {tolerance:.3g} "
        )
        told += "was asked for: allow more rounds by --max-rounds (max_rounds= in Python), or a larger tolerance"
        if found.residual <= tolerance:
            told = (
                f"after {plural(found.rounds, 'round')} shares of some vertices lack up to {found.missing:.3g} of 1, "
            )
            told += "as known labels are far from them: give more labels"
            if found.rounds >= max_rounds:
                told += ", or allow more rounds by --max-rounds (max_rounds= in Python)"
        warn_user(told, LabelWarning)
    rows = found.rows.clip(min=0)  # steps of conjugate gradients may end a little below
    sums = rows.sum(axis=1, keepdims=True)
    shares = np.divide(rows, sums, out=np.zeros_like(rows), where=sums > 0)
    more = found.rounds, found.residual, found.converged, found.missing, found.passes, found.device
    unreached: NDArray[np.int64] = np.zeros(0, np.int64) if sums.all() else np.flatnonzero(~reached())
    return LabelShares(arcs.ids, given.classes, shares, given.vertices, *more, unreached, given.format)


def _joined(arcs: Arcs, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a path of links of positive weight joins each vertex to one of ``vertices``, ``[N]``."""
    linked = sparse.csr_array(matrix_in(arcs))
    linked.eliminate_zeros()
    number = connected_components(linked, directed=False)[1]
    return np.isin(number, number[vertices])
