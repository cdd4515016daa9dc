"""Plain tables whose ids are integers: parsed in blocks by threads, without a Python object a row."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.processes import joined, side_by_side
from mmsbgen.graph.files import text_tables
from mmsbgen.graph.files.tokens import after_comments, block_ends, parse_decimals, parse_integers, split_columns
from mmsbgen.graph.graph import GraphWarning, Int64Array
from mmsbgen.graph.reading_options import ReadingOptions, kept_links

__all__ = ["plain_columns", "plain_words", "read_arc_numbers", "read_end_numbers"]

Floats = NDArray[np.float64]
#: Bytes by whose rows the kind of a table is found.
_SAMPLE = 1 << 16


def plain_columns(
    text: bytes, begin: int, mark: str | None, width: int, at: Sequence[int]
) -> tuple[Int64Array, Int64Array, Floats | None] | None:
    """The columns ``at``, two of integers and perhaps one of numbers, of lines with ``width`` fields from ``begin`` on.

    ``mark`` separates the fields; None stands for blanks.  None is returned where a line or a field is not plain: other
    readers take quotes, blanks beside fields, and integers that are not in their shortest form.
    """
    parsers = (parse_integers, parse_integers, parse_decimals)[: len(at)]

    def parsed(ends: tuple[int, int]) -> tuple[Any, ...]:
        columns = split_columns(text[slice(*ends)], mark.encode() if mark else None, width)
        found = tuple(columns and parse(columns[place]) for place, parse in zip(at, parsers, strict=True))
        if any(each is None for each in found):
            raise ValueError("other than plain numbers")
        return found

    try:
        first, second, *values = joined(parsed, _blocks(text, begin))
    except ValueError:
        return None
    return first, second, values[0] if values else None


def _blocks(text: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Begins and ends of blocks of whole lines, from ``begin`` on."""
    return ((max(first, begin), end) for first, end in block_ends(text) if end > begin)


def plain_words(
    text: bytes, begin: int, mark: str, width: int, at: Sequence[int]
) -> tuple[list[str], list[str], Floats | None] | None:
    """As :func:`plain_columns`, with two columns of words in ASCII, none of them empty or with blanks at its ends."""
    words: tuple[list[str], list[str]] = [], []

    def parsed(ends: tuple[int, int]) -> tuple[list[list[str]], Floats | None] | None:
        block = text[slice(*ends)]
        columns = split_columns(block, mark.encode(), width) if block.isascii() else None
        if columns is None:
            return None
        buffer, chosen = np.frombuffer(block, np.uint8), [columns[place] for place in at]
        values = parse_decimals(chosen[2]) if len(at) > 2 else None
        blank = buffer <= ord(" ")
        odd = [
            (each.starts == each.ends) | blank[each.starts] | blank[each.ends - 1] for each in (columns[0], *chosen[:2])
        ]
        if (values is None and len(at) > 2) or np.any(odd):
            return None
        whole = block.decode("ascii")
        ranges = (zip(each.starts.tolist(), each.ends.tolist(), strict=True) for each in chosen[:2])
        return [[whole[a:b] for a, b in each] for each in ranges], values

    numbers = []
    for part in side_by_side(parsed, _blocks(text, begin)):
        if part is None:
            return None
        for every, some in zip(words, part[0], strict=True):
            every += some
        numbers.append(part[1])
    values = np.concatenate([each for each in numbers if each is not None]) if len(at) > 2 else None
    return *words, values


def read_end_numbers(
    text: bytes, delimiter: str | None, reading: ReadingOptions
) -> tuple[Int64Array, NDArray[np.bool_] | None] | None:
    """As :func:`~mmsbgen.graph.files.text_tables.read_ends`, the ids ``[2 L]`` in order; None for other tables."""

    def chosen(rows: list[text_tables.Row]) -> tuple[int, tuple[int, ...]]:
        header, ends = text_tables.link_columns(rows, reading, "")
        weights = text_tables.weight_columns(rows[0], header, ends, reading)
        if len(weights) > 1 or (reading.threshold is not None and not weights):
            raise InputError("the other reader refuses it")
        return header, (*ends[:2], *(weights if reading.weights != "ignore" else []))

    if (found := _numbers(text, delimiter, chosen)) is None:
        return None
    place, first, second, values = found
    kept = None
    if values is not None and reading.threshold is None:
        odd = [np.format_float_positional(value, trim="-") for value in values[values != 1][:1]]
        kept_links(odd, reading, f"column {place}")
    elif values is not None:
        kept = kept_links(values, reading, f"column {place}")
    return np.stack([first, second], axis=1).reshape(-1), kept


def read_arc_numbers(
    text: bytes, delimiter: str | None, columns: Sequence[Any] | None, *, weights: str | None
) -> tuple[Int64Array, Int64Array, Floats | None] | None:
    """As :func:`~mmsbgen.graph.files.text_tables.read_arcs`, as numbers; None for other tables."""

    def chosen(rows: list[text_tables.Row]) -> tuple[int, tuple[int, ...]]:
        if delimiter is None and columns is None:  # an edge list
            if len(rows[0]) not in ((2, 3) if weights is None else (3,)):
                raise InputError("the other reader refuses it")
            return 0, (0, 1) if weights is None else (0, 1, 2)
        header, ends = text_tables.arc_columns(rows, columns, weights=weights)
        return header, ends if weights is not None else ends[:2]

    found = _numbers(text, delimiter, chosen)
    return None if found is None else found[1:]


def _numbers(
    text: bytes, delimiter: str | None, chosen: Callable[[list[text_tables.Row]], tuple[int, tuple[int, ...]]]
) -> tuple[int | str, Int64Array, Int64Array, Floats | None] | None:
    """The name or number of the third column, and the columns that ``chosen`` gives with the number of header rows.

    It gets the first rows.  They decide as all rows do, since no word of a header is among integers.
    """
    begin = after_comments(text)
    if text.startswith(b"sep=") or max(text.find(b"#", begin), text.find(b"%", begin)) >= 0:
        return None
    try:
        sample = text[begin : text.find(b"\n", begin + _SAMPLE) + 1 or len(text)].decode()
        rows = list(text_tables.rows_of(sample.rstrip("\n").split("\n"), delimiter))
        if len({len(row) for row in rows}) > 1:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("error", GraphWarning)
            header, at = chosen(rows)
    except (InputError, GraphWarning, UnicodeDecodeError):
        return None  # the other reader tells it
    if header:
        begin = text.find(b"\n", begin) + 1
    if begin == len(text) or (found := plain_columns(text, begin, delimiter, len(rows[0]), at)) is None:
        return None
    place = 0 if len(at) < 3 else rows[0][at[2]] if header else at[2] + 1
    return place, *found
