"""Reads users' files, plain or gzip, with errors that name the file and the remedy.

What a file takes of the memory is checked before it is taken: the bytes while they are unpacked, and the fields before
objects are made of them.
"""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mmsbgen.base import host_memory
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import readable

_PART = 1 << 20
_BLOCK = 1 << 22
_LINE_END = ord("\n")
_SEPARATORS = b" \t\n\r\v\f,;|"
_REMEDY = "check that it is the right file, or free some memory"


def read_unpacked(file: Path, in_directory: str = "give a file in it", share: int = 4) -> bytes:
    """The content of a file or pipe, decompressed if it is gzip.

    Args:
        file: The path.
        in_directory: The advice in the message for a directory.
        share: Only content of at most one ``share``-th of the memory left is read, as its reader needs more than that.

    Raises:
        InputError: The file cannot be read, is a damaged gzip file, or has too large a content.
    """
    with _errors(file, in_directory), file.open("rb") as opened:
        return _content(file, opened, share)


def read_lines(file: Path, first: int, stop: int, readers: int = 1, share: int = 4) -> bytes:
    """The part of a plain file after the line that byte ``first`` is in, up to the end of the one that ``stop`` is in.

    At byte 0 it begins with the first line.  Ranges that follow each other give every line once.  Each of ``readers``
    reads such a part.

    Raises:
        InputError: As :func:`read_unpacked`.
    """
    left, source = host_memory.available_host_memory()
    if (stop - first) * readers * share > left:
        raise _too_much(f"{file} has more than", left // share, left, source)
    found = io.BytesIO()  # its value is not copied
    with _errors(file, "give a file in it"), file.open("rb") as opened:
        opened.seek(first)
        if first:
            opened.readline()
        while opened.tell() < stop and (part := opened.read(min(_PART, stop - opened.tell()))):
            found.write(part)
        if opened.tell() == stop:
            found.write(opened.readline())
    return found.getvalue()


def _too_much(what: str, most: int, left: int, source: str) -> InputError:
    return InputError(f"{what} {readable(most)}, too much to read, as {source} leaves {readable(left)}: {_REMEDY}")


@contextmanager
def _errors(file: Path, in_directory: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file} is a damaged or cut-off gzip file ({error}); fetch it again") from error
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path") from None
    except ValueError as error:
        raise InputError(f"{str(file)!r} can be no path ({error}); check it") from None
    except IsADirectoryError:
        raise InputError(f"{file} is a directory; {in_directory}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; check the path and its permissions") from error


def _content(file: Path, opened: IO[bytes], share: int) -> bytes:
    left, source = host_memory.available_host_memory()
    most = left // share

    def whole(stream: IO[bytes] | gzip.GzipFile, what: str, begin: bytes = b"") -> bytes:
        found = io.BytesIO()  # its value is not copied
        found.write(begin)
        while part := stream.read(_PART):
            if found.tell() + len(part) > most:
                raise _too_much(f"{file} {what}", most, left, source)
            found.write(part)
        return found.getvalue()

    begin = opened.read(2)
    if begin != b"\x1f\x8b":
        return whole(opened, "has more than", begin)
    if opened.seekable():
        opened.seek(0)
    else:
        opened = io.BytesIO(whole(opened, "has more than", begin))
    with gzip.GzipFile(fileobj=opened) as stream:
        return whole(stream, "unpacks to more than")


def check_name(path: Path) -> None:
    """Raise InputError for a name that no file can have."""
    try:
        path.lstat()
    except ValueError as error:
        raise InputError(f"{str(path)!r} can be no path ({error}); check it") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = str(path)
            raise InputError(
                f"{name[:40]}... of {len(name)} characters: {error.strerror}; give a shorter name"
            ) from None


def most_fields(content: bytes) -> int:
    """The number of fields between blanks, line ends, commas, semicolons and bars, or of lines where these are more."""
    import numpy as np  # not for those who only check a name

    from mmsbgen.base.processes import side_by_side

    is_ink = np.ones(256, np.bool_)
    is_ink[list(_SEPARATORS)] = False

    def counted(first: int) -> tuple[int, int]:
        block = np.frombuffer(content, np.uint8, min(_BLOCK, len(content) - first), first)
        ink, before = is_ink[block], first > 0 and is_ink[content[first - 1]]
        begins = int(np.count_nonzero(ink[1:] & ~ink[:-1])) + int(ink[0] and not before)
        return begins, int(np.count_nonzero(block == _LINE_END))

    fields, lines = 0, 0
    for begins, ends in side_by_side(counted, range(0, len(content), _BLOCK)):
        fields, lines = fields + begins, lines + ends
    return max(fields, lines)


def need_memory(file: Path, size: int) -> None:
    """Raise InputError if ``size`` bytes, which reading ``file`` takes, are more than the memory left."""
    left, source = host_memory.available_host_memory()
    if size > left:
        raise InputError(
            f"{file} takes about {readable(size)} to read, and {source} leaves {readable(left)}: {_REMEDY}"
        )


def read_text(file: Path, form: str, field_bytes: int, in_directory: str = "give a file in it") -> str:
    """The text of a file, plain or gzip, each field of which takes ``field_bytes`` of memory while it is read.

    The text is UTF-8, or UTF-16 with a byte-order mark.  Raises InputError as :func:`read_unpacked` and
    :func:`need_memory` do, and for what is no such text; ``form`` is the remedy.
    """
    raw = read_unpacked(file, in_directory)
    need_memory(file, field_bytes * most_fields(raw))
    encoding = "UTF-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "UTF-8"
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: byte {error.start} (0x{raw[error.start]:02x}) is not {encoding} text; {form}, plain or gzip"
        ) from None
    if "\0" in text:
        raise InputError(f"{file} has a zero byte and is no text; {form}, plain or gzip")
    return text


def has_suffix(file: Path, *suffixes: str) -> bool:
    """Whether one of ``suffixes`` is among the last two of a file's name, as in ``.CSV.gz``."""
    return not {suffix.lower() for suffix in file.suffixes[-2:]}.isdisjoint(suffixes)


def csv_rows(text: str, file: Path) -> list[list[str]]:
    """The fields of the rows of a table, which may be quoted, without blank rows and comments.

    Tabs, semicolons or commas separate, of which the first row has some, or else blanks.  Raises InputError for a field
    whose quotes are not closed.
    """
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(lines, "")
    delimiter = next((mark for mark in "\t;," if mark in first), " ")
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InputError(f"{file} is no table: {error}; close every quote, and double those within a field") from None
    stripped = ([field.strip() for field in row] for row in rows)
    return [row for row in stripped if any(row) and not row[0].startswith("#")]
