"""Vectorised tokenizer for edge lists, without a Python loop over lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.graph.graph import Int64Array

_NEWLINE, _RETURN, _HASH, _PERCENT, _MINUS, _POINT, _ZERO, _BLANK, _TAB, _QUOTE = (ord(c) for c in '\n\r#%-.0 \t"')

_INT64_MAX = np.uint64(2**63 - 1)
_MOST_DIGITS = 19  # of an int64; 19 nines still fit into uint64
#: Quotients of integers up to this by these powers of ten are the nearest double, as both are exact.
_EXACT, _POWERS = 2**53, np.array([float(10**places) for places in range(_MOST_DIGITS)])
#: The lowest 0 to 8 bytes of a number.
_BYTES = np.array([2 ** (8 * count) - 1 for count in range(9)], np.uint64)
#: Comments and blank lines in front.
_COMMENTS = re.compile(rb"(?:[ \t]*(?:[#%][^\n]*)?\r?\n)*")
#: Bytes of a block; in smaller ones threads mostly wait for each other.
BLOCK_BYTES = 1 << 21


def after_comments(text: bytes) -> int:
    """Where the comments and blank lines at the begin of a text end."""
    comments = _COMMENTS.match(text)
    return comments.end() if comments else 0


def block_ends(text: bytes) -> Iterator[tuple[int, int]]:
    """Begins and ends of blocks of whole lines."""
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + BLOCK_BYTES) + 1 or len(text)
        yield begin, end
        begin = end


@dataclass(frozen=True)
class Words:
    """Words of a text: ``starts`` and ``ends``, integers ``[T]``, delimit word t as ``text[starts[t]:ends[t]]``."""

    text: bytes
    starts: NDArray[Any]
    ends: NDArray[Any]

    @staticmethod
    def of(words: Sequence[bytes]) -> Words:
        """``words`` in a text of their own."""
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        ends = np.cumsum(sizes + 1) - 1
        return Words(b"\n".join([*words, b""]), ends - sizes, ends)

    def __len__(self) -> int:
        return int(self.starts.size)

    def words(self) -> list[bytes]:
        """All words as bytes, in order."""
        text = self.text
        return [text[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def and_more(self, more: Sequence[bytes]) -> Words:
        """The words with ``more`` behind them."""
        if not more:
            return self
        before, other = len(self.text), Words.of(more)
        starts, ends = np.append(self.starts, other.starts + before), np.append(self.ends, other.ends + before)
        return Words(self.text + other.text, starts, ends)

    def part(self, which: slice | NDArray[Any]) -> Words:
        """Some of the words."""
        return Words(self.text, self.starts[which], self.ends[which])

    def cut(self, which: slice) -> Words:
        """Some of the words, with the part of the text that has them."""
        starts, ends = self.starts[which], self.ends[which]
        begin, end = (int(starts.min()), int(ends.max())) if starts.size else (0, 0)
        return Words(self.text[begin : end + 1], starts - begin, ends - begin)

    def ends_in(self, signs: bytes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which words begin, and which end, with one of ``signs``; no word is empty."""
        among, buffer = np.zeros(256, np.bool_), np.frombuffer(self.text, np.uint8)
        among[list(signs)] = True
        return among[buffer[self.starts]], among[buffer[self.ends - 1]]

    def places_of(self, word: bytes) -> Int64Array:
        """Where ``word`` is, ascending."""
        buffer, found = np.frombuffer(self.text, np.uint8), np.flatnonzero(self.ends - self.starts == len(word))
        for at, byte in enumerate(word):
            found = found[buffer[self.starts[found] + at] == byte]
        return found

    def eights(self) -> Iterator[tuple[Int64Array, NDArray[np.uint64]]]:
        """Which words have more than 0, 8, 16, ... bytes, and the next 8 of each as a number; zeros follow its end."""
        text = self.text.ljust(8, b"\0")
        from_any: NDArray[np.uint64] = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))
        sizes, first = self.ends - self.starts, 0
        longer = np.flatnonzero(sizes)
        while longer.size:
            begins = self.starts[longer] + first
            at = np.minimum(begins, len(text) - 8)
            numbers = from_any[at]
            late = np.flatnonzero(begins > at)  # near the end of the text
            numbers[late] >>= (8 * (begins[late] - at[late])).astype(np.uint64)
            numbers &= _BYTES[np.minimum(sizes[longer] - first, 8)]
            yield longer, numbers
            first += 8
            longer = longer[sizes[longer] > first]


