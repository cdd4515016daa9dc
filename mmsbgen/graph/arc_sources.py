"""Conversion of a user's file or object to :class:`~mmsbgen.graph.arcs.Arcs`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import stage
from mmsbgen.graph.arcs import Arcs, arcs_of_pairs, check_arcs
from mmsbgen.graph.files.file_bytes import format_of, need_fields, read_graph_bytes, short_name, text_lines
from mmsbgen.graph.files.matrix_files import matrix_market, npz_matrix
from mmsbgen.graph.files.plain_tables import plain_arcs
from mmsbgen.graph.files.text_tables import delimiter_of, is_weight, read_arcs
from mmsbgen.graph.files.tokens import Words
from mmsbgen.graph.files.words import integers_or_words, number_words, word_ids
from mmsbgen.graph.graph import Graph
from mmsbgen.graph.ids import number_ids, number_integers, object_ids
from mmsbgen.graph.reading_options import USUAL_COLUMNS
from mmsbgen.graph.sources import as_graph


def as_arcs(
    source: Any,
    *,
    directed: bool = False,
    weights: str | None = None,
    columns: Sequence[Any] | None = None,
    format: str = "auto",
) -> Arcs:
    """Return ``source`` as :class:`~mmsbgen.graph.arcs.Arcs`.

    ``source`` is one of

    * :class:`~mmsbgen.graph.arcs.Arcs`, returned unchanged;
    * a networkx graph of any kind, whose type says whether it is directed; self-loops and parallel links stay;
    * a square scipy.sparse matrix ``[N, N]``, where ``directed`` or else symmetric; zeros that are stored are links;
    * the path of a file; where ``directed`` or with ``weights``, of an edge list, a table, Matrix Market
      or SciPy's ``.npz``;
    * anything else that :func:`mmsbgen.graph.as_graph` takes, without directions unless it is an array or a list of
      pairs.

    Args:
        source: The graph.
        directed: Whether ``u v`` of a file, a matrix or a list of pairs is an arc from u to v, not a link.
        weights: The attribute of a networkx graph that holds weights, 1 where it is missing; of a table with
            a header, the name of their column; of a matrix, any name.  Without it, no weights are read.
        columns: Of a file that is a table, the columns of the two ends and, as a third, of the weights: names, or
            numbers from 1 on.  By default two with a usual pair of names, or the first two columns; and the column
            that ``weights`` names or, without a header, the third.
        format: Of a file of links without directions and weights, as for :func:`mmsbgen.graph.as_graph`.

    Raises:
        InputError: For any other source, for a matrix that is not symmetric, and for a ``format`` with directions or
            weights.
    """
    if isinstance(source, Arcs):
        return source
    modules = {base.__module__.partition(".")[0] for base in type(source).__mro__}
    if "networkx" in modules and hasattr(source, "is_directed"):
        return _from_networkx(source, weights)
    if "scipy" in modules and hasattr(source, "tocoo"):
        return _from_scipy(source, directed, weights is not None, "scipy matrix", 0)
    if isinstance(source, str | os.PathLike):
        if not directed and weights is None:
            return _from_graph(as_graph(source, columns=columns, weights="ignore", format=format))
        if format != "auto":
            raise InputError("--format goes with links alone, without --directed and weights: leave it out")
        return _from_file(Path(source), directed, weights, columns)
    if directed:
        if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping | Graph):
            rows = source.tolist() if isinstance(source, np.ndarray) else list(source)
            if all(isinstance(row, list | tuple) and len(row) == 2 for row in rows):
                places, ids = number_ids([one for row in rows for one in row], name="pairs")
                return arcs_of_pairs(places[0::2], places[1::2], ids, directed=True)
        raise InputError(
            f"a {type(source).__qualname__} has no directions that are read; give a networkx DiGraph, a scipy.sparse "
            "matrix, a list of pairs or a file"
        )
    if weights is not None:
        raise InputError(
            f"weights of a {type(source).__qualname__} are not read; give a networkx graph, a scipy.sparse matrix or "
            "a file with a third column"
        )
    return _from_graph(as_graph(source))


def _from_graph(graph: Graph) -> Arcs:
    check_arcs(2 * graph.n_links, graph.name)
    rows = graph.adjacency()
    return Arcs(rows.offsets.astype(np.uint32), rows.neighbours, graph.ids, name=graph.name)


def _from_networkx(source: Any, weights: str | None) -> Arcs:
    nodes = list(source)
    place = {node: number for number, node in enumerate(nodes)}
    rows = [source._adj[node] for node in nodes]
    ids = object_ids(nodes)
    parallel, directed = source.is_multigraph(), source.is_directed()
    name = str(getattr(source, "name", "")) or "networkx graph"
    degrees = np.fromiter(map(len, rows), np.int64, len(nodes))
    others = (place[other] for row in rows for other in row)
    second = np.fromiter(others, np.int64, int(degrees.sum()))
    first = np.repeat(np.arange(len(nodes)), degrees)
    found: NDArray[Any] | None = None
    if parallel:
        times = [len(keys) for row in rows for keys in row.values()]
        first, second = np.repeat(first, times), np.repeat(second, times)
    if weights is not None:
        links = (data for row in rows for data in row.values())
        each = (data for keys in links for data in keys.values()) if parallel else links
        found = _numbers((data.get(weights, 1) for data in each), first, second, ids, name)
    return arcs_of_pairs(first, second, ids, found, directed=directed, name=name)


def _numbers(
    values: Iterable[Any], first: NDArray[Any], second: NDArray[Any], ids: NDArray[Any], name: str
) -> NDArray[np.float64]:
    found = np.empty(first.size)
    for at, value in enumerate(values):
        try:
            found[at] = float(value)
        except (TypeError, ValueError):
            a, b = ids[[first[at], second[at]]].tolist()
            raise InputError(
                f"{name}: the link from {a!r} to {b!r} has weight {value!r}; give a number, or delete the "
                "line if it is a header, or name the columns (--columns A,B,W)"
            ) from None
    return found


def _from_scipy(matrix: Any, directed: bool, weighted: bool, name: str, first_id: int) -> Arcs:
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name} has shape {matrix.shape}; an adjacency matrix is square")
    rows = matrix.tocsr(copy=True)  # duplicates are summed up in place below
    rows.sum_duplicates()
    if not directed and (rows != rows.T).nnz:
        raise InputError(
            f"{name} is not symmetric: give directed=True (--directed) if entry (u, v) is an arc from u to v, or "
            "m.maximum(m.T) if it is a link"
        )
    stored = rows.copy()
    stored.data[:] = 1
    if not directed and (stored != stored.T).nnz:
        raise InputError(
            f"{name} is not symmetric: it stores a zero at (u, v) and nothing at (v, u).  A zero that is stored is a "
            "link; give directed=True (--directed) if it is an arc, or call m.eliminate_zeros() if it is none"
        )
    n = int(rows.shape[0])
    degrees, ids = np.diff(rows.indptr), np.arange(first_id, first_id + n)
    data = np.asarray(rows.data, np.float64) if weighted else None
    return arcs_of_pairs(np.repeat(np.arange(n), degrees), rows.indices, ids, data, directed=directed, name=name)


def _from_file(file: Path, directed: bool, weights: str | None, columns: Sequence[Any] | None) -> Arcs:
    with stage(f"reading {file.name}"):
        raw = read_graph_bytes(file)
        kind = format_of(file, raw)
        if kind == "text":
            return _from_text(file, raw, directed, weights, columns)
        if kind == "mtx":
            return _from_scipy(matrix_market(file, raw), directed, weights is not None, str(file), 1)
        if kind == "npz":
            return _from_scipy(npz_matrix(file, raw), directed, weights is not None, str(file), 0)
    raise InputError(
        f"{file} has the format {kind}, of which directions and weights are not read; give an edge list, Matrix Market "
        "or .npz, or read the file by networkx in Python"
    )


def _plain_pairs(text: str, weights: str | None) -> tuple[list[str], list[str]]:
    """The ids ``[2 A]`` of an edge list of two columns, or three with weights, and the weights as they are."""
    lines = [line for line in text.split("\n") if line.strip() and line.lstrip()[:1] not in "#%"]
    fields = [line.replace(",", " ").split() for line in lines]
    if fields and tuple(word.lower() for word in fields[0][:2]) in USUAL_COLUMNS:
        if weights is not None and not all(is_weight(name, weights) for name in fields[0][2:3]):
            raise InputError(f"it is not clear whether {fields[0][2]!r} is the weight: give --columns A,B,W")
        del lines[0], fields[0]
    least = 2 if weights is None else 3
    for line, words in zip(lines, fields, strict=True):
        if len(words) < least or len(words) > 3:
            told = "an arc is two ids" if weights is None else "an arc is two ids and its weight: give a third column"
            raise InputError(f"{line.strip()!r} has {len(words)} fields; {told}")
    return [word for words in fields for word in words[:2]], [] if weights is None else [words[2] for words in fields]


def _from_text(file: Path, raw: bytes, directed: bool, weights: str | None, columns: Sequence[Any] | None) -> Arcs:
    """An edge list or a table of arcs, with weights or without."""
    need_fields(file, raw, "integers")
    whole = text_lines(file, raw)
    delimiter = delimiter_of(file, whole)
    found: NDArray[np.float64] | None = None
    values: Sequence[str] = []
    if (plain := plain_arcs(whole, delimiter, columns, weights=weights)) is not None:
        ends, found = plain
    else:
        need_fields(file, raw, "text")
        text = whole.decode()
        try:
            if delimiter is None and columns is None:
                words, values = _plain_pairs(text, weights)
            else:
                one, other, values = read_arcs(text, delimiter, columns, weights=weights)
                words = [word for pair in zip(one, other, strict=True) for word in pair]
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        ends = integers_or_words(Words.of([word.encode() for word in words]))
    if isinstance(ends, Words):
        distinct, places = number_words(ends)
        ids = word_ids(file, distinct)
    else:
        ids, places = number_integers(ends)
    if plain is None and weights is not None:
        found = _numbers(values, places[0::2], places[1::2], ids, str(file))
    first, second = places[0::2], places[1::2]
    if not directed:
        mirrored = first != second
        first, second = np.concatenate([first, second[mirrored]]), np.concatenate([second, first[mirrored]])
        found = None if found is None else np.concatenate([found, found[mirrored]])
    return arcs_of_pairs(first, second, ids, found, directed=directed, name=short_name(file))
