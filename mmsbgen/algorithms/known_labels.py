"""Known labels of some vertices: from a mapping, an array, a file of labels or one of communities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import INTEGER, is_number, plain, plural
from mmsbgen.base.user_files import csv_rows, has_suffix, read_text
from mmsbgen.families.graph.row_kernels import MOST_FEATURES
from mmsbgen.graph.arcs import Arcs
from mmsbgen.graph.ids import ordered_ids

Format = Literal["pairs", "communities"]
#: Most bytes of memory for a field of a file while it is read.
_FIELD_BYTES = 200
#: Arrays of known shares in memory at once: these, scaled ones, and padded ones.
_COPIES = 3
#: Unknown ids of a file that are named.
_NAMED = 3


class LabelWarning(UserWarning):
    """Some known labels are of no vertex, or the rounds ran out."""


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Shares of labels of some vertices.

    Attributes:
        classes: The distinct labels ``[F]``, ordered.
        vertices: The vertices with known labels ``[S]``, ascending.
        shares: Their shares ``[S, F]``, float64; each row sums to 1.
        format: How a file was read.
    """

    classes: NDArray[Any]
    vertices: NDArray[np.int64]
    shares: NDArray[np.float64]
    format: Format | None = None


def known_labels(arcs: Arcs, labels: Any, format: Format | None = None) -> KnownLabels:
    """The labels of some of the graph's vertices.

    ``labels`` is one of

    * a mapping of ids to labels, or to mappings of labels to shares, which are divided by their sum;
    * an array or a list with a label for each vertex in the order of ``arcs.ids``, -1 or None where it is not known;
    * the path of a file, plain or gzip, of ``format="pairs"`` with lines ``id<TAB>label[<TAB>share]`` (commas in a
      .csv file), or of ``"communities"``, one a line: then labels are the numbers of the lines from 0 on, and a vertex
      in several communities belongs to each alike.

    Without ``format`` a file has pairs if each line has two or three fields, the third a number.  Lines of a file whose
    id is no vertex are left out with a :class:`LabelWarning`; a first line of words above integers is a header.  As in
    scikit-learn, the labels -1 and None, and the empty label of a file, mean that a vertex has no known label, or as
    little of one.

    Raises:
        InputError: For an unknown id of a mapping, a share that is negative or not finite, no label, too many, and a
            file that may have either format or that seems to have neither.
    """
    if format is not None and format not in get_args(Format):
        raise InputError(f"labels_format={format!r} is not one of {', '.join(get_args(Format))}")
    if isinstance(labels, str | os.PathLike):
        rows, format = _of_file(arcs, Path(labels), format)
    elif format is not None:
        raise InputError(f"labels_format={format!r} is of files; give a file, or leave it out")
    elif isinstance(labels, Mapping):
        rows = [(arcs.vertex(name), label, share) for name, given in labels.items() for label, share in _parts(given)]
    elif isinstance(labels, np.ndarray | Sequence):
        values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        if len(values) != arcs.n_vertices:
            raise InputError(
                f"{len(values)} labels for {plural(arcs.n_vertices, 'vertex', 'vertices')}: give one for each, -1 "
                "where it is not known, or a mapping of ids to labels"
            )
        rows = [(v, label, 1.0) for v, label in enumerate(values)]
    else:
        raise InputError(f"labels are a {type(labels).__name__}; give a mapping of ids to labels, an array or a file")
    return _known(arcs, [row for row in rows if row[1] is not None and row[1] != -1], format)


def _parts(given: Any) -> Iterable[tuple[Any, Any]]:
    return given.items() if isinstance(given, Mapping) else [(given, 1.0)]


def _known(arcs: Arcs, rows: list[tuple[int, Any, Any]], format: Format | None) -> KnownLabels:
    if not rows:
        raise InputError(f"no vertex of {arcs.name} has a known label; give some")
    classes = ordered_ids((label for _, label, _ in rows), name="labels")
    if classes.size > MOST_FEATURES:
        raise InputError(f"{classes.size} labels; at most {MOST_FEATURES} are taken at once: give fewer")
    column = {label: at for at, label in enumerate(classes.tolist())}
    vertices, place = np.unique([v for v, _, _ in rows], return_inverse=True)
    of = plural(vertices.size, "vertex", "vertices")
    size = _COPIES * 8 * vertices.size * classes.size
    need_host_memory(size, f"{plural(classes.size, 'label')} of {of}", "give fewer at once")
    shares: NDArray[np.float64] = np.zeros((vertices.size, classes.size))
    for at, (v, label, share) in zip(place.tolist(), rows, strict=True):
        try:
            value = float(share)
        except (TypeError, ValueError):
            value = np.nan
        if not 0 <= value < np.inf:
            raise InputError(f"the share of {arcs.shown(v)} in {label!r} is {share!r}; give a number of 0 or more")
        shares[at, column[label]] += value
    sums = shares.sum(axis=1, keepdims=True)
    if not (sums > 0).all():
        raise InputError(f"the shares of {arcs.shown(int(vertices[int(np.argmin(sums))]))} are all 0; leave it out")
    shares /= sums
    return KnownLabels(classes, vertices, shares, format)


