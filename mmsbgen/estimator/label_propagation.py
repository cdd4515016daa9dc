"""Label propagation as a scikit-learn style estimator."""

from __future__ import annotations

from typing import Any, Self

from mmsbgen.algorithms import propagate
from mmsbgen.algorithms.known_labels import Format
from mmsbgen.algorithms.label_shares import Rule
from mmsbgen.base.declared_options import Parameters


class LabelPropagation(Parameters):
    """Known labels of some vertices, spread to all others along the links.

    Args:
        rule: ``"harmonic"``, ``"spread"`` or ``"published"``; see :func:`mmsbgen.algorithms.propagate`.
        alpha: The weight of neighbours in ``"spread"`` and ``"published"``, above 0 and below 1.
        tolerance: Rounds end when no share changes by more.
        max_rounds: Most rounds; a warning tells when they were not enough.
        device: A device for :func:`mmsbgen.backends.open_device`; the best one by default.

    Attributes:
        classes_: The labels ``[F]``.
        ids_: The ids of the vertices as in the input, ``[N]``.
        label_distributions_: Shares of labels ``[N, F]``; rows sum to 1, or are 0 for vertices in ``unreached_``.
        transduction_: The label of each vertex's largest share ``[N]``; -1 or None for vertices in ``unreached_``.
        n_iter_: Rounds.
        residual_: The largest change of a number in the last round over all vertices.
        unreached_: Indices of the vertices that no label reached.
    """

    def __init__(
        self,
        rule: Rule = "harmonic",
        alpha: float = 0.85,
        tolerance: float = 1e-3,
        max_rounds: int = 1000,
        device: str | None = None,
    ) -> None:
        self.rule = rule
        self.alpha = alpha
        self.tolerance = tolerance
        self.max_rounds = max_rounds
        self.device = device

    def fit(self, graph: Any, labels: Any, *, weights: str | None = None, labels_format: Format | None = None) -> Self:
        """Spread ``labels`` over ``graph``; arguments and errors as of :func:`mmsbgen.algorithms.propagate`."""
        found = propagate(graph, labels, weights=weights, labels_format=labels_format, **self.get_params())
        self.classes_, self.ids_ = found.classes, found.ids
        self.label_distributions_ = found.shares
        self.transduction_ = found.labels
        self.n_iter_, self.residual_ = found.rounds, found.residual
        self.unreached_ = found.unreached
        return self
