"""Graphs from files of any format that is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import stage
from mmsbgen.base.user_files import need_memory
from mmsbgen.graph.files.edgelist import graph_of_text
from mmsbgen.graph.files.file_bytes import (
    FIELD_BYTES,
    format_of,
    need_fields,
    read_graph_bytes,
    record_path,
    short_name,
    text_lines,
)
from mmsbgen.graph.files.graph_archive import graph_of_archive, is_graph_archive
from mmsbgen.graph.files.matrix_files import from_matrix_market, from_npy, from_npz, from_parquet
from mmsbgen.graph.files.neighbour_lists import from_adjacency_list, from_dimacs, from_metis
from mmsbgen.graph.files.network_files import from_gml, from_pajek, from_xml
from mmsbgen.graph.files.tokens import Words, after_comments, split_fields
from mmsbgen.graph.files.words import as_int64
from mmsbgen.graph.graph import Graph, Int64Array, link_keys, links_of
from mmsbgen.graph.ids import number_ids, number_integers
from mmsbgen.graph.reading_options import ReadingOptions, need_weights

_READERS: dict[str, Callable[[Path, bytes, ReadingOptions], Graph]] = {
    "adjlist": from_adjacency_list,
    "metis": from_metis,
    "dimacs": from_dimacs,
    "graphml": from_xml,
    "gexf": from_xml,
    "gml": from_gml,
    "pajek": from_pajek,
    "mtx": from_matrix_market,
    "parquet": from_parquet,
    "npz": from_npz,
    "npy": from_npy,
}
_WITH_COLUMNS = ("text", "parquet")
#: What ends a field of an edge list and is a part of an id that has a line to itself.
_IN_IDS = (b"#", b"%", b"\v", b"\f")


def load_graph(path: str | os.PathLike[str], reading: ReadingOptions | None = None) -> Graph:
    """Read a file of any format of :data:`mmsbgen.graph.reading_options.FORMATS`, plain or gzip.

    Direction, self-loops and repeated links are dropped and counted in ``Graph.report``.

    Raises:
        InputError: If the file cannot be read, is damaged, has no link, has weights that no option explains, or can be
            read in more than one way.  The message gives file, value and remedy.
        MissingDependencyError: If the format needs a library that is not installed.
    """
    file, reading = Path(path), reading or ReadingOptions()
    with stage(f"reading {file.name}", unit="B") as told:
        plain = reading.format in ("auto", "npz") and reading.columns is None and record_path(file) is not None
        if plain and is_graph_archive(file):
            need_weights(reading, str(file))
            need_memory(file, file.stat().st_size)
            return as_read(graph_of_archive(file), file, reading)
        raw = read_graph_bytes(file)
        kind = format_of(file, raw) if reading.format == "auto" else reading.format
        if kind == "text":
            texts = [raw]
            del raw  # so that it is freed once it is parsed: only the callee has it
            graph = graph_of_text(file, texts.pop(), reading, told)
        elif reading.columns is not None and kind not in _WITH_COLUMNS:
            raise InputError(
                f"{file} has the format {kind}, which has no columns: leave out --columns (columns= in Python)"
            )
        else:
            if kind in FIELD_BYTES:
                need_fields(file, raw, kind)
            graph = _READERS[kind](file, raw, reading)
    return as_read(graph, file, reading)


def as_read(graph: Graph, file: Path, reading: ReadingOptions) -> Graph:
    """``graph`` of ``file`` with the vertices that ``reading`` adds, and how it was read.

    Raises:
        InputError: As :func:`with_vertices`.
    """
    again = reading.vertices is None or isinstance(reading.vertices, str | os.PathLike)
    given = reading.given() if again else {}
    graph = graph.called(short_name(file), record_path(file), given)
    if reading.vertices is not None:
        graph = with_vertices(graph, reading.vertices)
    return graph if again else replace(graph, file=None)  # what the file alone does not give again


def with_vertices(graph: Graph, vertices: str | os.PathLike[str] | Iterable[Any]) -> Graph:
    """``graph`` with further vertices that have no link: those of a file with one id a line, or ids.

    Raises:
        InputError: If the file cannot be read or a line has no one id, or for ids that cannot be ids.
    """
    place, found = _numbered_with(graph, vertices)
    if found.size == graph.n_vertices and found.dtype.kind == graph.ids.dtype.kind:
        return graph
    links = links_of(link_keys(graph.links, place[: graph.n_vertices]))
    report = replace(graph.report, n_isolated=graph.report.n_isolated + found.size - graph.n_vertices)
    return replace(graph, n_vertices=int(found.size), ids=found, links=links, report=report)


def _numbered_with(
    graph: Graph, vertices: str | os.PathLike[str] | Iterable[Any]
) -> tuple[Int64Array, NDArray[np.generic]]:
    """The numbers of the graph's ids, then of ``vertices``, among all of them; and these, ordered."""
    ids = graph.ids
    if isinstance(vertices, str | os.PathLike):
        words = _ids_of_lines(Path(vertices))
        if ids.dtype.kind == "i" and (numbers := as_int64(words)) is not None:
            found, place = number_integers(np.concatenate([ids, numbers]))
            return place, found
        more: list[Any] = [word.decode() for word in words.words()]
        _refuse_columns(Path(vertices), more, ids)
        ids = ids.astype(str) if ids.dtype.kind == "i" else ids
    else:
        more = list(vertices)
    return number_ids([*ids.tolist(), *more], name=graph.name)


def _refuse_columns(file: Path, words: list[str], ids: NDArray[np.generic]) -> None:
    """Raise InputError for a table of vertices, whose rows would become vertices of their own."""
    begins = re.compile("([^ ,;|]+)([ ,;|])").match
    if fields := [found for word in words if (found := begins(word))]:
        known = set(map(str, ids.tolist()))
        foreign = {sign for sign in " ,;|" if not any(sign in id for id in known)}
        for found in fields:
            (first, sign), row = found.groups(), found.string
            if first.strip('"') in known and sign in foreign:
                raise InputError(f"{file}: {row!r} is more than the id {first}; give one id a line, no other column")
    lone = ids.dtype.kind == "i" and len(words) > 1 and as_int64(Words.of([words[0].encode()])) is None
    if lone and as_int64(Words.of([word.encode() for word in words[1:]])) is not None:
        raise InputError(f"{file}: all ids are integers but the first, {words[0]!r}; leave it out if it is a header")


def _ids_of_lines(file: Path) -> Words:
    """The ids of a file with one a line; raises InputError for a line with several."""
    raw = read_graph_bytes(file)
    need_fields(file, raw, "text")
    text = text_lines(file, raw)
    rest = text[after_comments(text) :]
    if not any(sign in rest for sign in _IN_IDS):
        fields = split_fields(rest)
        if (fields.lines[1:] > fields.lines[:-1]).all():
            return fields
    # Not splitlines(): an id may contain characters such as U+2028.
    lines = [line.strip(b" \t\r") for line in text.split(b"\n")]
    words = [word for word in lines if word and word[0] not in b"#%"]
    if (odd := next((word for word in words if b"\t" in word), None)) is not None:
        raise InputError(
            f"{file}, line {lines.index(odd) + 1}: {odd.decode()!r} is no one id; give one a line, of all vertices"
        )
    return Words.of(words)
