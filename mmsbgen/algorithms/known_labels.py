"""Known labels of some vertices: from a mapping, an array, a file of labels or one of communities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain, plural
from mmsbgen.base.user_files import most_fields, need_memory, read_unpacked
from mmsbgen.base.user_warning import warn_user
from mmsbgen.families.graph.rows import MOST_FEATURES
from mmsbgen.graph.arcs import Arcs
from mmsbgen.graph.ids import ordered_ids

__all__ = ["KnownLabels", "LabelWarning", "known_labels", "lines_of_ids"]

#: Most bytes of memory for a field of a file while it is read.
_FIELD_BYTES = 200


class LabelWarning(UserWarning):
    """Some known labels are of no vertex, or the rounds ran out."""


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """Shares of labels of some vertices.

    Attributes:
        classes: The distinct labels ``[F]``, ordered.
        vertices: The vertices with known labels ``[S]``, ascending.
        shares: Their shares ``[S, F]``, float64; each row sums to 1.
    """

    classes: NDArray[Any]
    vertices: NDArray[np.int64]
    shares: NDArray[np.float64]


def known_labels(arcs: Arcs, labels: Any) -> KnownLabels:
    """The labels of some of the graph's vertices.

    ``labels`` is one of

    * a mapping of ids to labels, or to mappings of labels to shares, which are divided by their sum;
    * an array or a list with a label for each vertex in the order of ``arcs.ids``, -1 or None where it is not known;
    * the path of a file, plain or gzip, with lines ``id<TAB>label[<TAB>share]``, or a community a line: then labels are
      the numbers of the lines from 0 on, and a vertex in several communities belongs to each alike.

    A file is taken for one of labels if each line has two or three fields, the third a number.  Lines of a file whose
    id is no vertex are left out with a :class:`LabelWarning`.

    Raises:
        InputError: For an unknown id of a mapping, a share that is negative or not finite, no label, or too many.
    """
    if isinstance(labels, str | os.PathLike):
        rows = _of_file(arcs, Path(labels))
    elif isinstance(labels, Mapping):
        rows = [(arcs.vertex(name), label, share) for name, given in labels.items() for label, share in _parts(given)]
    elif isinstance(labels, np.ndarray | Sequence):
        values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        if len(values) != arcs.n_vertices:
            raise InputError(
                f"{len(values)} labels for {plural(arcs.n_vertices, 'vertex', 'vertices')}: give one for each, -1 "
                "where it is not known, or a mapping of ids to labels"
            )
        rows = [(v, label, 1.0) for v, label in enumerate(values) if label is not None and label != -1]
    else:
        raise InputError(f"labels are a {type(labels).__name__}; give a mapping of ids to labels, an array or a file")
    return _known(arcs, rows)


def _parts(given: Any) -> Iterable[tuple[Any, Any]]:
    return given.items() if isinstance(given, Mapping) else [(given, 1.0)]


def _known(arcs: Arcs, rows: list[tuple[int, Any, Any]]) -> KnownLabels:
    if not rows:
        raise InputError(f"no vertex of {arcs.name} has a known label; give some")
    classes = ordered_ids((label for _, label, _ in rows), name="labels")
    if classes.size > MOST_FEATURES:
        raise InputError(f"{classes.size} labels; at most {MOST_FEATURES} are taken at once: give fewer")
    column = {label: at for at, label in enumerate(classes.tolist())}
    vertices, place = np.unique([v for v, _, _ in rows], return_inverse=True)
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
    return KnownLabels(classes, vertices, shares / sums)


def lines_of_ids(file: Path) -> list[list[str]]:
    """The fields of each line of a file, without blank lines and comments; tabs separate where a line has one."""
    raw = read_unpacked(file)
    need_memory(file, _FIELD_BYTES * most_fields(raw))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: byte {error.start} is no UTF-8 text; give a text file, plain or gzip") from None
    found = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            fields = line.split("\t") if "\t" in line else line.split()
            found.append([field.strip() for field in fields if field.strip()])
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_file(arcs: Arcs, file: Path) -> list[tuple[int, Any, Any]]:
    lines = lines_of_ids(file)
    table = all(len(line) == 2 or (len(line) == 3 and _is_number(line[2])) for line in lines)
    rows: list[tuple[str, Any, Any]]
    if table:
        rows = [(line[0], line[1], line[2] if len(line) == 3 else 1.0) for line in lines]
        if all(_is_integer(label) for _, label, _ in rows):
            rows = [(name, int(label), share) for name, label, share in rows]
    else:
        rows = [(name, number, 1.0) for number, line in enumerate(lines) for name in dict.fromkeys(line)]
    found, missing = [], []
    for name, label, share in rows:
        try:
            found.append((arcs.vertex(name), label, share))
        except InputError:
            missing.append(name)
    if missing:
        told = f"{file}: {plural(len(missing), 'line', 'lines')} of ids that are no vertices of {arcs.name}"
        told = told if table else f"{file}: {plural(len(missing), 'member')} that are no vertices of {arcs.name}"
        if not found:
            raise InputError(f"{told}, such as {plain(missing[0])!r}, and no others; give labels of this graph")
        warn_user(f"{told} are left out, such as {plain(missing[0])!r}", LabelWarning)
    return found


def _is_integer(text: str) -> bool:
    return text.lstrip("-").isdecimal() and str(int(text)) == text
