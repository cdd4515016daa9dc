"""Ratings from files: CSV, TSV, MovieLens and LIBMF text, Matrix Market, SciPy and Parquet, plain or gzip."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import is_number, with_point
from mmsbgen.base.libraries import library
from mmsbgen.base.progress import stage
from mmsbgen.base.user_files import read_unpacked
from mmsbgen.graph.files.file_bytes import foreign_format, need_fields, text_lines
from mmsbgen.graph.files.matrix_files import matrix_market, npz_matrix
from mmsbgen.graph.files.plain_tables import plain_columns, plain_words
from mmsbgen.graph.files.tokens import Words
from mmsbgen.graph.files.words import first_other, integers_or_words
from mmsbgen.ratings.ratings import Duplicates, Ratings, numbered, of_columns

_USERS = ("user", "userid", "uid", "reviewer", "reviewerid", "customer", "customerid", "member", "memberid")
_THINGS = ["item", "movie", "film", "book", "product", "track", "song", "artist", "game", "anime", "business", "joke"]
_ITEMS = (*(f"{thing}{end}" for thing in _THINGS for end in ("id", "")), "iid", "isbn", "asin", "parentasin")
_RATINGS = ("rating", "ratings", "score", "stars", "overall", "value", "bookrating", "ratingvalue", "plays", "count")
_REMEDY = "name them: --columns USER,ITEM,RATING (as_ratings(..., columns=(...)) in Python), or number them from 1 on"
_EXAMPLE = "a file of ratings has lines such as 196,242,3: user, item, rating"
_SIGN = re.compile(rb"\S")


def read_ratings(
    path: str | os.PathLike[str], *, columns: Sequence[Any] | None = None, duplicates: Duplicates = "error"
) -> Ratings:
    """Read a file of ratings.

    Text has a rating a line, separated by commas, tabs, semicolons, bars, ``::`` or blanks.  Columns are found by the
    names of a header, such as ``userId``, ``movieId`` and ``rating``; without one they are the first three.

    Args:
        path: The file; ``.mtx``, ``.npz`` of SciPy and ``.parquet`` are recognised by their content.
        columns: Those of user, item and rating, by names of the header or by numbers from 1 on.
        duplicates: What several ratings of a user and an item are: an ``error``, or one by their ``mean`` or the
            ``last``.

    Raises:
        InputError: For a file that cannot be read, has no rating, or lines that are none; names file and line.
        MissingDependencyError: For Parquet without pyarrow.
    """
    users, items, values = _columns(Path(path), columns, 3)
    return of_columns(users, items, values, str(path), duplicates)


def read_pairs(path: str | os.PathLike[str], columns: Sequence[Any] | None = None) -> Ratings:
    """Read a file of pairs of user and item, all of them; ratings in it are not read.

    Words above integers are a header.  Raises as :func:`read_ratings`.
    """
    users, items, _ = _columns(Path(path), columns, 2)
    if any(isinstance(ids, Words) and _above_integers(ids) for ids in (users, items)):
        below = slice(1, None)
        users, items = (
            integers_or_words(ids.part(below)) if isinstance(ids, Words) else ids[below] for ids in (users, items)
        )
    if not len(users):
        raise InputError(f"{path} has no pair; give lines such as 196,242: user, item")
    (u, user_ids), (v, item_ids) = numbered(users, "users", str(path)), numbered(items, "items", str(path))
    return Ratings(u, v, np.full(u.size, np.nan), user_ids, item_ids, str(path))


def _columns(file: Path, columns: Sequence[Any] | None, wanted: int) -> tuple[Any, Any, Any]:
    with stage(f"reading {file.name}"):
        raw = read_unpacked(file, "give the file of ratings in it")
        if not raw or raw.isspace():
            raise InputError(f"{file} is empty; {_EXAMPLE}")
        kind = foreign_format(file, raw)
        if kind in ("mtx", "npz"):
            if columns is not None:
                raise InputError(f"{file} is a matrix, which has no columns {columns!r}: leave them out")
            matrix = matrix_market(file, raw) if kind == "mtx" else npz_matrix(file, raw)
            if kind == "mtx" and b" array " in raw[:80].lower():  # a dense one, whose zeros are ratings, too
                rows, columns_ = np.indices(matrix.shape).reshape(2, -1)
                return rows + 1, columns_ + 1, matrix.toarray().reshape(-1)
            first = int(kind == "mtx")
            return matrix.row.astype(np.int64) + first, matrix.col.astype(np.int64) + first, matrix.data
        if kind == "parquet":
            return _of_parquet(file, raw, columns, wanted)
        if kind:
            raise InputError(f"{file} is a file of kind {kind}, which has no ratings; {_EXAMPLE}")
        return _of_text(file, text_lines(file, raw), columns, wanted)


def _of_parquet(file: Path, raw: bytes, columns: Sequence[Any] | None, wanted: int) -> tuple[Any, Any, Any]:
    parquet, arrow = library("pyarrow.parquet", "Parquet files"), library("pyarrow", "Parquet files")
    try:
        table = parquet.read_table(arrow.BufferReader(raw))
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{file} is no whole Parquet file ({str(error).splitlines()[0]}); fetch it again") from None
    at = named_columns(list(table.column_names), columns, str(file), wanted)
    found = [table.column(place) for place in at]
    if any(each.null_count for each in found):
        raise InputError(f"{file} has rows without a value; leave them out")
    ids = [each.to_numpy() if str(each.type).startswith("int") else each.to_pylist() for each in found[:2]]
    return ids[0], ids[1], found[2].to_numpy() if wanted == 3 else None


def _bare(name: str) -> str:
    return re.sub(r"[\s_\-\"']", "", name.partition(":")[0].lower())


def named_columns(names: Sequence[str], columns: Sequence[Any] | None, where: str, wanted: int = 3) -> tuple[int, ...]:
    """The places of user, item and, if ``wanted`` is 3, rating among ``names``.

    Raises:
        InputError: If they cannot be told by their names, or ``columns`` has others.
    """
    if columns is not None:
        if len(columns) < wanted:
            raise InputError(f"columns={columns!r}: {_REMEDY}")
        return tuple(_place(names, column, where) for column in columns[:wanted])
    plain, found = [_bare(name) for name in names], []
    for among in (_USERS, _ITEMS, _RATINGS)[:wanted]:
        if (at := next((plain.index(name) for name in among if name in plain), None)) is None:
            raise InputError(f"{where} has the columns {', '.join(names)}; it is not clear which to use: {_REMEDY}")
        found.append(at)
    return tuple(found)


def _place(names: Sequence[str], column: Any, where: str) -> int:
    for among in (list(map(str, range(1, len(names) + 1))), list(names)):
        if str(column) in among:
            return among.index(str(column))
    raise InputError(f"{where} has no column {column!r}; there are {', '.join(names)}")


def _rows(file: Path, lines: list[str], begin: int, mark: str | None) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row below ``begin`` lines, and its first line: a quoted field may go on in the next."""
    if mark in (None, "::"):
        for number, line in enumerate(lines[begin:], begin + 1):
            yield number, [word.strip() for word in line.strip().split(mark)]
        return
    rows = csv.reader((f"{line.strip()}\n" for line in lines[begin:]), delimiter=mark, skipinitialspace=True)
    number = begin + 1
    try:
        for row in rows:
            count = begin + rows.line_num + 1 - number
            if count > 1 and "".join(lines[number - 1 : number - 1 + count]).count('"') % 2:
                raise InputError(
                    f"{file}, line {number}: a quoted field does not end within {count} lines; close it, or delete the "
                    "line"
                )
            yield number, [word.strip() for word in row]
            number += count
    except csv.Error as error:
        raise InputError(f"{file}, line {number}: {error}; close its quotes, or delete the line") from None


