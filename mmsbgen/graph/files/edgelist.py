"""Reader for edge lists.

A file with commas, semicolons, bars, or tabs around blanks is a table (:mod:`mmsbgen.graph.files.text_tables`).  All
others are SNAP-style edge lists: one link per line, two ids separated by spaces or tabs.  A field that begins with
``#`` starts a comment, and so does ``%`` at the start of a line.  Blank lines, Windows line ends and a byte-order mark
are accepted.

Ids are integers if every id of the file is a 64-bit signed integer in its shortest form; vertices are then numbered by
ascending id.  Otherwise all ids are strings, unchanged (``007`` is not ``7``), in code-point order.

Isolated vertices are listed in a comment, ids separated by blanks or commas::

    # isolated nodes (no edge line): 3 28 30
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.processes import side_by_side
from mmsbgen.base.progress import Stage, stage
from mmsbgen.graph.building import graph_of_pairs
from mmsbgen.graph.files.file_bytes import (
    foreign_format,
    need_fields,
    read_graph_bytes,
    record_path,
    short_name,
    text_lines,
)
from mmsbgen.graph.files.plain_tables import plain_ends
from mmsbgen.graph.files.text_tables import delimiter_of, read_ends
from mmsbgen.graph.files.tokens import Fields, Words, block_ends, parse_integers, split_fields
from mmsbgen.graph.files.words import (
    FEW_ROWS,
    INTEGER,
    as_int64,
    first_other,
    integers_or_words,
    number_words,
    refuse_twins,
    shown,
    warn_of_disjoint,
    word_ids,
)
from mmsbgen.graph.graph import Graph, GraphWarning, Int64Array, UInt32Array
from mmsbgen.graph.ids import number_integers
from mmsbgen.graph.reading_options import USUAL_COLUMNS, ReadingOptions, need_weights

#: The first line of KONECT's files: the third column is a weight, the fourth a time.
_KONECT = re.compile(rb"%\s*(sym|asym|bip)[ \t]+[a-z]+[ \t]*(?=\r?\n)")
# Without the first letter, whose case varies: search with a fixed prefix is fast in a large file.
_ISOLATED = re.compile(rb"solated (?:nodes|vertices)[^:\n]*:([^\n]*)")
_LINE = re.compile(rb"[^\n]+")
_NEIGHBOURS = (
    "If each line is a vertex and its neighbours, give --format adjlist; if the file is METIS's, --format metis "
    "(format='...' in Python)"
)
Result = TypeVar("Result")


def load_edge_list(
    path: str | os.PathLike[str], columns: Sequence[Any] | None = None, weights: str | None = None
) -> Graph:
    """Read an edge list (module docstring) or a table of links into a :class:`~mmsbgen.graph.Graph`.

    ``columns`` and ``weights`` are as in :class:`~mmsbgen.graph.reading_options.ReadingOptions`.

    Self-loops and repeated links are dropped and counted in ``Graph.report``.  If every link is listed in both
    directions, one duplicate per link is counted.  If only some are, the file may be directed: direction is
    dropped with a :class:`~mmsbgen.graph.GraphWarning`.

    Raises:
        InputError: If the file cannot be read, is damaged, has no link, or can be read in more than
            one way (:mod:`mmsbgen.graph.files.text_tables`).  The message gives file, value and remedy.
    """
    file = Path(path)
    with stage(f"reading {file.name}", unit="B") as told:
        return graph_of_text(file, read_graph_bytes(file), ReadingOptions(columns=columns, weights=weights), told)


def graph_of_text(file: Path, raw: bytes, reading: ReadingOptions, told: Stage) -> Graph:
    """The graph of the content ``raw`` of ``file``, an edge list or a table; raises as :func:`load_edge_list`."""
    if kind := foreign_format(file, raw):
        raise InputError(f"{file} has the format {kind}, and is no edge list or table; give one of these")
    texts = [raw]
    del raw  # so that it is freed once it is parsed: only the callee has it
    return graph_of_pairs(
        *_links_of_text(file, texts.pop(), reading, told), name=short_name(file), file=record_path(file)
    )


def _links_of_text(file: Path, raw: bytes, reading: ReadingOptions, told: Stage) -> tuple[UInt32Array, NDArray[Any]]:
    """The links of a text, uint32 ``[L, 2]``, and the ids ``[N]`` of all vertices."""
    need_fields(file, raw, "integers")
    text = text_lines(file, raw)
    if (layout := table_layout(file, text, reading)) is not None:
        return _links_of_table(file, text, layout[0], replace(reading, columns=layout[1]))
    need_weights(reading, str(file))
    if (numbers := integer_ids(file, text, told)) is not None:
        found, n_ends = numbers
        if reading.format == "auto" and may_begin_with_counts(found[:2].tolist(), n_ends):
            _refuse_counts(file, found[:n_ends])
        raw = text = b""  # of a large graph they take more than the numbers
        ids, places = number_integers(found)
        return np.ascontiguousarray(places[:n_ends].reshape(-1, 2), np.uint32), ids
    words = _without_header(file, _words(file, text, told), text)
    return _links_of_words(file, words, _isolated_ids(text))


def table_layout(file: Path, text: bytes, reading: ReadingOptions) -> tuple[str | None, Sequence[Any] | None] | None:
    """The delimiter of a table, None for blanks, and the columns of its links; None for a plain edge list.

    The begin of a ``text`` decides.  Raises as :func:`load_edge_list`.
    """
    konect = _KONECT.match(text)
    if konect and konect[1] == b"bip":
        raise InputError(
            f"{file} has two kinds of vertices, whose numbers overlap ({shown(konect[0])}); give links of one kind, or "
            "ids that differ"
        )
    if konect and reading.columns is None:
        return (None, (1, 2, 3)) if len(next(_link_lines(text), b"").split()) > 2 else None
    delimiter = delimiter_of(file, text)
    return None if delimiter is None and reading.columns is None else (delimiter, reading.columns)


def _links_of_table(
    file: Path, text: bytes, delimiter: str | None, reading: ReadingOptions
) -> tuple[UInt32Array, NDArray[Any]]:
    """As :func:`_links_of_text`, of a table."""
    isolated = _isolated_ids(text)
    try:
        if not isolated and (plain := plain_ends(text, delimiter, reading)) is not None:
            words, kept = plain
        else:
            need_fields(file, text, "text")
            *ends, kept = read_ends(text.decode("utf-8"), delimiter, reading)
            words = Words.of([word.encode() for pair in zip(*ends, strict=True) for word in pair])
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return _links_of_words(file, words, isolated, kept, reading.columns)


def integer_ids(file: Path, text: bytes, told: Stage) -> tuple[NDArray[Any], int] | None:
    """The ids of an edge list, or of a part of it, if all are integers.

    Ids are uint32 if all fit, else int64: first those of the links in order ``[2 L]``, then isolated vertices.  The
    second value is ``2 L``.

    Raises:
        InputError: For a line that is no link, before any id that is no integer.
    """
    if (isolated := as_int64(Words.of(_isolated_ids(text)))) is None:
        return None
    if (numbers := _integer_pairs(file, text, told)) is None:
        return None
    return np.concatenate([numbers, isolated]) if isolated.size else numbers, numbers.size


def may_begin_with_counts(first: list[int], n_ends: int) -> bool:
    """Whether the second number of a list's ``first`` row is that of the other links, of which ``n_ends`` are ends."""
    return n_ends > 2 and first[1] == n_ends // 2 - 1


