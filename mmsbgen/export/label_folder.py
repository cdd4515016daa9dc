"""A folder of results of label propagation, in the files that a detection has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms import LabelShares
from mmsbgen.base.id_text import canonical_word
from mmsbgen.base.libraries import versions
from mmsbgen.base.version import __version__
from mmsbgen.graph import Graph
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.diagnostics.memberships import Memberships, largest, outside
from mmsbgen.sampler.saved import results

#: Share of a vertex above which it is in a community; its largest share always puts it into one.
MEMBER = 0.2
#: Shares of a vertex that are stored, and ids of vertices without any that are named.
_STORED, _NAMED = 16, 20
#: Columns at a time in the products with the links.
_COLUMNS = 32


def label_record(found: LabelShares, graph: Graph, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What is known of the rounds, as JSON values; ``options`` are those of the call."""
    unreached = found.unreached
    sure = ", at most the tolerance; the shares' errors may be larger"
    if not found.converged:
        sure = ", more than the tolerance: allow more rounds (--max-rounds)"
    if not found.converged and found.residual <= options["tolerance"]:
        sure = f", but shares of some vertices lack up to {found.missing:.3g} of 1: give more labels or rounds"
    text = f"The last round changed shares by up to {found.residual:.3g}{sure}."
    if found.converged and not found.residual:
        text = "The last round changed no share."
    return {
        "mmsbgen": __version__,
        "command": "propagate",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "graph": results.graph_entry(graph),
        "options": options | {"delta": Memberships.delta},
        "device": found.device,
        "seconds": seconds,
        "labels": list(map(canonical_word, found.classes.tolist())),
        "known_vertices": int(found.known.size),
        "rounds": found.rounds,
        "passes": found.passes,
        "convergence": {
            "converged": found.converged,
            "residual": found.residual,
            "missing": found.missing,
            "text": text,
        },
        "unreached": {
            "count": int(unreached.size),
            "such_as": list(map(canonical_word, found.ids[unreached[:_NAMED]].tolist())),
        },
        "versions": versions("numpy", "scipy"),
    }


def write_label_folder(out: Path, found: LabelShares, graph: Graph, record: dict[str, Any]) -> dict[str, Any]:
    """Write ``communities.txt``, ``memberships.npz`` and ``run.json`` as a detection does; returns the record.

    A community is the vertices with more than a fifth of a label, or with nothing larger; the largest comes first, and
    ``labels`` of the record are in this order.  Strengths are the densities of links within labels.
    """
    shares, n = found.shares, len(found.ids)
    best = shares.argmax(axis=1)
    inside = shares > MEMBER
    inside[np.arange(n), best] = shares.any(axis=1)
    sizes = inside.sum(axis=0)
    order = np.lexsort((np.arange(sizes.size), -sizes))
    shares, inside = shares[:, order], inside[:, order]
    members = tuple(np.flatnonzero(column) for column in inside.T[: np.count_nonzero(sizes)])
    cover = Cover(members, n)
    indices, values = largest(shares, min(_STORED, shares.shape[1]))
    rest, spread = outside(shares, indices, values)
    densities = _densities(shares, graph)
    memberships = Memberships(np.asarray(found.ids), indices, values, densities, rest=rest, spread=spread)
    record = record | {
        "labels": [record["labels"][at] for at in order.tolist()],
        "rule": {"name": "threshold", "threshold": MEMBER},
        "communities": {
            "count": len(members),
            "coverage": cover.coverage,
            "overlap": cover.overlap,
            "sizes": [len(one) for one in members],
            "background": [],
        },
    }
    results.write(out, memberships, cover, record, None)
    return record


def _densities(shares: NDArray[Any], graph: Graph) -> NDArray[np.float64]:
    """Links within each column over pairs within it ``[F]``: sums of products of shares."""
    found = np.zeros(shares.shape[1])
    first, second = graph.links.T
    for begin in range(0, shares.shape[1], _COLUMNS):
        part = shares[:, begin : begin + _COLUMNS].astype(np.float64)
        linked = np.zeros(part.shape[1])
        for at in range(0, len(first), 1 << 18):
            chunk = slice(at, at + (1 << 18))
            linked += (part[first[chunk]] * part[second[chunk]]).sum(axis=0)
        pairs = (part.sum(axis=0) ** 2 - (part**2).sum(axis=0)) / 2
        found[begin : begin + _COLUMNS] = np.divide(linked, pairs, out=np.zeros(part.shape[1]), where=pairs > 0)
    return found.clip(1e-9, 1 - 1e-9)
