"""Results as files for other programs."""

from __future__ import annotations

import csv
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from mmsbgen.base.atomic_files import published
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_text
from mmsbgen.base.libraries import library
from mmsbgen.base.progress import stage
from mmsbgen.export.found import Clustering
from mmsbgen.export.library_objects import node_attributes, to_arviz
from mmsbgen.scores.cover import cover_text

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _snap(found: Clustering, path: Path) -> None:
    path.write_text(cover_text(found.memberships.ids, found.cover.members), encoding="utf-8", newline="")


def _csv(found: Clustering, path: Path, delimiter: str = ",") -> None:
    names = _texts(found.memberships.ids)
    with open(path, "w", encoding="utf-8", newline="") as file:
        # Readers take a carriage return as the end of a line, but csv does not quote it.
        odd = any("\r" in name for name in names if isinstance(name, str))
        quotes: Literal[0, 1] = csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=quotes)
        writer.writerow(["id", "community", "share"])
        for vertex, community, share in zip(*(column.tolist() for column in found.affiliations), strict=True):
            writer.writerow([names[vertex], found.name(community), share])


def _parquet(found: Clustering, path: Path) -> None:
    pyarrow, parquet = library("pyarrow", "Parquet files"), library("pyarrow.parquet", "Parquet files")
    vertices, communities, shares = found.affiliations
    ids = found.memberships.ids
    known = pyarrow.array(ids) if ids.dtype.kind == "i" else pyarrow.array(_texts(ids), type=pyarrow.string())
    named = known.take(pyarrow.array(vertices))
    of = communities if found.names is None else pyarrow.array(list(map(found.name, communities.tolist())))
    table = pyarrow.table({"id": named, "community": of, "share": shares})
    parquet.write_table(table, path, compression="zstd")


def _gexf(found: Clustering, path: Path) -> None:
    networkx = library("networkx", "GEXF files")
    graph = _attributed(found, networkx)
    writer = library("networkx.readwrite.gexf", "GEXF files").GEXFWriter(encoding="utf-8", prettyprint=True)
    writer.add_graph(graph)
    # networkx writes a name attribute, which the GEXF schema does not allow.
    writer.graph_element.attrib.pop("name", None)
    with path.open("wb") as file:
        writer.write(file)


def _graphml(found: Clustering, path: Path) -> None:
    networkx = library("networkx", "GraphML files")
    # write_graphml would use lxml where it is installed; this writer gives the same file everywhere.
    networkx.write_graphml_xml(_attributed(found, networkx), path)


def _netcdf(found: Clustering, path: Path) -> None:
    data = to_arviz(found)
    library("h5netcdf", "netCDF files")
    # HDF5 locks its file, and the one at ``path`` is locked.
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "draws.nc")
        data.to_netcdf(str(written), engine="h5netcdf")
        shutil.copyfile(written, path)


def _attributed(found: Clustering, networkx: Any) -> Any:
    """The graph with vertex numbers as nodes, ids as labels, and attributes of one type each, never NaN."""
    source = found.needs_graph("drawings of the graph")
    made = networkx.Graph(name=_xml(source.name))
    names = _texts(found.memberships.ids)
    for vertex, row in enumerate(node_attributes(found)):
        communities = [(found.name(one), share) for one, share in row["memberships"].items()]
        home = found.name(row["community"])
        made.add_node(
            vertex,
            label=_xml(str(names[vertex])),
            community=home if found.names is None else _xml(home),
            communities=_xml("|".join(str(name) for name, _ in communities)),
            n_communities=len(row["memberships"]),
            share=float(row["share"]),
            strength=float(row["strength"]),
            memberships=_xml("|".join(f"{name}:{share:.4f}" for name, share in communities)),
        )
    made.add_edges_from(source.links.tolist())
    return made


def _texts(ids: npt.NDArray[Any]) -> list[Any]:
    """Ids for a file: integers and strings unchanged; if there are others, all by their ``canonical_text``."""
    items: list[Any] = ids.tolist()
    if ids.dtype.kind == "O" and not all(type(item) is str for item in items):
        return list(map(canonical_text, items))
    return items


def _xml(text: str) -> str:
    """``text`` with characters that XML does not allow replaced by Python escapes."""
    return _NOT_XML.sub(lambda found: ascii(found.group())[1:-1], text)


FORMATS: dict[str, Callable[[Clustering, Path], None]] = {
    "csv": _csv,
    "gexf": _gexf,
    "graphml": _graphml,
    "netcdf": _netcdf,
    "parquet": _parquet,
    "snap": _snap,
    "tsv": partial(_csv, delimiter="\t"),
}
#: Formats that contain the links of the graph.
NEED_LINKS = ("gexf", "graphml")
_ENDINGS = {f".{name}": name for name in FORMATS} | {".txt": "snap", ".nc": "netcdf"}


def format_of(path: Path, format: str | None) -> str:
    """The given format, or the one of the file's suffix; raises InputError if it is unknown."""
    there = ", ".join(FORMATS)
    if format is None and (format := _ENDINGS.get(path.suffix.lower())) is None:
        raise InputError(
            f"{path} does not say what format it is to have; name one of {there} (--to, in Python format=)"
        )
    if format not in FORMATS:
        raise InputError(f"format {format!r} is not one of {there}")
    return format


def write(found: Clustering, path: Path, format: str | None) -> Path:
    """See :meth:`mmsbgen.export.Exports.export`."""
    writer = FORMATS[format_of(path, format)]
    with stage(f"writing {path.name}"), published(path) as partial:
        try:
            writer(found, partial)
        except UnicodeEncodeError as error:
            raise InputError(
                f"an id has the character {error.object[error.start]!r}, a surrogate, which no file of text can have: "
                "give the vertex another id"
            ) from None
    return path
