"""Covers as SNAP writes them: one community a line, ids separated by tabs (or, read, by spaces)."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from mmsbgen.errors import InputError
from mmsbgen.files import read_bytes, unpacked
from mmsbgen.progress import Stage, stage

_FORM = "a cover has one community a line: ids separated by tabs or spaces"

#: As edge lists have them: of the blanks of other alphabets ids may be made.
_LINE_END, _WORD = re.compile(r"\r\n?|\n"), re.compile(r"[^ \t\n\r\v\f]+")
_NO_WORD = re.compile(r"^#|[\t\n\r\ud800-\udfff]|^\s*$")


def words_of(ids: npt.NDArray[Any]) -> list[str]:
    """The words by which vertices ``[N]`` stand in a file, in the order of ``ids``.

    Raises InputError for an id whose text is empty, begins with ``#`` or has a tab, the end of a line or a surrogate in
    it, and for ids of the same text.
    """
    words = list(map(str, ids.tolist()))
    if ids.dtype.kind == "i":
        return words
    odd = next(filter(_NO_WORD.search, words), None)
    if odd is not None:
        raise InputError(
            f"id {odd!r} cannot stand in a file of communities, which is UTF-8 and whose ids are separated by tabs and "
            "may not begin with #: give the vertex another id, or use a table or a picture of the graph instead"
        )
    word, count = Counter(words).most_common(1)[0] if words else ("", 0)
    if count > 1:
        raise InputError(
            f"{count} ids read {word!r} in a file of communities and could not be told apart: give the vertices ids "
            "whose texts differ, or use a table instead"
        )
    return words


def cover_text(words: Sequence[str], members: Iterable[npt.NDArray[Any]]) -> str:
    """A cover as text: a line for every array of vertex numbers in ``members``, by their ``words``."""
    return "".join("\t".join([words[vertex] for vertex in one.tolist()]) + "\n" for one in members)


def read_cover(path: str | os.PathLike[str]) -> list[list[str]]:
    """Read a cover from a file: its communities in the order of the lines, ids as they are written.

    The file is plain text or gzip (told by its first bytes).  A field that begins with ``#`` comments out the rest
    of its line; blank lines are passed over.  Communities that occur twice or have one member are kept; an id that
    occurs twice on a line is kept once.

    Raises InputError, naming file and remedy, when the file cannot be read, is damaged, is no UTF-8 text, has no
    community, or has ids with a comma or semicolon at an end, which are another separator.
    """
    file = Path(path)
    with stage(f"reading {file.name}", unit="lines") as told:
        return _read(file, told)


def _read(file: Path, told: Stage) -> list[list[str]]:
    communities = []
    lines = _LINE_END.split(_text(file))
    for number, line in enumerate(lines, start=1):
        told.tell(number, len(lines))
        members: dict[str, None] = {}
        for word in _WORD.findall(line):
            if word.startswith("#"):
                break
            if word[0] in ",;" or word[-1] in ",;":
                raise InputError(
                    f"{file}, line {number}: {word!r} has a separator at its end; {_FORM}. Replace commas and "
                    f"semicolons: tr ',;' '\\t\\t' < {file.name} > cover.txt"
                )
            members[word] = None
        if members:
            communities.append(list(members))
    if not communities:
        raise InputError(f"{file} has no community; {_FORM}")
    return communities


def _text(file: Path) -> str:
    raw = unpacked(file, read_bytes(file, f"give a file in it, such as {file / 'communities.txt'}"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8 text; {_FORM}, plain or gzip"
        ) from None
    if "\0" in text:
        raise InputError(f"{file} has a zero byte and is no text; {_FORM}, plain or gzip")
    return text