@dataclass(frozen=True)
class Fields(Words):
    """Fields of a block of text, without comments.

    ``lines`` (int64 ``[T]``, non-decreasing) is the line number of each field within the block, from 0.
    """

    lines: Int64Array
    n_lines: int

    def first_line_without_two(self) -> int | None:
        """Return the first line with one field or more than two; None if there is none."""
        if self.starts.size % 2 == 0:
            left, right = self.lines[0::2], self.lines[1::2]
            if np.array_equal(left, right) and bool(np.all(left[1:] > right[:-1])):
                return None
        counts = np.bincount(self.lines)
        return int(np.flatnonzero((counts != 0) & (counts != 2))[0])


def split_fields(text: bytes) -> Fields:
    """Split ``text``, which ends with a newline, at whitespace.

    A field that begins with ``#`` starts a comment, and so does ``%`` at the start of a line.
    """
    buffer = np.frombuffer(text, dtype=np.uint8)
    # The other five blanks, from the tab to the carriage return, follow each other; numbers below them wrap round.
    ink = (buffer - np.uint8(_TAB) > 4) & (buffer != _BLANK)
    edges = np.flatnonzero(ink[1:] != ink[:-1]) + 1
    if ink.size and ink[0]:
        edges = np.concatenate([[0], edges])
    starts, ends = edges[0::2], edges[1::2]
    newline = buffer == _NEWLINE
    last, n_lines = newline[ends], int(np.count_nonzero(newline))
    if np.count_nonzero(last) == n_lines:  # each line ends right behind a field
        lines = np.cumsum(last) - last
    else:
        lines = np.cumsum(newline, dtype=np.int32)[starts].astype(np.int64)
    fields = Fields(text, starts, ends, lines, n_lines)
    return _without_comments(fields, buffer[starts]) if b"#" in text or b"%" in text else fields


def split_columns(text: bytes, mark: bytes | None, width: int) -> list[Words] | None:
    """The columns of lines, the last of which ends, with ``width`` fields between ``mark``s, without it between blanks.

    Between marks, one blank before a field and quotes around it are no part of it.  None where a line has other fields,
    of text with other quotes, with line ends within fields, or with fields that Python's csv module refuses; and of
    text without marks and with quotes, ``#`` or ``%``.
    """
    if mark is None:
        if any(sign in text for sign in (b'"', b"#", b"%")):
            return None
        fields = split_fields(text)
        starts, ends = fields.starts, fields.ends
        if not np.array_equal(fields.lines, np.repeat(np.arange(fields.n_lines), width)):
            return None
    else:
        buffer = np.frombuffer(text, dtype=np.uint8)
        breaks = buffer == _NEWLINE
        ends, n_lines = np.flatnonzero(breaks | (buffer == ord(mark))), int(np.count_nonzero(breaks))
        if ends.size != width * n_lines or not breaks[ends[width - 1 :: width]].all():
            return None
        starts = np.concatenate([[0], ends[:-1] + 1])
        returns = buffer[ends[width - 1 :: width] - 1] == _RETURN
        ends[width - 1 :: width] -= returns
        if text.count(b"\r") != np.count_nonzero(returns) or (ends - starts).max(initial=0) > csv.field_size_limit():
            return None
        starts += (buffer[starts] == _BLANK) & (starts < ends)
        if b'"' in text:
            quoted = (buffer[starts] == _QUOTE) & (buffer[ends - 1] == _QUOTE) & (ends - starts > 1)
            if text.count(b'"') != 2 * np.count_nonzero(quoted):
                return None
            starts, ends = starts + quoted, ends - quoted
    return [Words(text, starts[at::width], ends[at::width]) for at in range(width)]


