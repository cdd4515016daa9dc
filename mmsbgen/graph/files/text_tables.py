"""Links from text with columns: CSV, TSV and their like.

Delimiter, header and the two columns of ids are found from the content.  If more than one reading is possible, the file
is refused, and the message shows the first rows as they were understood.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.id_text import with_point
from mmsbgen.graph.files.tokens import after_comments
from mmsbgen.graph.graph import GraphWarning
from mmsbgen.graph.reading_options import (
    USUAL_COLUMNS,
    WEIGHT_NAMES,
    ReadingOptions,
    kept_of_columns,
    usual_columns,
    weight_columns,
)

_MARKS = {",": "commas", ";": "semicolons", "|": "bars", "\t": "tabs"}
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
#: A line as Python writes a pair or a list.
_IN_BRACKETS = re.compile(r"\s*[(\[].*[)\]],?\s*")
#: Quoted ids separated by blanks; they may have commas.
_ONLY_QUOTED = re.compile(r'\s*"[^"]*"( +"[^"]*")+\s*')
_ATTRIBUTES = re.compile(r"\S+\s+\S+\s+\{.*\}")
#: A first line by which a file tells Excel the delimiter.
_EXCEL = re.compile(r"sep=([,;|\t])\r?\n")
_SAMPLE_BYTES, _SAMPLE_LINES = 1 << 16, 200
_SHOWN_ROWS = 3

Row = list[str]


def delimiter_of(file: Path, text: bytes) -> str | None:
    """As :func:`_delimiter`, by the begin of the ``text`` of a file, which errors name."""
    first = after_comments(text)
    begin = text[first : text.find(b"\n", first + _SAMPLE_BYTES) + 1 or len(text)]
    try:
        return _delimiter(begin.decode("utf-8"), is_csv=".csv" in file.name.lower())
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _delimiter(text: str, *, is_csv: bool) -> str | None:
    """The delimiter of a table, or None for ids that are separated by blanks.

    ``text`` is the begin of a file, in whole lines.  ``is_csv`` says that the file's name ends in ``.csv``.

    Raises:
        InputError: If more than one delimiter divides all lines into as many columns, or all lines are in brackets.
    """
    if excel := _EXCEL.match(text):
        return excel[1]
    lines = list(islice(_lines(text), _SAMPLE_LINES))
    if lines and all(map(_IN_BRACKETS.fullmatch, lines)):
        raise InputError(f"every line is in brackets, such as {lines[0]!r}: remove them, or pass the pairs from Python")
    if lines and all(map(_ONLY_QUOTED.fullmatch, lines)):
        return " "
    # With attributes behind the ids, as networkx writes them, commas separate those.
    if not any(mark in text for mark in (*_MARKS, '"')) or all(map(_ATTRIBUTES.fullmatch, lines)):
        return None
    widths = {mark: {len(row) for row in rows_of(lines, mark)} for mark in _MARKS}
    even = [mark for mark, found in widths.items() if len(found) == 1 and found != {1}]
    blanks = {len(re.split(r"\s#", line)[0].split()) for line in lines} == {2}
    if "\t" in even:
        # Tabs around ids without blanks are read by the faster reader of plain edge lists.
        quoted = any(word.startswith('"') for line in lines for word in line.split())
        return None if blanks and not quoted else "\t"
    if lines and all(any(word.startswith('"') for word in line.split()) for line in lines) and not even:
        return " "  # as R writes tables
    if blanks and not is_csv and not any(re.search(r"[,;|]\s|\s[,;|]", line) for line in lines):
        if not even:
            return None
        words = ", ".join(_MARKS[mark] for mark in even)
        raise InputError(
            f"it is not clear whether blanks or {words} separate the columns of {lines[0]!r}; if {words} do, rename "
            "the file to .csv"
        )
    if len(even) > 1:
        words = " or ".join(_MARKS[mark] for mark in even)
        raise InputError(
            f"it is not clear whether {words} separate the columns of {lines[0]!r}; quote ids with such signs"
        )
    if even:
        return even[0]
    present = [mark for mark in ",;|" if all(mark in line for line in lines)]
    return present[0] if len(present) == 1 else None


def read_ends(text: str, delimiter: str | None, reading: ReadingOptions) -> tuple[Row, Row, NDArray[np.bool_] | None]:
    """The ids ``[L]`` and ``[L]`` of the two ends of every row, as they are written, and which rows are links.

    ``delimiter`` None stands for blanks.  What weights keep is as in :func:`~mmsbgen.graph.reading_options.kept_links`.

    Raises:
        InputError: For rows of different lengths, unclear columns, weights other than 1, and missing ids.
    """
    rows = _even_rows(text, delimiter)
    shown = _shown(rows)
    header, ends = link_columns(rows, reading, shown)
    body = rows[header:]
    weights = [
        (rows[0][at] if header else at + 1, [with_point(row[at]) for row in body])
        for at in weight_columns(rows[0] if header else (), ends, reading)
    ]
    kept = kept_of_columns(weights, reading, "the table")
    first, second = ([row[end] for row in body] for end in ends[:2])
    comment = next((word for word in (*first, *second) if " #" in word), None)
    if comment is not None:
        raise InputError(f"{comment!r} may end in a comment; put comments of a table on lines of their own")
    mixed = next(
        (word for word in (*first, *second) if " " in word and all(map(_NUMBER.fullmatch, word.split()))), None
    )
    if mixed is not None:
        raise InputError(f"{mixed!r} in one column is several numbers; separate all columns by the same sign. {shown}")
    _need_ids(body, ends)
    return first, second, kept


def link_columns(rows: list[Row], reading: ReadingOptions, shown: str) -> tuple[int, tuple[int, ...]]:
    """Number of header rows, and the columns of the two ends."""
    return _found_columns(rows, shown) if reading.columns is None else _named_columns(rows, reading.columns, shown)


def read_arcs(
    text: str, delimiter: str | None, columns: Sequence[Any] | None, *, weights: str | None
) -> tuple[Row, Row, Row]:
    """The ids ``[A]`` of both ends of every row and, with ``weights``, the text of its weight.

    Without ``columns`` the ends have a usual pair of names, or else are the first two columns, without a header.  If
    ``columns`` does not name it, the weight is in the column that ``weights`` names; of a table without a header and
    without ``columns``, it is the third column.

    Raises:
        InputError: For rows of different lengths, unclear columns and missing ids.
    """
    rows = _even_rows(text, delimiter)
    header, ends = arc_columns(rows, columns, weights=weights)
    body = rows[header:]
    _need_ids(body, ends)
    first, second = ([row[end] for row in body] for end in ends[:2])
    return first, second, [with_point(row[ends[2]]) for row in body] if weights is not None else []


def arc_columns(rows: list[Row], columns: Sequence[Any] | None, *, weights: str | None) -> tuple[int, tuple[int, ...]]:
    """Number of header rows, and the columns of the two ends and, with ``weights``, of the weight."""
    ends: tuple[int, ...]
    if columns is not None:
        header, ends = _named_columns(rows, columns, _shown(rows))
    else:
        header, ends = next(((1, usual) for usual in usual_columns(rows[0])), (0, (0, 1)))
    names = [name.lower() for name in rows[0]]
    others = [at for at in range(len(names)) if at not in ends]
    if weights is not None and len(ends) < 3:
        called = [at for at in others if is_weight(names[at], weights)] if header else others if columns is None else []
        if len(called) != 1:
            raise InputError(f"it is not clear which column has the weights: give --columns A,B,W. {_shown(rows)}")
        ends = (*ends, called[0])
    elif columns is None and not header:
        found = _has_header([row[:2] for row in rows])
        if found is None or len(others) > 1 or len(names) < 2:
            raise InputError(
                f"it is not clear which columns are the two ends of an arc; name them: {_REMEDY}. {_shown(rows)}"
            )
        header = int(found)
    return header, ends


def is_weight(name: str, weights: str) -> bool:
    """Whether a column of this name has the weights that are called ``weights``."""
    return name.lower() in (WEIGHT_NAMES if weights == "weight" else (weights.lower(),))


def _need_ids(rows: list[Row], ends: Sequence[int]) -> None:
    for row in rows:
        if not (row[ends[0]] and row[ends[1]]):
            raise InputError(
                f"the row {row} lacks an id; fill it in, or delete the row: --vertices FILE adds vertices without links"
            )


def _even_rows(text: str, delimiter: str | None) -> list[Row]:
    """The rows of a table; raises InputError if there is none, or if rows differ in length."""
    text = text[excel.end() :] if (excel := _EXCEL.match(text)) else text
    lines = list(_lines(text))
    if delimiter is not None:
        _refuse_torn(lines, delimiter)
        _refuse_unclear_comments(text[text.find(lines[0]) :] if lines else "", delimiter)
    rows = list(rows_of(lines, delimiter))
    if delimiter is not None:  # spreadsheets write empty rows, and a delimiter behind the last cell
        rows = [row for row in rows if any(row)]
        if len(rows) > 1 and all(len(row) == len(rows[0]) + 1 and not row[-1] for row in rows[1:]):
            rows = [rows[0], *(row[:-1] for row in rows[1:])]
    if not rows:
        raise InputError("there is no link; give at least one pair of ids")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"row {number} has {len(row)} columns and the first has {len(rows[0])}; give one link a row. "
                f"{_shown(rows)}"
            )
    return rows


def _refuse_torn(lines: list[str], delimiter: str) -> None:
    """Raise InputError for the first of ``lines`` whose quotes are not closed in it: lines below would belong to it."""
    for line in lines:
        if '"' in line and (line.count('"') % 2 or len(list(rows_of([line, ","], delimiter))) < 2):
            raise InputError(
                f"{_cut(line)!r} has a quote that is not closed; a row must be one line: mend or delete it"
            )


def _refuse_unclear_comments(text: str, delimiter: str) -> None:
    """Raise InputError for comments that may be links."""
    link = next((line for line in text.split("\n") if line.startswith(("#", "%")) and delimiter in line), None)
    if link is not None:
        raise InputError(
            f"{_cut(link)!r} is a comment by its first sign, and may be a link; quote its first id, or delete the line"
        )


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and stripped[0] not in "#%":
            yield line.strip("\r ")


def rows_of(lines: Iterable[str], delimiter: str | None) -> Iterator[Row]:
    """The fields of ``lines``; raises InputError for what is no row."""
    if delimiter is None:
        yield from (re.split(r"\s#", line)[0].split() for line in lines)
        return
    try:
        for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True):
            yield [word.strip() for word in row]
    except csv.Error as error:
        raise InputError(f"{error}; mend the line") from None


def _found_columns(rows: list[Row], shown: str) -> tuple[int, tuple[int, ...]]:
    """Number of header rows, and the columns of the two ends."""
    usual = usual_columns(rows[0])
    may_be_ids = len(rows[0]) == 2 and any(word in rows[0] for row in rows[1:] for word in row)
    if len(usual) == 1 and len(rows) > 1 and not may_be_ids:
        return 1, usual[0]
    if len(usual) == 1 and len(rows) == 1:
        raise InputError(
            "the only row is a header by its names: put links below it; if it is a link, give --columns 1,2"
        )
    if len(rows[0]) != 2:
        raise InputError(f"it is not clear which columns are the two ends of a link; name them: {_REMEDY}. {shown}")
    if (header := _has_header(rows)) is None:
        raise InputError(
            f"it is not clear whether the first row is a header or a link. If it is a link, give --columns 1,2. If it "
            f"is a header, give its names or delete it. {shown}"
        )
    return int(header), (0, 1)


def _has_header(rows: list[Row]) -> bool | None:
    """Whether the first of ``rows`` of two ids is a header; None if that is not clear."""
    top, body = rows[0], rows[1:]
    if top == ["0", "1"] and body:
        return None  # the names that pandas gives to columns without names
    if all(map(_NUMBER.fullmatch, top)):
        return False
    if body and all(_INTEGER.fullmatch(word) for row in body for word in row):
        return None if any(map(_INTEGER.fullmatch, top)) else True
    ids = {word for row in body for word in row}
    return False if any(word in ids for word in top) else None


def _named_columns(rows: list[Row], columns: Sequence[Any], shown: str) -> tuple[int, tuple[int, ...]]:
    names = rows[0]
    ends = [str(column) for column in columns]
    numbers = [end for end in ends if end.isascii() and end.isdigit() and 1 <= int(end) <= len(names)]
    are_numbers = len(numbers) == len(ends)
    if all(names.count(end) == 1 for end in ends) and not are_numbers:
        return 1, tuple(map(names.index, ends))
    if are_numbers and not all(names) and any(end in names for end in ends):
        raise InputError(f"columns={columns!r} may be names or numbers; give the columns other names. {shown}")
    if are_numbers:
        at = [int(end) - 1 for end in ends]
        pairs = [[row[at[0]], row[at[1]]] for row in rows]
        usual = (names[at[0]].lower(), names[at[1]].lower()) in USUAL_COLUMNS
        if (header := usual or _has_header(pairs)) is None:
            warn_user(f"the first row, {pairs[0]}, is read as a link; if it is a header, give its names", GraphWarning)
        return int(header is True), tuple(at)
    odd = next((end for end in ends if names.count(end) != 1 and end not in numbers), ends[0])
    if all(end.isdecimal() for end in ends):
        raise InputError(f"there is no column {odd!r}: the table has {len(names)} columns. {shown}")
    several = f"there are several columns {odd!r}" if odd in names else f"there is no column {odd!r}"
    there = ", ".join(_cut(name) or '""' for name in names)
    usable = [name for name in names if name and "," not in name and names.count(name) == 1][:2]
    such = f"; name two, such as --columns {shlex.quote(','.join(usable))}" if len(usable) == 2 else ""
    raise InputError(f"{several}; the first row has {there}{such}. {shown}")


_REMEDY = "--columns A,B (columns=(A, B) in Python), by names of a header or, without one, by numbers from 1 on"


def _shown(rows: list[Row]) -> str:
    lines = ("  ".join(f"{at}: {_cut(word)!r}" for at, word in enumerate(row[:8], 1)) for row in rows[:_SHOWN_ROWS])
    return "Its first rows, as columns:\n  " + "\n  ".join(lines)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
