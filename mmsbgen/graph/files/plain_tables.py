"""Plain tables, parsed in blocks by threads, without a Python object a row; other readers take what is not plain."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.processes import joined
from mmsbgen.graph.files import text_tables
from mmsbgen.graph.files.tokens import (
    Words,
    after_comments,
    block_ends,
    parse_integers,
    parse_numbers,
    split_columns,
)
from mmsbgen.graph.files.words import first_other, integers_or_words
from mmsbgen.graph.graph import GraphWarning, Int64Array
from mmsbgen.graph.reading_options import USUAL_COLUMNS, ReadingOptions, kept_links, weight_columns

__all__ = ["plain_arcs", "plain_columns", "plain_ends", "plain_words"]

Floats = NDArray[np.float64]
Chosen = Callable[[list[text_tables.Row]], tuple[int, tuple[int, ...]]]
#: Bytes by whose rows the kind of a table is found.
_SAMPLE = 1 << 16
#: The begin of a line that may be a comment.
_COMMENT = re.compile(rb"\n[^!-~]*[#%]")
#: Blanks of Python that are none in this module.
_BLANKS = [chr(code) for code in range(ord(" ") - 4, 0x3001) if chr(code).isspace() and chr(code) != " "]


def plain_columns(
    text: bytes, begin: int, mark: str | None, width: int, at: Sequence[int]
) -> tuple[Int64Array, Int64Array, Floats | None] | None:
    """The columns ``at``, two of integers and perhaps one of numbers, of lines with ``width`` fields from ``begin`` on.

    ``mark`` separates the fields; None stands for blanks.  None is returned where a line or a field is not plain: other
    readers take most quotes and blanks beside fields, and integers that are not in their shortest form.
    """
    parsers = tuple(zip(at, (parse_integers, parse_integers, parse_numbers), strict=False))
    if (found := _parsed_columns(text, begin, mark, width, parsers)) is None:
        return None
    first, second, *values = found
    return first, second, values[0] if values else None


def _parsed_columns(
    text: bytes, begin: int, mark: str | None, width: int, parsers: Sequence[tuple[int, Callable[[Words], Any]]]
) -> tuple[NDArray[Any], ...] | None:
    """What the ``parsers`` find in their columns, in their order; None where one finds other words."""

    def parsed(ends: tuple[int, int]) -> tuple[Any, ...]:
        columns = split_columns(text[slice(*ends)], mark.encode() if mark else None, width)
        return tuple(_found(columns and parse(columns[place])) for place, parse in parsers)

    try:
        return joined(parsed, _blocks(text, begin))
    except ValueError:
        return None


def plain_words(
    text: bytes, begin: int, mark: str | None, width: int, at: Sequence[int]
) -> tuple[Words, Words, Floats | None] | None:
    """As :func:`plain_columns`, with two columns of words, none of them empty or with blanks at its ends."""
    kind = np.uint32 if len(text) < 1 << 32 else np.int64

    def parsed(ends: tuple[int, int]) -> tuple[Any, ...]:
        block = text[slice(*ends)]
        columns = split_columns(block, mark.encode() if mark else None, width)
        if columns is None or not _are_words(block, [columns[0], *(columns[place] for place in at[:2])]):
            raise ValueError("other than plain words")
        places = [edge for place in at[:2] for edge in (columns[place].starts, columns[place].ends)]
        values = [_found(parse_numbers(columns[place])) for place in at[2:]]
        return *((each + ends[0]).astype(kind) for each in places), *values

    try:
        *places, values = joined(parsed, _blocks(text, begin)) + (() if len(at) > 2 else (None,))
    except ValueError:
        return None
    return Words(text, *places[:2]), Words(text, *places[2:]), values


def _found(array: Any) -> Any:
    if array is None:
        raise ValueError("other than plain numbers")
    return array


def _blocks(text: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Begins and ends of blocks of whole lines, from ``begin`` on, without blank lines at the end."""
    last = len(text)
    while last > begin and text[text.rfind(b"\n", 0, last - 1) + 1 : last] in (b"\n", b"\r\n"):
        last = text.rfind(b"\n", 0, last - 1) + 1
    blocks = ((max(first, begin), min(end, last)) for first, end in block_ends(text))
    return ((first, end) for first, end in blocks if first < end)


def _are_words(block: bytes, columns: list[Words]) -> bool:
    text = block.decode()
    if any(blank in text for blank in _BLANKS):
        return False
    ink = np.frombuffer(block, np.uint8) > ord(" ")
    return all(np.all((each.starts < each.ends) & ink[each.starts] & ink[each.ends - 1]) for each in columns)


def plain_ends(
    text: bytes, delimiter: str | None, reading: ReadingOptions
) -> tuple[Int64Array | Words, NDArray[np.bool_] | None] | None:
    """As :func:`~mmsbgen.graph.files.text_tables.read_ends`, the ids ``[2 L]`` in order; None for other tables."""

    def chosen(rows: list[text_tables.Row]) -> tuple[int, tuple[int, ...]]:
        header, ends = text_tables.link_columns(rows, reading, "")
        weights = weight_columns(rows[0] if header else (), ends, reading)
        if len(weights) > 1 or (reading.threshold is not None and not weights):
            raise InputError("the other reader refuses it")
        return header, (*ends[:2], *(weights if reading.weights != "ignore" else []))

    if (found := _table(text, delimiter, chosen, _several_numbers)) is None:
        return None
    top, header, at, ends, values = found
    if values is None:
        return ends, None
    column = top[at[2]] if header else at[2] + 1
    return ends, kept_links(values, reading, f"column {column} of the table")


