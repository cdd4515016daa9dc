"""Graphs from GML and Pajek, which igraph reads (extra ``igraph``)."""

from __future__ import annotations

import html
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.libraries import library
from mmsbgen.graph.files.file_bytes import text_lines
from mmsbgen.graph.files.words import graph_of_words
from mmsbgen.graph.graph import Graph, GraphWarning
from mmsbgen.graph.reading_options import ReadingOptions, kept_of_some

_PLACE = re.compile(r"^Error at [^ ]+:\d+: ")
_NETWORK = re.compile(rb"^[ \t]*\*(?:network|vertices)\b", re.IGNORECASE | re.MULTILINE)
#: Numbers of igraph are in double precision, and larger ones may be others than those of the file.
_EXACT = 2**53


def from_gml(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a GML file; ids are the labels of nodes (in a file of igraph, names) if these differ, else ids."""
    text = text_lines(file, raw)
    found = _by_igraph(file, text, "GML")
    there = found.vs.attributes()
    numbers = found.vs["id"] if "id" in there else list(range(found.vcount()))
    if any(value != value or abs(value) >= _EXACT for value in numbers):
        raise InputError(f"{file} has an id of {_EXACT} or more; write it as GraphML")
    label = "name" if "name" in there and b'Creator "igraph' in text[:500] else "label"
    words = list(map(_word, found.vs[label])) if label in there else []
    return _graph(file, found, words, list(map(_word, numbers)), reading)


def from_pajek(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a Pajek file; ids are the labels of vertices if these differ, else their numbers."""
    text = text_lines(file, raw)
    marks = [mark.strip().lower() for mark in _NETWORK.findall(text)]
    if marks.count(b"*vertices") != 1 or marks.count(b"*network") > 1:
        raise InputError(
            f"{file} has {marks.count(b'*vertices')} parts that begin with *Vertices, and a network has one; give one "
            "network a file, or --format text for an edge list"
        )
    found = _by_igraph(file, text, "Pajek")
    numbers = [str(number) for number in range(1, found.vcount() + 1)]
    label = next((name for name in ("name", "id") if name in found.vs.attributes()), None)
    words = [word or number for word, number in zip(map(_word, found.vs[label]), numbers, strict=True)] if label else []
    return _graph(file, found, words, numbers, reading)


def _by_igraph(file: Path, text: bytes, kind: str) -> Any:
    igraph = library("igraph", f"{kind} files")
    with tempfile.NamedTemporaryFile(suffix=".txt") as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about attributes, which are not used
        place.write(text)
        place.flush()
        try:
            return getattr(igraph.Graph, f"Read_{kind}")(place.name)
        except (igraph.InternalError, UnicodeError, ValueError) as error:
            reason = _PLACE.sub("", str(error)).partition(" -- ")[0].rstrip(".")
            raise InputError(f"{file} is no whole {kind} file ({reason}); write or fetch it again") from None


def _graph(file: Path, found: Any, words: list[str], numbers: list[str], reading: ReadingOptions) -> Graph:
    if words and (len(set(words)) < len(words) or not all(words)):
        warn_user(f"{file}: labels are missing or occur twice, so that vertices go by their numbers", GraphWarning)
        words = []
    words = words or numbers
    name = str(file)
    weights = found.es["weight"] if "weight" in found.es.attributes() else [None] * found.ecount()
    weights = [None if weight is None or weight != weight else weight for weight in weights]
    kept = kept_of_some(weights, reading, name)
    links = ((words[u], words[v]) for u, v in found.get_edgelist())
    return graph_of_words(words, links, name, found.is_directed(), kept)


def _word(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return html.unescape(value) if isinstance(value, str) else str(value)
