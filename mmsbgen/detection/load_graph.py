"""Steps 2 and 3: load the graph and check it against the request; split its links."""

from __future__ import annotations

from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.detection.check_request import CheckedRequest, has_work, longer
from mmsbgen.detection.ranks.reading import read_together
from mmsbgen.graph import Split, read_graph
from mmsbgen.sampler.chain.chain_problem import drawn_split
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved import result_folder, results

#: Up to this K, graphs of any size are taken.
ALWAYS_TAKEN = 2**16


def load_graph(source: Any, checked: CheckedRequest) -> Split:
    """Load the graph by :func:`mmsbgen.graph.as_graph`, and split its links as the options say.

    Sends messages on results that will be replaced, on ignored input and on warnings.

    Raises :class:`InputError` if ids cannot be written to files, if the checkpoint belongs to another graph, if results
    of another graph would be lost, if a resumed run has nothing to do, or for far more communities than vertices.
    """
    request, options, checkpoint = checked.request, checked.options, checked.checkpoint
    world = request.world
    graph = read_graph(source, request.reading) if world is None else read_together(world, source, request.reading)
    if request.out is not None and graph.ids.dtype.kind != "i":
        results.words_for_files(graph.ids)
    if checkpoint is not None:
        checkpoints.belongs(checkpoint, graph)
        has_work(checkpoint, options, request)
        longer(checkpoint, options, request)
    if request.out is not None:
        # The digest of a large graph takes long, so it is made only if there are results to compare it with.
        if not (request.overwrite or request.resumes_saved) and result_folder.record_in(request.out) is not None:
            result_folder.keep_others(request.out, graph.digest)
        for text in result_folder.replaced(request.out, checkpoint.meta["graph"] if checkpoint is not None else None):
            request.on_message(text)
    k, n = options.n_communities, graph.n_vertices
    most = max(ALWAYS_TAKEN, 100 * n)
    if not checked.k_auto and checkpoint is None and k > most:
        raise InputError(f"K={k} is far more than the graph's {plural(n, 'vertex', 'vertices')}: give at most {most}")
    parts = drawn_split(graph, options if checkpoint is None else checkpoint.as_drawn(options, graph.n_links))
    if dropped := graph.report.dropped():
        request.on_message(f"{graph.name}: {dropped}.")
    for text in parts.warnings:
        request.on_message(f"{text[:1].upper()}{text[1:]}.")
    if not checked.k_auto and k > n:
        request.on_message(f"K={k} is more than the graph's {n} vertices: some communities can only stay empty.")
    return parts