def _several_numbers(words: Words) -> bool:
    """Whether a word may be several numbers between blanks."""
    if b" " not in words.text:
        return False
    some = words.part(np.logical_and(*words.ends_in(b"+-.0123456789")))
    parts = (some.part(slice(first, first + _SAMPLE)) for first in range(0, len(some), _SAMPLE))
    return any(b" " in b"".join(part.words()) for part in parts)


def plain_arcs(
    text: bytes, delimiter: str | None, columns: Sequence[Any] | None, *, weights: str | None
) -> tuple[Int64Array | Words, Floats | None] | None:
    """As :func:`~mmsbgen.graph.files.text_tables.read_arcs`, the ids ``[2 A]`` in order; None for other tables."""

    def chosen(rows: list[text_tables.Row]) -> tuple[int, tuple[int, ...]]:
        if delimiter is None and columns is None:  # an edge list
            usual = tuple(word.lower() for word in rows[0][:2]) in USUAL_COLUMNS
            unclear = weights is not None and usual and not text_tables.is_weight(rows[0][-1], weights)
            if unclear or len(rows[0]) not in ((2, 3) if weights is None else (3,)) or b"," in text:
                raise InputError("the other reader refuses it")
            return int(usual), (0, 1) if weights is None else (0, 1, 2)
        header, ends = text_tables.arc_columns(rows, columns, weights=weights)
        return header, ends if weights is not None else ends[:2]

    found = _table(text, delimiter, chosen, lambda words: False)
    return None if found is None else found[3:]


def _table(
    text: bytes, delimiter: str | None, chosen: Chosen, is_odd: Callable[[Words], bool]
) -> tuple[text_tables.Row, int, tuple[int, ...], Int64Array | Words, Floats | None] | None:
    """The first row, the number of header rows, the columns, both ends' ids in order, and the third column's numbers.

    ``chosen`` gives the columns and the number of header rows.  It gets the first rows, which decide as all rows do,
    since no word of a header is among integers; or, of words, those that decide.  ``is_odd`` tells words of a column
    that the other reader refuses.
    """
    begin = after_comments(text)
    if text.startswith(b"sep=") or _has_comments(text, begin):
        return None
    try:
        sample = text[begin : text.find(b"\n", begin + _SAMPLE) + 1 or len(text)].decode()
        rows = list(text_tables.rows_of(sample.rstrip("\n").split("\n"), delimiter))
        if len({len(row) for row in rows}) > 1:
            return None
        found = _integers(text, begin, delimiter, rows, chosen)
        found = found or _words(text, begin, delimiter, rows[0], chosen, is_odd)
        return None if found is None else (rows[0], *found)
    except (InputError, UnicodeDecodeError):
        return None  # the other reader tells it


def _has_comments(text: bytes, begin: int) -> bool:
    """Whether there may be comments from ``begin`` on."""
    if text.find(b"#", begin) < 0 and text.find(b"%", begin) < 0:
        return False
    found = _COMMENT.match(b"\n" + text[begin : begin + _SAMPLE]) or _COMMENT.search(text, begin)
    return found is not None or text.find(b" #", begin) >= 0


def _integers(
    text: bytes, begin: int, delimiter: str | None, rows: list[text_tables.Row], chosen: Chosen
) -> tuple[int, tuple[int, ...], Int64Array | Words, Floats | None] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        try:
            header, at = chosen(rows)
        except (InputError, GraphWarning):
            return None  # of words, all rows decide
    begin = text.find(b"\n", begin) + 1 if header else begin
    is_empty = next(_blocks(text, begin), None) is None
    found = None if is_empty else plain_columns(text, begin, delimiter, len(rows[0]), at)
    return None if found is None else (header, at, _in_turn(*found[:2]), found[2])


def _in_turn(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """The elements of two arrays ``[L]`` in turn, ``[2 L]``."""
    return np.stack([first, second], axis=1).reshape(-1)


def _words(
    text: bytes,
    begin: int,
    delimiter: str | None,
    top: text_tables.Row,
    chosen: Chosen,
    is_odd: Callable[[Words], bool],
) -> tuple[int, tuple[int, ...], Int64Array | Words, Floats | None] | None:
    """As :func:`_table`; raises InputError for what the other reader refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        _, at = chosen([top, top])  # which columns have the ends does not depend on the rows below
        found = plain_words(text, begin, delimiter, len(top), at[:2])
        if found is None or len(found[0]) < 2:
            return None
        deciding = [top, *_telling(found[:2], top, at)]
        header, at = chosen(deciding)
    below = text.find(b"\n", begin) + 1 if header else begin
    values = None
    if len(at) > 2:
        numbers = _parsed_columns(text, below, delimiter, len(top), [(at[2], parse_numbers)])
        if numbers is None:
            return None
        (values,) = numbers
    first, second = (words.part(slice(header, None)) for words in found[:2])
    if is_odd(first) or is_odd(second):
        return None
    chosen(deciding)  # warns
    ends = Words(text, _in_turn(first.starts, second.starts), _in_turn(first.ends, second.ends))
    return header, at, integers_or_words(ends), values


def _telling(columns: Sequence[Words], top: text_tables.Row, at: Sequence[int]) -> Iterator[text_tables.Row]:
    """Rows with the words of two ``columns`` at their places ``at``, and nothing elsewhere.

    These are the second row, and the first ones below ``top`` with a word that is no integer, and with each word of it.
    """
    found = {1}
    for words in (each.part(slice(1, None)) for each in columns):
        other = first_other(words)
        found |= set() if other is None else {other + 1}
        found |= {int(place) + 1 for column in at[:2] for place in words.places_of(top[column].encode())[:1]}
    for place in sorted(found):
        row = [""] * len(top)
        for column, words in zip(at, columns, strict=False):
            row[column] = words.part(slice(place, place + 1)).words()[0].decode()
        yield row
