"""Labels of some vertices spread to all others along the links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.functions import check_weights
from mmsbgen.algorithms.known_labels import LabelWarning, known_labels
from mmsbgen.algorithms.row_rounds import by_vertex, run_rounds, totals
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.base.user_warning import warn_user
from mmsbgen.graph.arc_sources import as_arcs

__all__ = ["LabelShares", "Rule", "propagate"]

Rule = Literal["harmonic", "spread", "published"]


@dataclass(frozen=True, eq=False)
class LabelShares:
    """Shares of labels of all vertices.

    Attributes:
        ids: The ids of the vertices as in the input, ``[N]``.
        classes: The labels ``[F]``.
        shares: ``[N, F]``; rows sum to 1, or are 0 where no label came.
        known: The vertices whose labels were given, ``[S]``, indices into ``ids``.
        rounds: Rounds that were made.
        residual: The largest change of a number in the last round over all vertices.
        converged: Whether that is at most the tolerance.
        passes: Links read, over all links: less than ``rounds`` where only changes were sent.
        device: The name of the device.
    """

    ids: NDArray[Any]
    classes: NDArray[Any]
    shares: NDArray[np.floating[Any]]
    known: NDArray[np.int64]
    rounds: int
    residual: float
    converged: bool
    passes: float
    device: str

    @property
    def unreached(self) -> NDArray[np.int64]:
        """Vertices that no label reached, as indices: no path leads to a known one, or too long a path."""
        return np.flatnonzero(~self.shares.any(axis=1))

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each vertex's largest share ``[N]``; -1 (None unless labels are integers) for unreached ones."""
        found = self.classes[self.shares.argmax(axis=1)]
        if self.classes.dtype.kind == "i":
            found[self.unreached] = -1
        elif self.unreached.size:
            found = found.astype(object)
            found[self.unreached] = None
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
    changes: bool = True,
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
        tolerance: Rounds end when no number changes by more; 1 is a whole row, of ``spread`` a mean one.  Below about
            1e-6 rows are float64.
        max_rounds: Most rounds; a :class:`LabelWarning` tells when they were not enough.
        weights: The attribute that holds weights, as for :func:`mmsbgen.graph.as_arcs`.
        changes: Whether vertices send only changes above the tolerance while few have any; ``published`` never does.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Raises:
        InputError: For a directed graph, a weight that is negative or not finite, labels that cannot be used, and
            values outside their range.
    """
    if rule not in get_args(Rule):
        raise InputError(f"rule={rule!r} is not one of {', '.join(get_args(Rule))}")
    if not 0 < alpha < 1:
        raise InputError(f"alpha={alpha}: give a number above 0 and below 1")
    arcs = as_arcs(graph, weights=weights)
    if arcs.directed:
        raise InputError(
            f"{arcs.name} is directed, and labels spread along links: give an undirected graph, such as "
            "graph.to_undirected() of networkx"
        )
    check_weights(arcs)
    given = known_labels(arcs, labels)
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
    found = run_rounds(
        by_vertex(arcs, total),
        scale,
        given.vertices,
        seeds,
        rule="published" if rule == "published" else "seeded",
        largest=float(seeds.max()) if rule != "spread" else float(seeds.max()) / (1 - alpha),
        tolerance=tolerance,
        max_rounds=max_rounds,
        changes=changes and rule != "published",
        device=device,
        database=database,
    )
    if not found.converged:
        warn_user(
            f"shares still change by {found.residual:.3g} after {plural(found.rounds, 'round')}, and {tolerance:.3g} "
            "was asked for: allow more rounds by max_rounds, or a larger tolerance",
            LabelWarning,
        )
    sums = found.rows.sum(axis=1, keepdims=True)
    shares = np.divide(found.rows, sums, out=np.zeros_like(found.rows), where=sums > 0)
    more = found.rounds, found.residual, found.converged, found.passes, found.device
    return LabelShares(arcs.ids, given.classes, shares, given.vertices, *more)
