"""Reader for edge lists.

A file with commas, semicolons, bars, or tabs around blanks is a table (:mod:`mmsbgen.graph.text_tables`).  All others
are SNAP-style edge lists: one link per line, two ids separated by spaces or tabs.  Both are plain text or gzip, which
is detected by the first bytes and not by the name.  A field that begins with ``#`` starts a comment, and so does ``%``
at the start of a line.  Blank lines, Windows line ends and a byte-order mark are accepted.

Ids are integers if every id of the file is a 64-bit signed integer in its shortest form; vertices are then numbered by
ascending id.  Otherwise all ids are strings, unchanged (``007`` is not ``7``), in code-point order.

Isolated vertices are listed in a comment, ids separated by blanks or commas::

    # isolated nodes (no edge line): 3 28 30
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import Stage, stage
from mmsbgen.base.user_files import read_bytes, unpacked
from mmsbgen.base.user_warning import warn_user
from mmsbgen.graph._tokens import Fields, parse_integers, split_fields
from mmsbgen.graph.graph import Graph, GraphWarning, Int64Array, build_graph, number_integers, string_ids
from mmsbgen.graph.text_tables import USUAL_COLUMNS, find_delimiter, read_ends

# With blocks of this size, temporary arrays stay small and in the cache.
_BLOCK_BYTES = 1 << 22
#: The begin of a file from which the kind of its columns is found.
_SAMPLE_BYTES = 1 << 16
_SUFFIXES = {".gz", ".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist", ".dat", ".ungraph"}
_FOREIGN = {
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("zip", "unzip"),
}
# Without the first letter, whose case varies: search with a fixed prefix is fast in a large file.
_ISOLATED = re.compile(rb"solated (?:nodes|vertices)[^:\n]*:([^\n]*)")
#: Comments and blank lines before the first link.
_COMMENTS = re.compile(rb"(?:[ \t]*(?:[#%][^\n]*)?\r?\n)*")
_LINE = re.compile(rb"[^\n]+")
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")


def load_edge_list(path: str | os.PathLike[str], columns: tuple[Any, Any] | None = None) -> Graph:
    """Read an edge list (module docstring) or a table of links into a :class:`~mmsbgen.graph.Graph`.

    ``columns`` are the two columns of a table's ends, by name or by number from 1 on; by default they are found.

    Self-loops and repeated links are dropped and counted in ``Graph.report``.  If every link is listed in both
    directions, one duplicate per link is counted.  If only some are, the file is probably directed: direction is
    dropped with a :class:`~mmsbgen.graph.GraphWarning`.

    Raises:
        InputError: If the file cannot be read, is damaged, has no link, or can be read in more than
            one way (:mod:`mmsbgen.graph.text_tables`).  The message gives file, value and remedy.
    """
    file = Path(path)
    with stage(f"reading {file.name}", unit="B") as told:
        return _load(file, told, columns)


def _load(file: Path, told: Stage, columns: tuple[Any, Any] | None) -> Graph:
    text = _read(file)
    isolated = _isolated_ids(text)
    name, whole = _short_name(file), None if _passes(file) else str(file.absolute())
    table = _table(file, text, columns)
    if table is not None:
        return _graph_of_words(table, isolated, name, whole)
    numbers = _integer_pairs(file, text, told)
    extra = _as_int64(isolated)
    if numbers is not None and extra is not None:
        ids, places = number_integers(np.concatenate([numbers, extra]))
        places = places[: numbers.size]
        return build_graph(places[0::2], places[1::2], ids, name=name, file=whole)

    words = [word for block in _checked_blocks(file, text, told) for word in block.words()]
    return _graph_of_words(_without_header(file, words, text), isolated, name, whole)


def _table(file: Path, text: bytes, columns: tuple[Any, Any] | None) -> list[bytes] | None:
    """The ids of all links of a table in order, ``[2 L]``; None for a plain edge list."""
    comments = _COMMENTS.match(text)
    start = comments.end() if comments else 0
    begin = text[start : text.find(b"\n", start + _SAMPLE_BYTES) + 1 or len(text)]
    try:
        is_csv = ".csv" in file.name.lower()
        delimiter = find_delimiter(begin.decode("utf-8"), is_csv=is_csv)
        if delimiter is None and columns is None:
            return None
        ends = read_ends(text.decode("utf-8"), delimiter, columns)
    except csv.Error as error:
        raise InputError(f"{file}: {error}; mend the line") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return [word.encode() for pair in zip(*ends, strict=True) for word in pair]


def _graph_of_words(words: list[bytes], isolated: list[bytes], name: str, whole: str | None) -> Graph:
    """The graph of the ids ``[2 L]`` of all links in order; ids are integers if all are."""
    numbers = _as_int64([*words, *isolated])
    if numbers is not None:
        ids, places = number_integers(numbers)
        places = places[: len(words)]
        return build_graph(places[0::2], places[1::2], ids, name=name, file=whole)
    distinct = sorted({*words, *isolated})
    index = {word: place for place, word in enumerate(distinct)}
    places = np.fromiter(map(index.__getitem__, words), dtype=np.int64, count=len(words))
    ids = string_ids([word.decode() for word in distinct])
    return build_graph(places[0::2], places[1::2], ids, name=name, file=whole)


def _integer_pairs(file: Path, text: bytes, told: Stage) -> Int64Array | None:
    """All ids of the file in order, int64 ``[2 L]``; None if any is not an integer."""
    parts = []
    for block in _checked_blocks(file, text, told):
        part = parse_integers(block)
        if part is None:
            return None
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _checked_blocks(file: Path, text: bytes, told: Stage) -> Iterator[Fields]:
    """Yield the file in blocks of whole lines, after checking that every line has two fields or none."""
    begin, lines_before = 0, 0
    while begin < len(text):
        end = text.find(b"\n", begin + _BLOCK_BYTES) + 1 or len(text)
        block = split_fields(text[begin:end])
        bad = block.first_line_without_two()
        if bad is not None:
            raise _wrong_line(file, lines_before + bad + 1, block.line(bad), block.text.split(b"\n")[bad])
        yield block
        begin, lines_before = end, lines_before + block.n_lines
        told.tell(end, len(text))


def _wrong_line(file: Path, number: int, fields: list[bytes], line: bytes) -> InputError:
    where = f"{file}, line {number}: {_show(line.strip())}"
    if len(fields) == 1:
        return InputError(f"{where} has one field; a link is two ids separated by a tab or spaces: mend the line")
    return InputError(
        f"{where} has {len(fields)} fields, and a link has two; the third, {_show(fields[2])}, may be a weight. "
        "Say which columns are the two ends: --columns A,B with numbers from 1 on (columns=(A, B) in Python)"
    )


def _without_header(file: Path, words: list[bytes], text: bytes) -> list[bytes]:
    """``words`` ``[2 L]`` without the first two if they are a header: usual names, or words over integers.

    Raises InputError for stray separators, and for a line without a tab in a file that is separated by tabs.
    """
    if not words:
        return words
    tabbed = b"\t" in next(_link_lines(text))
    if tabbed:
        bad = next((line for line in _link_lines(text) if b"\t" not in line), None)
        if bad is not None:
            raise InputError(f"{file}: {_show(bad)} has no tab between two ids, and the first link has: mend the line")
    for word in words:
        if word[0] in b",;" or word[-1] in b",;":
            raise InputError(f"{file}: {_show(word)} has a separator at its end, and others have none: mend the line")
    top, below = words[:2], words[2:]
    usual = tuple(word.decode().lower() for word in top) in USUAL_COLUMNS and not set(top) & set(below)
    over_integers = not any(map(_INTEGER.fullmatch, top)) and all(map(_INTEGER.fullmatch, below))
    if below and tabbed and not usual and not over_integers and not set(top) & set(below):
        shown = _show(b" ".join(top))
        warn_user(
            f"{file}: the first row, {shown}, is read as a link; if it is a header, put # before it", GraphWarning
        )
    return below if below and (usual or over_integers) else words


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


def _as_int64(words: list[bytes]) -> Int64Array | None:
    if not all(map(_INTEGER.fullmatch, words)):
        return None
    numbers = [int(word) for word in words]
    if numbers and not (min(numbers) >= -(2**63) and max(numbers) < 2**63):
        return None
    return np.array(numbers, dtype=np.int64)


def _read(file: Path) -> bytes:
    """The unpacked UTF-8 text of the file without a byte-order mark, ending with a newline."""
    raw = read_bytes(file, "give the edge list inside it")
    for magic, (kind, tool) in _FOREIGN.items():
        if raw.startswith(magic):
            raise InputError(f"{file} is a {kind} archive; unpack it first ({tool}), or use gzip")
    raw = _as_utf8(file, unpacked(file, raw))
    if b"\r" in raw and b"\n" not in raw:
        raw = raw.replace(b"\r", b"\n")
    if not raw.strip():
        raise InputError(f"{file} is empty; an edge list has one link a line: two ids separated by a tab or spaces")
    if raw.startswith(b"%%MatrixMarket"):
        raise InputError(f"{file} is in MatrixMarket format; read it by scipy.io.mmread and pass the sparse matrix")
    return raw if raw.endswith(b"\n") else raw + b"\n"


def _as_utf8(file: Path, raw: bytes) -> bytes:
    """The text in UTF-8 without a byte-order mark; what is neither UTF-8 nor UTF-16 is taken for Latin-1."""
    try:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raw = raw.decode("utf-16").encode()
    except UnicodeError as error:
        raise InputError(f"{file} begins as UTF-16 text and is not ({error}); give an edge list as text") from None
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(f"{file}, line {line}: byte 0x00, which no text has; give an edge list, plain or gzip")
    if raw.isascii():
        return raw
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        warn_user(
            f"{file}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; the file is read as Latin-1",
            GraphWarning,
        )
        return raw.decode("latin-1").encode()
    return raw


def _show(field: bytes) -> str:
    text = field.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _passes(file: Path) -> bool:
    """Whether the file is a pipe or standard input, which can be read only once and is not recorded."""
    return str(file) == "/dev/stdin" or any(map(file.is_relative_to, ("/dev/fd", "/proc"))) or file.is_fifo()


def _short_name(file: Path) -> str:
    name = file.name
    while Path(name).suffix.lower() in _SUFFIXES:
        name = Path(name).stem
    return name
