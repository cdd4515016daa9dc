"""Graphs from GraphML and GEXF, and from GML and Pajek, which igraph reads (extra ``igraph``).

Elements of XML are read one by one, so that neither a tree of the file nor an entity of it is built.
"""

from __future__ import annotations

import html
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any
from xml.parsers import expat

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.libraries import library
from mmsbgen.graph.files.file_bytes import text_lines
from mmsbgen.graph.files.words import graph_of_words
from mmsbgen.graph.graph import Graph, GraphWarning
from mmsbgen.graph.reading_options import WEIGHT_NAMES, ReadingOptions, kept_of_some

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


def from_xml(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a GraphML or GEXF file.

    Ids are those of the nodes; for a file of igraph, which numbers nodes n0, n1, ..., their attribute ``name`` or these
    numbers.  A link without a weight has weight 1.

    Raises:
        InputError: For damaged XML, entities, more than one graph, hyperedges, and links of nodes that are not there.
    """
    found = _Elements(file)
    found.read(raw)
    words, name = _words(found, file), str(file)
    odd = next((word for pair in found.links for word in pair if word not in words), None)
    if odd is not None:
        raise InputError(f"{file} has a link of {odd!r}, which is no node of it; fetch it again")
    links = ((words[u], words[v]) for u, v in found.links)
    weights = [found.weight if weight is None else weight for weight in found.weights]
    kept = kept_of_some(weights, reading, name)
    return graph_of_words(words.values(), links, name, found.is_directed, kept)


def _words(found: _Elements, file: Path) -> dict[str, str]:
    """The id of each node as the user knows it."""
    if not found.by_igraph:
        return {node: node for node in found.nodes}
    names = list(found.nodes.values())
    if all(name is not None for name in names):
        if len(set(names)) < len(names):
            raise InputError(f"{file}: two vertices have the same attribute 'name'; give them different names")
        return {node: str(name) for node, name in found.nodes.items()}
    return {node: node.removeprefix("n") for node in found.nodes}


class _Elements:
    """Nodes, links and weights of a file, from its elements."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.nodes: dict[str, str | None] = {}  # with the attribute name, if any
        self.links: list[tuple[str, str]] = []
        self.weights: list[str | None] = []
        self.weight: str | None = None  # of links that have none
        self.is_directed = False
        self.by_igraph = False
        self._keys: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []  # element and id of what is open
        self._text: list[str] | None = None
        self._graphs = 0
        self._default = ""

    def read(self, raw: bytes) -> None:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.CommentHandler = self._comment
        parser.EntityDeclHandler = self._entity
        try:
            parser.Parse(raw, True)
        except expat.ExpatError as error:
            raise InputError(f"{self.file} is damaged XML ({error}); write or fetch it again") from None
        except (LookupError, ValueError) as error:
            raise InputError(f"{self.file} is XML in an unknown encoding ({error}); write it as UTF-8") from None
        if not self._graphs:
            raise InputError(f"{self.file} has no graph; give a GraphML or GEXF file")

    def _entity(self, name: str, *_: Any) -> None:
        raise InputError(f"{self.file} defines the entity {name!r}, which no graph needs; write it without")

    def _comment(self, text: str) -> None:
        self.by_igraph = self.by_igraph or (not self._graphs and text.strip() == "Created by igraph")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        element = tag.rpartition(" ")[2]
        if not self._open and element not in ("graphml", "gexf"):
            raise InputError(f"{self.file} is XML with the root <{element}>, but neither GraphML nor GEXF")
        # Graphs stand below the root; those in a node are its parts.
        if element == "graph":
            self._graph(given)
        elif element == "key":
            self._keys[given.get("id", "")] = given.get("attr.name", "").lower()
        elif element == "node":
            self.nodes.setdefault(self._needs(given, "node", "id"), None)
        elif element == "edge":
            self.links.append((self._needs(given, "edge", "source"), self._needs(given, "edge", "target")))
            weights = (value for name, value in given.items() if name.lower() in WEIGHT_NAMES)
            self.weights.append(next(weights, None))
            kind = given.get("type", given.get("directed", self._default)).lower()
            self.is_directed = self.is_directed or kind in ("true", "directed")
        elif element == "hyperedge":
            raise InputError(f"{self.file} has hyperedges, which link more than two vertices; give pairs")
        elif element in ("data", "default"):
            self._text = []
        self._open.append((element, given.get("key" if element == "data" else "id", "")))

    def _graph(self, given: dict[str, str]) -> None:
        if not any(element == "node" for element, _ in self._open):
            self._graphs += 1
            self._default = given.get("edgedefault", given.get("defaultedgetype", "")).lower()
        if self._graphs > 1:
            raise InputError(f"{self.file} has more than one graph; give one a file")

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        element, name = self._open.pop()
        if self._text is None or element not in ("data", "default") or not self._open:
            return
        text, self._text = "".join(self._text), None
        owner, node = self._open[-1]
        what = self._keys.get(name if element == "data" else node, "")
        if element == "default" and what in WEIGHT_NAMES:
            self.weight = text.strip()
        elif element == "data" and owner == "node" and what == "name":
            self.nodes[node] = text
        elif element == "data" and owner == "edge" and what in WEIGHT_NAMES:
            self.weights[-1] = text.strip()

    def _needs(self, given: dict[str, str], element: str, name: str) -> str:
        if not given.get(name):
            raise InputError(f"{self.file} has an element <{element}> without {name}; write or fetch it again")
        return given[name]
