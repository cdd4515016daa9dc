"""Results as objects of cdlib, networkx, igraph, ArviZ and pandas."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_text
from mmsbgen.base.libraries import library
from mmsbgen.export.found import Clustering
from mmsbgen.sampler.posterior.draws import aligned

FORMS = ("long", "wide", "communities")


def node_attributes(found: Clustering) -> list[dict[str, Any]]:
    """Attributes of every vertex; see :meth:`mmsbgen.export.Exports.to_networkx`."""
    strengths = found.strengths.tolist()
    rows = []
    for vertex, label in enumerate(found.labels().tolist()):
        shares = found.shares(vertex)
        rows.append(
            {
                "community": label,
                "memberships": shares,
                "share": shares.get(label, 0.0),
                "strength": strengths[label] if shares else 0.0,
            }
        )
    return rows


def to_networkx(found: Clustering, graph: Any) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_networkx`."""
    networkx = library("networkx", "node attributes")
    attributes = dict(zip(found.ids, node_attributes(found), strict=True))
    if graph is None:
        made = links_networkx(found, networkx)
    else:
        if not isinstance(graph, networkx.Graph):
            raise InputError(f"graph is a {type(graph).__qualname__}; give the networkx graph that was fitted")
        made = graph.copy()
        _same_ids(found, list(made.nodes))
    networkx.set_node_attributes(made, attributes)
    return made


def links_networkx(found: Clustering, networkx: Any) -> Any:
    """The links as a ``networkx.Graph`` of ids."""
    source, ids = found.needs_graph("networkx graphs"), found.ids
    if None in ids:
        raise InputError("None cannot be a node of a networkx graph: give that vertex another id")
    made = networkx.Graph(name=source.name)
    made.add_nodes_from(ids)
    made.add_edges_from((ids[u], ids[v]) for u, v in source.links.tolist())
    return made


def to_igraph(found: Clustering, graph: Any) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_igraph`."""
    igraph = library("igraph", "igraph covers")
    if graph is None:
        source = found.needs_graph("igraph covers")
        graph = igraph.Graph(n=source.n_vertices, edges=source.links.tolist())
        graph.vs["name"] = found.ids
        places = list(range(source.n_vertices))
    else:
        if not isinstance(graph, igraph.Graph):
            raise InputError(f"graph is a {type(graph).__qualname__}; give the igraph graph that was fitted")
        names = graph.vs["name"] if "name" in graph.vs.attributes() else list(range(graph.vcount()))
        _same_ids(found, names)
        index = {name: place for place, name in enumerate(names)}
        places = [index[name] for name in found.ids]
    return igraph.VertexCover(graph, [[places[v] for v in members.tolist()] for members in found.cover.members])


def to_cdlib(found: Clustering, graph: Any, fuzzy: bool) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_cdlib`."""
    cdlib = library("cdlib", "its clusterings")
    ids, cover = found.ids, found.cover
    if graph is None:
        graph = links_networkx(found, library("networkx", "clusterings of cdlib"))
    communities = [[ids[v] for v in members.tolist()] for members in cover.members]
    told = {key: value for key, value in found.rule.items() if value is not None}
    if fuzzy:
        allocations = {ids[v]: found.shares(v) for v in range(len(ids))}
        made = cdlib.FuzzyNodeClustering([], allocations, graph, "mmsbgen", told, overlap=True)
    else:
        made = cdlib.NodeClustering([], graph, "mmsbgen", told, overlap=True)
    # The constructor misreads string ids that begin with a backslash as numbers, so the ids are set afterwards.
    made.communities = communities
    made.node_coverage = cover.coverage
    return made


def to_arviz(found: Clustering) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_arviz`."""
    m = found.memberships
    chains = aligned(m.all_draws)
    first, ids = chains[0], m.ids
    posterior = {
        "link_probability": np.stack([draws.link_probabilities for draws in chains]),
        "held_out_log_likelihood": np.stack([draws.log_likelihoods for draws in chains]),
        "effective_communities": np.stack([draws.effective_communities for draws in chains]),
    }
    dims = {"link_probability": ["pair"], "link": ["pair"], "vertex": ["pair", "end"]}
    coords: dict[str, Any] = {"pair": np.arange(len(first.pairs)), "end": ["a", "b"]}
    if len(chains) == 1:
        named = np.flatnonzero(m.columns >= 0)
        posterior["strength"] = first.strengths[None][:, :, m.columns[named]]
        dims["strength"], coords["community"] = ["community"], named
    words = (name if isinstance(name, str) else canonical_text(name) for name in ids.tolist())
    names = ids if ids.dtype.kind == "i" else np.array(list(words))
    groups = {
        "posterior": posterior,
        "observed_data": {"link": first.links.astype(np.int8)},
        "constant_data": {"vertex": names[first.pairs]},
    }
    with warnings.catch_warnings():
        # ArviZ before version 1 announces that version when it is imported.
        warnings.simplefilter("ignore", FutureWarning)
        arviz = library("arviz", "draws in ArviZ's form")
        if hasattr(arviz, "InferenceData"):
            return arviz.from_dict(**groups, coords=coords, dims=dims)
    return arviz.from_dict(groups, coords=coords, dims=dims)


def _same_ids(found: Clustering, names: list[Any]) -> None:
    there = set(names)
    odd = next((name for name in found.ids if name not in there), None)
    if len(there) != len(found.ids) or odd is not None:
        what = (
            f"has no vertex {odd!r}"
            if len(there) >= len(found.ids)
            else f"has {len(there)} of {len(found.ids)} vertices"
        )
        raise InputError(f"the graph given {what}; give the graph that was fitted, or none")


def to_pandas(found: Clustering, form: str) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_pandas`."""
    if form not in FORMS:
        raise InputError(f"form {form!r} is not one of {', '.join(FORMS)}")
    pandas = library("pandas", "data frames")
    ids, sets = found.memberships.ids, found.cover.members
    vertices, communities, shares = found.affiliations
    if form == "long":
        named = _series(pandas, ids[vertices])
        return pandas.DataFrame({"id": named, "community": communities, "share": shares})
    if form == "wide":
        table = np.zeros((len(ids), len(sets)))
        table[vertices, communities] = shares
        frame = pandas.DataFrame(table, columns=pandas.RangeIndex(len(sets), name="community"))
        frame.index = _index(pandas, ids)
        return frame
    members = pandas.Series([ids[one].tolist() for one in sets], dtype=object)
    return pandas.DataFrame(
        {
            "size": np.array([len(one) for one in sets], dtype=np.int64),
            "strength": found.strengths,
            "background": np.isin(np.arange(len(sets)), found.cover.background),
            "members": members.to_numpy(),
        },
        index=pandas.RangeIndex(len(sets), name="community"),
    )


def _series(pandas: Any, ids: npt.NDArray[Any]) -> Any:
    # NumPy pads strings to the longest one; objects do not.
    return ids if ids.dtype.kind == "i" else pandas.Series(ids.astype(object), dtype=object)


def _index(pandas: Any, ids: npt.NDArray[Any]) -> Any:
    if ids.dtype.kind == "i":
        return pandas.Index(ids, name="id")
    # Tuples are ids here, not levels of a MultiIndex.
    return pandas.Index(ids.astype(object), name="id", dtype=object, tupleize_cols=False)
