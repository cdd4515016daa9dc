"""Vectorised tokenizer for edge lists, without a Python loop over lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmsbgen.graph.graph import Int64Array

_NEWLINE, _HASH, _PERCENT, _MINUS, _ZERO, _BLANK, _TAB = (ord(c) for c in "\n#%-0 \t")

_INT64_MAX = np.uint64(2**63 - 1)
_MOST_DIGITS = 19  # of an int64; 19 nines still fit into uint64


@dataclass(frozen=True)
class Fields:
    """Fields of a block of text, without comments.

    ``starts`` and ``ends`` (int64 ``[T]``) delimit field t as ``text[starts[t]:ends[t]]``; ``lines``
    (int64 ``[T]``, non-decreasing) is the line number of each field within the block, from 0.
    """

    text: bytes
    starts: Int64Array
    ends: Int64Array
    lines: Int64Array
    n_lines: int

    def words(self) -> list[bytes]:
        """All fields as bytes, in order."""
        text = self.text
        return [text[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def first_line_without_two(self) -> int | None:
        """Return the first line with one field or more than two; None if there is none."""
        if self.starts.size % 2 == 0:
            left, right = self.lines[0::2], self.lines[1::2]
            if np.array_equal(left, right) and bool(np.all(left[1:] > right[:-1])):
                return None
        counts = np.bincount(self.lines)
        return int(np.flatnonzero((counts != 0) & (counts != 2))[0])

    def line(self, number: int) -> list[bytes]:
        """The fields of one line."""
        low, high = np.searchsorted(self.lines, [number, number + 1])
        return [self.text[a:b] for a, b in zip(self.starts[low:high], self.ends[low:high], strict=True)]


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
    before = np.cumsum(buffer == _NEWLINE, dtype=np.int32)
    fields = Fields(text, starts, ends, before[starts].astype(np.int64), int(before[-1]) if before.size else 0)
    return _without_comments(fields, buffer[starts]) if b"#" in text or b"%" in text else fields


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


def parse_integers(fields: Fields) -> Int64Array | None:
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