def _refuse_counts(file: Path, ends: NDArray[Any]) -> None:
    """Raise InputError if the first line of an edge list ``[2 L]`` may be the numbers of vertices and links.

    So begin files of METIS, whose other lines are neighbours, and lists with a line of counts.
    """
    (n, m), rest = ends[:2].tolist(), ends[2:]
    if n >= 2 and rest.min() >= 0 and rest.max() <= n:
        raise InputError(
            f"{file}: it is not clear whether the first line, {shown(b'%d %d' % (n, m))}, is a link, or the numbers of "
            f"vertices and links. If it is a link, give --format text; if the file is METIS's, --format metis; else "
            "put # before the line"
        )


def _links_of_words(
    file: Path,
    words: Words | Int64Array,
    isolated: list[bytes],
    kept: NDArray[np.bool_] | None = None,
    chosen: Sequence[Any] | None = None,
) -> tuple[UInt32Array, NDArray[Any]]:
    """As :func:`_links_of_text`, of the ids ``[2 L]`` of all rows in order, of which those ``kept`` are links.

    Ids that are integers already come without ``isolated`` ones.
    A warning tells if the columns that the user has ``chosen`` have no id in common.
    """
    n_ends = len(words)
    found = words if isinstance(words, np.ndarray) else integers_or_words(words.and_more(isolated))
    if isinstance(found, np.ndarray):
        ids, places = number_integers(found)
    else:
        distinct, places = number_words(found)
        refuse_twins(record_path(file) or short_name(file), distinct)
        ids = word_ids(file, distinct)
    pairs = places[:n_ends].reshape(-1, 2).astype(np.uint32, copy=False)
    if chosen is not None and len(pairs) >= FEW_ROWS:
        is_there = np.zeros((2, ids.size), np.bool_)
        is_there[0, pairs[:, 0]] = is_there[1, pairs[:, 1]] = True
        if not is_there.all(axis=0).any():
            warn_of_disjoint(chosen)
    return (pairs if kept is None else pairs[kept]), ids


