"""Step 2: load the graph and check it against the request."""

from __future__ import annotations

from typing import Any

from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.resume import has_work, longer
from mmsbgen.graph import Graph, read_graph
from mmsbgen.sampler.run import checkpoint as checkpoints
from mmsbgen.sampler.run import result_folder, results


def load_graph(source: Any, checked: CheckedRequest) -> Graph:
    """Load the graph by :func:`mmsbgen.graph.as_graph`.

    Raises :class:`InputError` if ids cannot be written to files, if the checkpoint belongs to another graph, or if a
    resumed run has nothing to do.
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
        for text in result_folder.replaced(request.out, checkpoint.meta["graph"] if checkpoint is not None else None):
            request.on_message(text)
    return graph
