"""Checks of uploads, which :class:`mmsbgen.service.http.uploads.Uploads` makes in a child process."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from mmsbgen.base.errors import MmsbgenError


@dataclass(frozen=True)
class GraphFacts:
    """Size, digest and warnings of an uploaded graph."""

    vertices: int
    links: int
    digest: str
    warnings: tuple[str, ...]


#: How a message names options of reading: for Python in brackets, and the command line's.
_FOR_PYTHON = re.compile(r" \((?:columns|weights)=(?:\([^()]*\)|[^()])* in Python\)")
_FLAG = re.compile(r"--(columns|weights) ")
#: What names an option that the service does not have.
_FORMATS = re.compile(r" ?If each line is a vertex and its neighbours, give --format [^.]*?in Python\)")


def graph_facts(path: Path, columns: str | None, weights: str | None) -> GraphFacts:
    """Read an edge list or a table.  Raises :class:`MmsbgenError`, in the API's words, if it is not one."""
    from mmsbgen.graph import ReadingOptions, load_edge_list

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            reading = ReadingOptions.of_text(columns, weights)
            graph = load_edge_list(path, reading.columns, reading.weights)
        except MmsbgenError as error:
            text = str(_unnamed(error, path))
            raise type(error)(_FLAG.sub(r"\1=", _FOR_PYTHON.sub("", _FORMATS.sub("", text)))) from None
    return GraphFacts(graph.n_vertices, graph.n_links, graph.digest, tuple(str(one.message) for one in told))


def add_records(path: Path, database: str | None, check_only: bool) -> dict[str, int]:
    """Add the records of a file to a database, or only check them.

    Returns the number of added runs, roofs, quarantined configurations and trials, and ``of_trials``, the number of
    trials in the file. Raises :class:`MmsbgenError` for a malformed file.
    """
    from mmsbgen.db.exchange import jsonl
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.tuner.run.recorded_types import check_types

    try:
        bundle = jsonl.read(path)
        check_types(bundle, str(path))
    except MmsbgenError as error:
        raise _unnamed(error, path) from None
    if check_only:
        return {**dict.fromkeys(("runs", "roofs", "quarantined", "trials"), 0), "of_trials": len(bundle.trials)}
    with open_store(database) as store:
        return {**store.add_counted(bundle), "of_trials": len(bundle.trials)}


def _unnamed(error: MmsbgenError, path: Path) -> MmsbgenError:
    """The same error without the name of the temporary file."""
    return type(error)(str(error).replace(str(path), "the upload"))
