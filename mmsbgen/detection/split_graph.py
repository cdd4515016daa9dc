"""Step 3: split the links into training, validation and test."""

from __future__ import annotations

from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.graph import Graph, Split, split


def split_graph(graph: Graph, checked: CheckedRequest) -> Split:
    """Split the graph as the options say; sends messages on ignored input and on warnings."""
    request, options = checked.request, checked.options
    parts = split(
        graph,
        validation=options.held_out_share(graph.n_links),
        test=options.test_share(graph.n_links),
        seed=options.seed,
    )
    if dropped := graph.report.dropped():
        request.on_message(f"{graph.name}: {dropped}.")
    for text in parts.warnings:
        request.on_message(f"{text[:1].upper()}{text[1:]}.")
    k, n = options.n_communities, graph.n_vertices
    if not checked.k_auto and k > n:
        request.on_message(f"K={k} is more than the graph's {n} vertices: some communities can only stay empty.")
    return parts