def _words(file: Path, text: bytes, told: Stage) -> Words:
    """All ids of the text in order, ``[2 L]``."""
    kind = np.uint32 if len(text) < 1 << 32 else np.int64

    def edges(block: Fields) -> NDArray[Any]:
        return np.stack([block.starts, block.ends]).astype(kind)

    found, begin = [np.zeros((2, 0), kind)], 0
    for block, part in _checked_blocks(file, text, told, edges):
        part += kind(begin)
        found.append(part)
        begin += len(block.text)
    return Words(text, *np.concatenate(found, axis=1))


def _integer_pairs(file: Path, text: bytes, told: Stage) -> NDArray[Any] | None:
    """All ids of the text in order ``[2 L]``, uint32 if all fit, else int64; None if any is not an integer."""
    numbers: NDArray[Any] = np.empty(2 * text.count(b"\n"), dtype=np.uint32)
    end = 0
    for _, part in _checked_blocks(file, text, told, parse_integers):
        if part is None:
            return None
        if part.size and numbers.dtype != np.int64 and not 0 <= part.min() <= part.max() < 1 << 32:
            narrow, numbers = numbers[:end], np.empty(numbers.size, dtype=np.int64)
            numbers[:end] = narrow
        numbers[end : end + part.size] = part
        end += part.size
    return numbers[:end]


def _checked_blocks(
    file: Path, text: bytes, told: Stage, of: Callable[[Fields], Result]
) -> Iterator[tuple[Fields, Result]]:
    """Yield the file in blocks of whole lines, after checking that every line has two fields or none.

    Blocks are split in threads, which also compute what ``of`` gives for each.
    """

    def parsed(begin: int, end: int) -> tuple[Fields, int | None, Result | None]:
        block = split_fields(text[begin:end])
        bad = block.first_line_without_two()
        return block, bad, of(block) if bad is None else None

    done, lines_before = 0, 0
    for block, bad, result in side_by_side(lambda ends: parsed(*ends), block_ends(text)):
        if bad is not None:
            line, counts = block.text.split(b"\n")[bad], np.bincount(block.lines)
            raise _wrong_line(file, lines_before + bad + 1, line, counts[counts > 0])
        yield block, cast(Result, result)
        done, lines_before = done + len(block.text), lines_before + block.n_lines
        told.tell(done, len(text))


