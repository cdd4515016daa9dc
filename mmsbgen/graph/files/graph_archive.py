"""A graph with its ids and held-out pairs in one file: ``graph.npz`` beside the results of an update.

The archive holds ``ids`` ``[N]``, ``links`` ``[E, 2]``, and ``validation`` and ``test``, the held-out pairs
``[H, 2]``: links first, then as many non-links as ``non_links`` ``[2]`` says.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from mmsbgen.base.atomic_files import DAMAGED, FOREIGN, FileTransaction, published_archive, stored_arrays
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.graph.changes import split_holding_out
from mmsbgen.graph.files.file_bytes import short_name
from mmsbgen.graph.graph import Graph, LoadReport, link_keys
from mmsbgen.graph.ids import string_ids
from mmsbgen.graph.split import HeldOut, Split, held_out, places_of

#: A member that only these archives have.
_MEMBER = "non_links.npy"


def write_graph(path: Path, split: Split, together: FileTransaction | None = None) -> None:
    """Write the graph of ``split`` and its held-out pairs."""
    graph, held = split.graph, (split.validation, split.test)
    ids = graph.ids if graph.ids.dtype != object else np.array([str(name) for name in graph.ids.tolist()])
    with published_archive(path, together) as archive:
        archive.add("ids", ids)
        archive.add("links", graph.links)
        archive.add("validation", held[0].pairs)
        archive.add("test", held[1].pairs)
        archive.add("non_links", np.array([one.n_non_links for one in held], np.int64))


def is_graph_archive(file: Path | bytes) -> bool:
    """Whether a file, or its content, is one that :func:`write_graph` wrote."""
    try:
        with zipfile.ZipFile(io.BytesIO(file) if isinstance(file, bytes) else file) as archive:
            return _MEMBER in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):  # ValueError: a name with a null byte
        return False


def graph_of_archive(file: Path, raw: bytes | None = None) -> Graph:
    """The graph of an archive, a file or its content ``raw``; raises :class:`InputError` if it is damaged."""
    return _read(file, raw)[0]


def split_of_archive(file: Path, seed: int) -> Split:
    """The graph of an archive with the pairs that were held out; raises :class:`InputError` if it is damaged."""
    graph, held = _read(file)
    return split_holding_out(graph, seed, *held)


def _read(file: Path, raw: bytes | None = None) -> tuple[Graph, list[HeldOut]]:
    try:
        # A file is read array by array: its content is never there beside the links.
        with file.open("rb") if raw is None else io.BytesIO(raw) as opened, stored_arrays(opened) as arrays:
            ids, links = arrays["ids"], arrays["links"]
            if ids.dtype.kind == "U":
                ids = string_ids(ids.tolist())
            n = ids.size
            if links.size and links.max() >= n:
                raise ValueError("its links have ends that are no vertices")
            graph = Graph(n, ids, links, LoadReport.of_links(links, n), short_name(file))
            held = []
            for name, n_non_links in zip(("validation", "test"), arrays["non_links"].tolist(), strict=True):
                pairs = arrays[name]
                if pairs.shape != (len(pairs), 2) or (pairs.size and not 0 <= pairs.min() <= pairs.max() < n):
                    raise ValueError(f"its {name} pairs are not those of its graph")
                cut = len(pairs) - n_non_links
                held.append(held_out(pairs[:cut], pairs[cut:]))
                if [places_of(graph.links, part).size for part in (pairs[:cut], pairs[cut:])] != [cut, 0]:
                    raise ValueError(f"its {name} pairs are not those of its graph")
            both = np.concatenate([one.pairs for one in held])
            if link_keys(both).size < len(both):
                raise ValueError("a pair is held out twice")
            return graph, held
    except (*FOREIGN, *DAMAGED) as error:
        raise InputError(
            f"{file} is damaged ({plain(error, 200)}): give the graph as an edge list, and run `mmsbgen detect` again"
        ) from None