def lines_of_ids(file: Path, arcs: Arcs) -> list[list[str]]:
    """The ids of each line of a file: one where the line as it stands is an id, else its fields."""
    lines = [line.strip() for line in _lines(file)]
    return [[line] if _has(arcs, line) else list(filter(None, _fields(line))) for line in lines]


def _fields(line: str) -> list[str]:
    """The fields of a line; tabs separate them if it has any."""
    return [field.strip() for field in line.split("\t")] if "\t" in line else line.split()


def _rows(file: Path) -> list[list[str]]:
    """The fields of each line; those of a .csv or .tsv file may be quoted."""
    if has_suffix(file, ".csv", ".tsv"):
        return csv_rows(_text(file), file)
    return [_fields(line) for line in _lines(file)]


def _lines(file: Path) -> list[str]:
    """The lines of a file, without blank ones and comments."""
    return [line for line in _text(file).splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _text(file: Path) -> str:
    return read_text(file, "give a text file", _FIELD_BYTES)


def _is_pair(fields: list[str]) -> bool:
    return bool(fields[0]) and (len(fields) == 2 or (len(fields) == 3 and is_number(fields[2])))


def _format_of(arcs: Arcs, file: Path, lines: list[list[str]]) -> Format:
    """Whether lines are pairs of ids and labels, or communities.  Raises :class:`InputError` if that is not clear."""
    fields = [field for line in lines for field in line if field]
    known = sum(_has(arcs, field) for field in fields)
    if all(map(_is_pair, lines)):
        if lines and known == len(fields) and all(all(line) for line in lines):
            raise InputError(
                f"{file}: lines may be `id label [share]` or communities, as all fields are vertices of {arcs.name}: "
                "say which by --labels-format pairs or --labels-format communities (labels_format= in Python)"
            )
        return "pairs"
    if 2 * known <= len(fields):
        odd = next(line for line in lines if not _is_pair(line))
        raise InputError(
            f"{file}: the line {plain(' '.join(odd))!r} is no `id label [share]`, and most fields are no vertices of "
            f"{arcs.name}: separate ids and labels by tabs (commas in a .csv file), or give --labels-format "
            "communities (labels_format= in Python)"
        )
    return "communities"


def _has(arcs: Arcs, name: str) -> bool:
    try:
        arcs.vertex(name)
    except InputError:
        return False
    return True


def _of_file(arcs: Arcs, file: Path, format: Format | None) -> tuple[list[tuple[int, Any, Any]], Format]:
    lines = _rows(file)
    if not lines:
        raise InputError(f"{file} has no labels; give lines of an id and its label, or a community on each")
    format = format or _format_of(arcs, file, lines)
    rows: list[tuple[str, Any, Any]]
    if format == "pairs":
        if (odd := next((line for line in lines if not _is_pair(line)), None)) is not None:
            raise InputError(
                f"{file}: the line {plain(' '.join(odd))!r} is no `id label [share]`; separate them by tabs"
            )
        rows = [(line[0], line[1], line[2] if len(line) == 3 else 1.0) for line in lines if line[1] not in ("", "-1")]
        if len(rows) > 1 and arcs.ids.dtype.kind in "iu" and not INTEGER.fullmatch(rows[0][0]):
            rows = rows[1:]  # a header above ids, which are integers
        if all(INTEGER.fullmatch(label) for _, label, _ in rows):
            rows = [(name, int(label), share) for name, label, share in rows]
    else:
        rows = [(name, at, 1.0) for at, line in enumerate(lines) for name in dict.fromkeys(line) if name]
    found, missing = [], []
    for name, label, share in rows:
        try:
            found.append((arcs.vertex(name), label, share))
        except InputError:
            missing.append(name)
    if missing:
        told = f"{file}: {plural(len(missing), 'line', 'lines')} of ids that are no vertices of {arcs.name}"
        if format == "communities":
            told = f"{file}: {plural(len(missing), 'member')} that are no vertices of {arcs.name}"
        if not found:
            raise InputError(
                f"{file}: {plain(missing[0])!r} is no vertex of {arcs.name}, and no other id is: give labels of this "
                "graph, with tabs between ids and labels (commas in a .csv file)"
            )
        some = ", ".join(repr(plain(name)) for name in missing[:_NAMED])
        warn_user(f"{told} are left out, such as {some}", LabelWarning)
    return found, format