def _wrong_line(file: Path, number: int, line: bytes, counts: Int64Array) -> InputError:
    """The error of a line, among lines with ``counts`` ``[L]`` of fields."""
    fields = split_fields(line + b"\n").words()
    where, widths = f"{file}, line {number}: {shown(line.strip())}", np.unique(counts)
    pairs = int((counts == 2).sum())
    if len(widths) > 2 and 2 * pairs < len(counts) and not all(map(INTEGER.fullmatch, fields)):
        return InputError(
            f"{file} is no edge list: of its first {len(counts)} lines {pairs} are two ids, and line {number} is "
            f"{shown(line.strip())}. {_NEIGHBOURS}"
        )
    if len(fields) == 1:
        return InputError(f"{where} has one field; a link is two ids separated by a tab or spaces: mend the line")
    if fields[2][:1] == b"{":
        return InputError(
            f"{where} ends in a dictionary, as networkx writes attributes. Read two columns: --columns 1,2"
        )
    found = f"{where} has {len(fields)} fields, and a link has two; the third, {shown(fields[2])},"
    if len(widths) > 1:
        return InputError(f"{found} is on this line and not on all: mend the line. {_NEIGHBOURS}")
    return InputError(
        f"{found} may be a weight. Say which columns are the two ends: --columns A,B with numbers from 1 on, or A,B,W "
        "with that of the weights (columns=(A, B) in Python)"
    )


def _without_header(file: Path, words: Words, text: bytes) -> Words:
    """``words`` ``[2 L]`` without the first two if they are a header: usual names, or words over integers.

    Raises InputError for stray separators, and for a line without a tab in a file that is separated by tabs.
    """
    tabbed = len(words) > 0 and b"\t" in next(_link_lines(text))
    _refuse_separators(file, words, tabbed)
    top, below = words.part(slice(2)).words(), words.part(slice(2, None))
    if not len(below):
        return words
    common = any(below.places_of(word).size for word in top)
    usual = tuple(word.decode().lower() for word in top) in USUAL_COLUMNS and not common
    of_words = not any(map(INTEGER.fullmatch, top))
    if usual or (of_words and first_other(below) is None):
        return below
    if of_words and not common:
        row = shown(b" ".join(top))
        remedy = "if it is a header, give its names by --columns (columns= in Python), or put # before it"
        warn_user(f"{file}: the first row, {row}, is read as a link; {remedy}", GraphWarning)
    return words


def _refuse_separators(file: Path, words: Words, tabbed: bool) -> None:
    """Raise InputError for an id that begins or ends with a separator and, if ``tabbed``, for a line without a tab."""
    behind = np.frombuffer(words.text, np.uint8)[words.ends[0::2]]
    if tabbed and (behind != ord("\t")).any():  # nearly all lines have it behind the first id
        bad = next((line for line in _link_lines(words.text) if b"\t" not in line), None)
        if bad is not None:
            raise InputError(f"{file}: {shown(bad)} has no tab between two ids, and the first link has: mend the line")
    for word in words.part(np.logical_or(*words.ends_in(b",;"))).words()[:1]:
        raise InputError(f"{file}: {shown(word)} has a separator at its end, and others have none: mend the line")


def _link_lines(text: bytes) -> Iterator[bytes]:
    """The lines that are neither blank nor a comment, stripped, one at a time."""
    for match in _LINE.finditer(text):
        line = match[0].strip()
        if line and line[:1] not in b"#%":
            yield line


def _isolated_ids(text: bytes) -> list[bytes]:
    found: list[bytes] = []
    for match in _ISOLATED.finditer(text):
        line_start = text.rfind(b"\n", 0, match.start()) + 1
        lead = text[line_start : match.start()].lstrip()
        if lead[:1] in (b"#", b"%") and lead.strip(b" \t#%") in (b"i", b"I"):
            found += match.group(1).replace(b",", b" ").split()
    return found
