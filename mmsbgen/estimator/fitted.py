"""Attributes and methods of a fitted estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError, NotFittedError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.detection.request import Detection
from mmsbgen.export import Clustering, Exports
from mmsbgen.graph import Graph
from mmsbgen.graph.ids import numbered_pairs
from mmsbgen.sampler.diagnostics.communities import Cover, checked_threshold, cover, entries_needed
from mmsbgen.sampler.diagnostics.explained_links import RowSource
from mmsbgen.sampler.diagnostics.held_out import log_likelihoods
from mmsbgen.sampler.saved.saved_chain import SavedChain, with_largest


@dataclass(frozen=True)
class FittedChain:
    """Outcome of a fit: result, graph, seed, parameters used, and the chain if it was stored."""

    found: Detection
    graph: Graph
    seed: int
    params: Mapping[str, Any]
    chain: SavedChain | None

    def __repr__(self) -> str:
        return f"<FittedChain: {self.found!r}>"


class Fitted(Exports):
    """Results of a fit; they exist only after it."""

    rule: str
    threshold: float | None
    sparse_output: bool
    _fit: FittedChain
    _cache: dict[str, Any]

    def _take(self, fit: FittedChain) -> None:
        found = fit.found
        self._fit = fit
        self._cache = {}
        self.detection_ = found
        self.ids_ = found.memberships.ids
        self.strengths_ = self.exported().strengths
        self.communities_ = found.communities
        self.n_communities_ = len(found.communities)
        self.n_vertices_in_ = fit.graph.n_vertices
        self.n_links_in_ = fit.graph.n_links
        self.n_iter_ = int(found.record["iterations"])
        self.seed_ = fit.seed
        self.interrupted_ = found.interrupted
        self.trace_ = found.trace
        self.record_ = found.record
        self.verdict_ = found.verdict

    @property
    def memberships_(self) -> Any:
        """Shares ``[N, C]`` of every vertex in its communities: rows sum to 1, or 0 for a vertex in none.

        A NumPy array or, with ``sparse_output``, a ``scipy.sparse.csr_array``.
        """
        self._fitted("memberships_")
        kind = "sparse" if self.sparse_output else "dense"
        if kind not in self._cache:
            self._cache[kind] = _shares(self.exported(), self.sparse_output)
        return self._cache[kind]

    @property
    def labels_(self) -> npt.NDArray[np.int64]:
        """The community of every vertex's largest share ``[N]``, as an index into ``communities_``; -1 for none."""
        self._fitted("labels_")
        if "labels" not in self._cache:
            self._cache["labels"] = self.exported().labels()
        labels: npt.NDArray[np.int64] = self._cache["labels"]
        return labels

    def get_communities(self, rule: str | None = None, threshold: float | None = None) -> list[list[Any]]:
        """Communities by a rule from the fitted memberships, as lists of ids, largest first.

        Rule and threshold default to the estimator's parameters.  If the chain is stored, the result equals that of a
        fit with this rule.  Otherwise only the ``top`` largest shares of every vertex are used; InputError is raised if
        the rule needs more of them.
        """
        fit = self._fitted("get_communities")
        ids = fit.found.memberships.ids
        return [ids[members].tolist() for members in self._cover(fit, rule, threshold).members]

    def _cover(self, fit: FittedChain, rule: str | None, threshold: float | None) -> Cover:
        if rule is None:
            rule, threshold = self.rule, self.threshold if threshold is None else threshold
        value, m = checked_threshold(rule, threshold), fit.found.memberships
        rows, needed = self._rows(fit), entries_needed(rule, value, m.k)
        if needed > m.indices.shape[1]:
            if rows is None:
                raise InputError(
                    f"rule {rule} at {value:g} looks at the {needed} largest shares of every vertex, of which "
                    f"{m.indices.shape[1]} were kept: fit with top={needed}, or with keep_chain=True"
                )
            m = with_largest(m, rows, needed)
        return cover(m, fit.graph.links, rule, value, rows=rows)[0]

    @overload
    def predict_link_proba(
        self, pairs: Any, interval: None = None, calibrated: bool = True
    ) -> npt.NDArray[np.float64]: ...

    @overload
    def predict_link_proba(
        self, pairs: Any, interval: float, calibrated: bool = True
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...

    def predict_link_proba(self, pairs: Any, interval: float | None = None, calibrated: bool = True) -> Any:
        """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of ids; raises InputError for an id not in the graph.

        With ``interval``, returns posterior means of p and intervals ``[P, 2]``.  Both are calibrated, as
        :meth:`mmsbgen.Detection.predict_links` says, unless ``calibrated`` is false.
        """
        fit = self._fitted("predict_link_proba")
        m = fit.found.memberships
        numbered = numbered_pairs(m.ids, pairs)
        if interval is not None:
            return m.link_intervals(numbered, interval, calibrated)
        return m.link_probabilities(numbered, self._rows(fit), calibrated)

    def score(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Mean log-likelihood of pairs, in nats a pair: larger is better.

        ``X`` ``[P, 2]`` are pairs of ids that the fit has not seen, ``y`` ``[P]`` is 1 for links and 0 for non-links.
        A vertex that the fit has not seen counts as one without links.
        By default the score uses the pairs that the fit held out for test, else for validation; links and non-links
        are then weighted by their share in the graph.
        """
        fit = self._fitted("score")
        if X is None:
            held_out = fit.found.record["held_out"]
            if (told := held_out["test"] or held_out["validation"]) is None:
                raise InputError("the fit held out no pairs (validation=0): give pairs, and which of them are links")
            return float(told["log_likelihood"])
        if y is None:
            raise InputError("score needs y, an array that says which of the pairs are links")
        m = fit.found.memberships
        numbered = numbered_pairs(m.ids, X, unseen=True)
        unseen = int(numbered.max(initial=-1)) + 1 - len(m.ids)
        p = m.with_unseen(max(0, unseen)).link_probabilities(numbered, self._rows(fit))
        links = np.asarray(y)
        if links.shape != p.shape or not np.isin(links, (0, 1)).all():
            raise InputError(f"y of shape {links.shape}: give {len(p)} values, 1 for a link and 0 for a non-link")
        try:
            weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"sample_weight: {error}; give a number for each of the {len(p)} pairs") from None
        if not len(p) or (weights is not None and (weights.shape != p.shape or not weights.sum() > 0)):
            raise InputError(
                f"score needs at least one pair and, if any, one weight for each; there are {len(p)} pairs"
            )
        return float(np.average(log_likelihoods(p, links.astype(bool)), weights=weights))

    def exported(self) -> Clustering:
        """The result in the form that exports use; raises :class:`mmsbgen.base.errors.NotFittedError` before a fit."""
        fit = self._fitted("an export")
        return replace(fit.found.exported(), graph=fit.graph)

    def _fitted(self, what: str) -> FittedChain:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"{what} needs a fitted {type(self).__name__}: call fit(graph) first")
        return self._fit

    def _rows(self, fit: FittedChain) -> RowSource | None:
        """Whole rows of pi from the stored chain; None without a chain or if the result holds all of pi."""
        m = fit.found.memberships
        if fit.chain is None or m.indices.shape[1] == m.k:
            return None
        return fit.chain.rows(int(fit.found.record["samples_averaged"]), m.columns)

    def __sklearn_is_fitted__(self) -> bool:
        return "_fit" in vars(self)


def _shares(found: Clustering, as_sparse: bool) -> Any:
    """The shares of every vertex in its communities ``[N, C]``, as a ``csr_array`` or a NumPy array."""
    from scipy import sparse

    n, count = len(found.memberships.indices), len(found.cover.members)
    _, communities, shares = found.affiliations
    made = sparse.csr_array((shares, communities, found.offsets), shape=(n, count))
    if as_sparse:
        made.sort_indices()
        return made
    need_host_memory(8 * n * count, f"memberships of {n} vertices in {count} communities", "set sparse_output=True")
    return made.toarray()