def _of_text(file: Path, text: bytes, columns: Sequence[Any] | None, wanted: int) -> tuple[Any, Any, Any]:
    lines = io.BytesIO(text)
    skipped, first = 0, ""
    for line in islice(lines, 1000):
        shown = line.decode().strip()
        if shown and shown[0] not in "#%":
            first = shown
            break
        skipped += 1
    if not first:
        raise InputError(f"{file} has no rating; {_EXAMPLE}")
    # In 7;12;4,5 the comma is of a number.
    mark = next((mark for mark in ("::", "\t", *sorted(",;|", key=first.count, reverse=True)) if mark in first), None)
    _, names = next(_rows(file, [*[""] * skipped, first], skipped, mark))
    header, at = _header(file, names, columns, wanted)
    begin, place = skipped + header, 0
    for _ in range(begin):
        place = text.find(b"\n", place) + 1 or len(text)
    if not _SIGN.search(text, place):
        raise InputError(f"{file} has a header and nothing below it; {_EXAMPLE}")
    return _plain(text, place, mark, len(names), at) or _words(file, text, mark, begin, at, len(names))


def _plain(text: bytes, begin: int, mark: str | None, width: int, at: tuple[int, ...]) -> tuple[Any, Any, Any] | None:
    """The columns from ``begin`` on, in blocks; None if some line is not plain."""
    if mark == "::":
        if b"\t" in text or b'"' in text:
            return None  # quotes mean nothing there
        text, begin, mark = text[begin:].replace(b"::", b"\t"), 0, "\t"
    if (numbers := plain_columns(text, begin, mark, width, at)) is not None:
        return numbers
    if mark is None or (words := plain_words(text, begin, mark, width, at)) is None:
        return None
    return integers_or_words(words[0]), integers_or_words(words[1]), words[2]


