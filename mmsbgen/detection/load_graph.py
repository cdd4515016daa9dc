"""Steps 2 and 3: load the graph, check it against the request, and split its links."""

from __future__ import annotations

from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.detection.check_request import CheckedRequest, has_work, longer
from mmsbgen.graph import Graph, Split, read_graph, split
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved import result_folder, results

#: Up to this K, graphs of any size are taken.
ALWAYS_TAKEN = 2**16


def load_graph(source: Any, checked: CheckedRequest) -> Graph:
    """Load the graph by :func:`mmsbgen.graph.as_graph`.

    Raises :class:`InputError` if ids cannot be written to files, if the checkpoint belongs to another graph, if
    results of another graph would be lost, or if a resumed run has nothing to do.
    """
    request, checkpoint = checked.request, checked.checkpoint
    graph = read_graph(source, request.reading)
    if request.out is not None:
        results.words_for_files(graph.ids)
    if checkpoint is not None:
        checkpoints.belongs(checkpoint, graph)
        has_work(checkpoint, checked.options, request)
        longer(checkpoint, checked.options, request)
    if request.out is not None:
        if not (request.overwrite or request.resumes_saved):
            result_folder.keep_others(request.out, graph.digest)
        for text in result_folder.replaced(request.out, checkpoint.meta["graph"] if checkpoint is not None else None):
            request.on_message(text)
    return graph


def drawn_split(graph: Graph, options: Options) -> Split:
    """The split of a run: its shares of the links, by its seed."""
    shares = options.held_out_share(graph.n_links), options.test_share(graph.n_links)
    return split(graph, validation=shares[0], test=shares[1], seed=options.seed)


def split_graph(graph: Graph, checked: CheckedRequest) -> Split:
    """Split the graph as the options say; sends messages on ignored input and on warnings.

    Raises :class:`InputError` for far more communities than vertices.
    """
    request, options = checked.request, checked.options
    k, n = options.n_communities, graph.n_vertices
    most = max(ALWAYS_TAKEN, 100 * n)
    if not checked.k_auto and checked.checkpoint is None and k > most:
        raise InputError(f"K={k} is far more than the graph's {plural(n, 'vertex', 'vertices')}: give at most {most}")
    parts = drawn_split(graph, options)
    if dropped := graph.report.dropped():
        request.on_message(f"{graph.name}: {dropped}.")
    for text in parts.warnings:
        request.on_message(f"{text[:1].upper()}{text[1:]}.")
    if not checked.k_auto and k > n:
        request.on_message(f"K={k} is more than the graph's {n} vertices: some communities can only stay empty.")
    return parts
