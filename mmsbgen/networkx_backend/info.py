"""What networkx asks when it is imported; this module imports nothing."""

from __future__ import annotations

from typing import Any

#: The functions that the backend has, and what is added to their documentation.
FUNCTIONS = {
    "average_clustering": "Without weights and directions.",
    "closeness_centrality": "Without weights.",
    "clustering": "Without weights and directions.",
    "connected_components": "",
    "core_number": "",
    "descendants_at_distance": "",
    "has_path": "",
    "is_connected": "",
    "is_weakly_connected": "",
    "k_core": "Without core_number.",
    "multi_source_dijkstra_path_length": "Weights must be numbers, not a function; distances are floats.",
    "node_connected_component": "",
    "number_connected_components": "",
    "number_weakly_connected_components": "",
    "pagerank": "Weights must not be negative.",
    "shortest_path_length": "With a source; weights must not be negative.",
    "single_source_bellman_ford_path_length": "Weights must be numbers of 0 or more; distances are floats.",
    "single_source_dijkstra_path_length": "Weights must be numbers, not a function; distances are floats.",
    "single_source_shortest_path_length": "",
    "transitivity": "Of undirected graphs.",
    "triangles": "",
    "weakly_connected_components": "",
}


def get_info() -> dict[str, Any]:
    """The description of the backend."""
    return {
        "backend_name": "mmsbgen",
        "project": "mmsbgen",
        "package": "mmsbgen",
        "short_summary": "Graph algorithms by kernels that are generated and tuned for the device",
        "functions": {name: {"additional_docs": text} for name, text in FUNCTIONS.items()},
    }