def _header(file: Path, names: list[str], columns: Sequence[Any] | None, wanted: int) -> tuple[int, tuple[int, ...]]:
    """Whether the first row is a header, and the places of the columns."""
    if len(names) < wanted:
        raise InputError(
            f"{file}: {len(names)} columns in the first row, {' '.join(names)[:80]!r}; "
            + (_EXAMPLE if wanted == 3 else "give lines such as 196,242: user, item")
        )
    plain = {_bare(name) for name in names}
    known = bool(plain & set(_USERS) and plain & set(_ITEMS))
    if columns is not None:
        at = named_columns(names, columns, str(file), wanted)
        by_name = any(str(column) != str(place + 1) for column, place in zip(columns, at, strict=False))
        return int(known or by_name or (wanted == 3 and not is_number(with_point(names[at[2]])))), at
    if known:
        return 1, named_columns(names, None, str(file), wanted)
    at = tuple(range(wanted))
    if wanted < 3 or is_number(with_point(names[2])):
        return 0, at
    return 1, named_columns(names, None, str(file), wanted)


def _words(
    file: Path, text: bytes, mark: str | None, begin: int, at: tuple[int, ...], width: int
) -> tuple[Any, Any, Any]:
    """The columns with ids as they are written; integers if all of a column are."""
    need_fields(file, text, "text")
    users, items, values = [], [], []
    lines = text.decode().split("\n")
    for number, row in _rows(file, lines, begin, mark):
        if not any(row):
            continue  # as spreadsheets write empty rows
        shown = lines[number - 1].strip()
        # After a last column of ratings, more is the rest of a number with a decimal comma, or a comma in an id.
        if len(row) <= max(at) or (len(at) == 3 and max(at) == width - 1 and any(row[width:])):
            raise InputError(
                f"{file}, line {number}: {len(row)} columns in {shown[:80]!r}, and the first row has {width}; mend or "
                "delete the line"
            )
        if not row[at[0]] or not row[at[1]]:
            raise InputError(f"{file}, line {number}: {shown[:80]!r} lacks an id; mend or delete the line")
        users.append(row[at[0]])
        items.append(row[at[1]])
        if len(at) == 3:
            values.append(_rating(file, number, row[at[2]]))
    user_ids, item_ids = (integers_or_words(Words.of([word.encode() for word in words])) for words in (users, items))
    return user_ids, item_ids, np.array(values, np.float64)


def _rating(file: Path, number: int, word: str) -> float:
    try:
        value = float(with_point(word))
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        remedy = "write its decimals after a point" if "," in word else "mend or delete the line"
        raise InputError(f"{file}, line {number}: the rating {word[:40]!r} is no finite number; {remedy}")
    return value


def _above_integers(words: Words) -> bool:
    """Whether all but the first of several words are integers."""
    return len(words) > 1 and first_other(words) == 0 and first_other(words.part(slice(1, None))) is None
