"""Results of detections as files for other programs, made on request in a child process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import is_formula
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.export.export_files import write
from mmsbgen.export.found import Clustering
from mmsbgen.export.run_folder import graph_of_run, read_folder
from mmsbgen.jobs import Queue
from mmsbgen.sampler.saved.result_folder import FILES

ExportName = Literal["communities.csv", "graph.gexf", "graph.graphml", "report.html"]
GRAPH = "graph"
"""Name of the file with the graph, of the input and of the result of a detection."""


def export(database: str | None, job: str, name: ExportName, folder: Path) -> Path:
    """Write the export ``name`` of a finished detection into ``folder``; returns its path.

    Raises ``InputError`` if the result lacks files that it needs, ``MissingDependencyError`` if a package is missing.
    """
    with open_store(database) as store:
        queue = Queue(store)
        there = queue.get(job).outputs
        if not {*FILES, GRAPH} <= there.keys():
            raise InputError(f"the job {job} has no such files: a detection that is done and keeps its graph has")
        for file in (*FILES, GRAPH):
            queue.save(job, "output", file, folder / file)
    if name == "report.html":
        from mmsbgen.report import need_matplotlib

        need_matplotlib()
        from mmsbgen.report.page import html
        from mmsbgen.report.run.run_page import run_page

        path = folder / name
        path.write_bytes(html(run_page(folder, folder / GRAPH)).encode("utf-8", "replace"))
        return path
    graph, _ = graph_of_run(folder, folder / GRAPH)
    found = read_folder(folder, graph)
    return write(_quoted(found) if name == "communities.csv" else found, folder / name, None)


def _quoted(found: Clustering) -> Clustering:
    """With a quote before ids that a spreadsheet would take for formulas: who downloads them may not know the graph."""
    ids: list[Any] = found.memberships.ids.tolist()
    if not any(isinstance(id, str) and is_formula(id) for id in ids):
        return found
    safe = np.array([f"'{id}" if isinstance(id, str) and is_formula(id) else id for id in ids], dtype=object)
    return replace(found, memberships=replace(found.memberships, ids=safe))