def _without_comments(fields: Fields, initials: NDArray[np.uint8]) -> Fields:
    lines = fields.lines
    leading = np.ones(lines.size, dtype=np.bool_)
    leading[1:] = lines[1:] != lines[:-1]
    opening = np.flatnonzero((initials == _HASH) | ((initials == _PERCENT) & leading))
    if opening.size == 0:
        return fields
    limit = np.full(fields.n_lines, lines.size, dtype=np.int64)
    # With repeated indices the last assignment wins; the reversed order keeps the first comment sign of each line.
    limit[lines[opening][::-1]] = opening[::-1]
    keep = np.arange(lines.size) < limit[lines]
    return Fields(fields.text, fields.starts[keep], fields.ends[keep], lines[keep], fields.n_lines)


def parse_integers(fields: Words) -> Int64Array | None:
    """Return the fields as int64 ``[T]``, or None if any is not an int64 in its shortest form.

    ``007``, ``+7`` and ``-0`` are not integers here, so that they are preserved as strings.
    """
    buffer = np.frombuffer(fields.text, dtype=np.uint8)
    starts, ends = fields.starts, fields.ends
    if starts.size == 0:
        return np.empty(0, dtype=np.int64)
    negative = buffer[starts] == _MINUS
    digits_at = starts + negative
    n_digits = ends - digits_at
    shortest, longest = int(n_digits.min()), int(n_digits.max())
    if shortest < 1 or longest > _MOST_DIGITS or np.any((buffer[digits_at] == _ZERO) & (ends - starts > 1)):
        return None
    # By places of the longest, from its first digit on; the others have zeros there.  The digits of all fields at once
    # would take far more memory.
    digits = np.concatenate([np.zeros(longest, dtype=np.uint8), buffer - np.uint8(_ZERO)])  # wraps round below "0"
    value, wrong = np.zeros(starts.size, dtype=np.uint64), np.zeros(starts.size, dtype=np.bool_)
    for place in range(longest):
        digit = digits[place:][ends]
        if place < longest - shortest:
            digit[n_digits < longest - place] = 0
        wrong |= digit > 9
        value *= np.uint64(10)
        value += digit
    if wrong.any() or np.any(value > _INT64_MAX + negative.astype(np.uint64)):
        return None
    signed = value.view(np.int64)
    return np.where(negative, -signed, signed) if negative.any() else signed


def parse_numbers(fields: Words) -> NDArray[np.float64] | None:
    """Return the fields as float64 ``[T]``, or None if any is no finite number."""
    if (short := _short_decimals(fields)) is not None:
        return short
    try:
        found = np.fromiter(map(float, fields.words()), np.float64, len(fields))
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _short_decimals(fields: Words) -> NDArray[np.float64] | None:
    """As :func:`parse_numbers`, several times as fast; None if any has more than digits, a minus and a point.

    None also if digits are too many to be told exactly here.
    """
    buffer = np.frombuffer(fields.text, dtype=np.uint8)
    if fields.starts.size == 0:
        return np.empty(0)
    negative = buffer[fields.starts] == _MINUS
    at, ends = fields.starts + negative, fields.ends
    if int((ends - at).max()) > _MOST_DIGITS:
        return None
    value, places, points = (np.zeros(at.size, dtype) for dtype in (np.uint64, np.int64, np.uint8))
    wrong = np.zeros(at.size, dtype=np.bool_)
    for _ in range(int((ends - at).max())):
        inside = at < ends
        byte = buffer[np.minimum(at, buffer.size - 1)]
        is_point = inside & (byte == _POINT)
        digit = byte - np.uint8(_ZERO)
        is_digit = inside & (digit <= 9)
        wrong |= inside & ~is_point & ~is_digit
        value = np.where(is_digit, value * np.uint64(10) + digit, value)
        places += is_digit & (points > 0)
        points += is_point
        at += 1
    n_digits = ends - fields.starts - negative - points
    if wrong.any() or (points > 1).any() or (n_digits < 1).any() or (value > _EXACT).any():
        return None
    found: NDArray[np.float64] = value / _POWERS[places]
    return np.where(negative, -found, found)
