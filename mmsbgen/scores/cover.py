"""Cover files in SNAP's format: one community a line, ids separated by tabs.

Blanks separate too, unless a line with a tab has an id with a blank.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.id_text import canonical_word
from mmsbgen.base.processes import side_by_side
from mmsbgen.base.progress import Stage, stage
from mmsbgen.base.user_files import csv_rows, has_suffix, read_text

#: Heads of tables that ``mmsbgen convert`` writes, read whatever the file's name is.
_HEADS = ("id\tcommunity\tshare\n", '"id"\t"community"\t"share"\n')
_FORM = "a cover has one community a line: ids separated by tabs, or by spaces where no id has any"

#: A file of at least this many lines, all of two ids, is probably not a cover.
_LIKE_A_TABLE = 3
#: If a smaller share of the smaller cover's vertices is in the other cover, the two may be of different graphs.
_FEW = 0.1
_GATHER = (
    "give it as a .csv file, or write the vertices of each label on a line (the page *Compare with known communities* "
    "shows how)"
)

#: Most bytes of memory for an id of a file while it is read, measured.
_FIELD_BYTES = 110

#: Ids of communities that a thread writes at a time.
_AT_A_TIME = 1 << 17

#: ASCII white space only, as in edge lists: ids may contain other Unicode blanks.
_LINE_END, _WORD = re.compile(r"\r\n?|\n"), re.compile(r"[^ \t\n\r\v\f]+")
_BLANKS, _COMMENT = " \v\f", re.compile(r"(?:^|\t)[ \v\f]*#|[ \v\f]#(?=\s|$)")
_NO_WORD = re.compile(r"^#|[\0\t\n\r\ud800-\udfff]|^[ \v\f]*$")
#: Lines of words have one of these if a word matches ``_NO_WORD``.
_DOUBTS, _SURROGATE = ("\0", "\t", "\r", "\n#", "\n ", "\n\v", "\n\f", "\n\n"), re.compile("[\ud800-\udfff]")


class CoverWarning(UserWarning):
    """The file was read as a cover, but probably is not one."""


def words_of(ids: npt.NDArray[Any]) -> list[str]:
    """The text of each vertex id ``[N]`` in a cover file, in the order of ``ids``.

    Raises:
        InputError: the text of an id is blank, begins with ``#``, or contains a tab, a line end, a zero byte or a
            surrogate; or two ids have the same text.
    """
    if ids.dtype.kind == "i":
        return list(map(str, ids.tolist()))
    words = ids.tolist() if ids.dtype.kind == "U" else list(map(canonical_word, ids.tolist()))
    if _is_doubtful(words) and (odd := next(filter(_NO_WORD.search, words), None)) is not None:
        raise InputError(
            f"id {odd!r} cannot stand in a file of communities, which is UTF-8 and whose ids are separated by tabs and "
            "may not begin with #: give the vertex another id, or use a table or a picture of the graph instead"
        )
    if len(set(words)) < len(words):
        word, count = Counter(words).most_common(1)[0]
        raise InputError(
            f"{count} ids read {word!r} in a file of communities and could not be told apart: give the vertices ids "
            "whose texts differ, or use a table instead"
        )
    return words


def _is_doubtful(words: list[str]) -> bool:
    """Whether a word may match ``_NO_WORD``, seen from all at once: to look at each takes far longer."""
    text = "\n".join(["", *words, ""])
    signs = text.count("\n") > len(words) + 1 or any(doubt in text for doubt in _DOUBTS)
    return signs or (not text.isascii() and _SURROGATE.search(text) is not None)


def cover_text(ids: npt.NDArray[Any], members: Sequence[npt.NDArray[Any]]) -> str:
    """The text of a cover: one line of the ``ids`` ``[N]`` for each array of vertex numbers in ``members``.

    Raises as :func:`words_of`.
    """
    if ids.dtype.kind != "i" or ids.min(initial=0) < 0 or not all(map(len, members)):
        texts = np.array(words_of(ids), dtype=object)
        return "".join("\t".join(texts[one].tolist()) + "\n" for one in members)
    width = len(str(ids.max(initial=0)))

    def lines(part: Sequence[npt.NDArray[Any]]) -> bytes:
        """By digits: a matrix of them, with what follows each number, without leading zeros."""
        left = ids[np.concatenate(part)]
        text, shown = np.empty((left.size, width + 1), np.uint8), np.ones((left.size, width + 1), bool)
        text[:, width] = ord("\t")
        text[np.cumsum([len(one) for one in part]) - 1, width] = ord("\n")
        for place in range(width - 1, -1, -1):
            shown[:, place] = left > 0
            rest = left // 10
            text[:, place] = left - 10 * rest + ord("0")
            left = rest
        shown[:, width - 1] = True
        return text[shown].tobytes()

    ends = np.cumsum([0, *map(len, members)])
    cuts = np.unique([*np.searchsorted(ends, np.arange(0, ends[-1], _AT_A_TIME)), len(members)])
    parts = [members[first:last] for first, last in pairwise(cuts)]
    return b"".join(side_by_side(lines, parts)).decode()


def read_cover(path: str | os.PathLike[str]) -> list[list[str]]:
    """Read a cover from a file: communities in the order of the lines, ids as they are written.

    Fields are separated by tabs and blanks; by tabs alone if a line with a tab has a blank within a field.
    The file is plain text or gzip (detected from its first bytes).  A field that begins with ``#`` starts a comment up
    to the end of the line; blank lines are skipped.  Duplicate communities and communities of one member are kept; an
    id repeated on a line is kept once.

    A .csv file has a row for each id and community, as ``mmsbgen convert`` writes it; further columns are ignored.  Its
    first row is a header if no other row has the same community.  So has a file that begins as its .tsv files.

    Another file in which every line has two ids may be an edge list or a table of vertices and labels.  It is read
    with a :class:`CoverWarning`, as is a .csv file in which every community has one vertex.

    Raises:
        InputError: the file cannot be read, is damaged, is neither UTF-8 nor UTF-16, has no community, or has an id
            that begins or ends with a comma or semicolon, which suggests another separator.  The message names file
            and remedy.
    """
    file = Path(path)
    with stage(f"reading {file.name}", unit="lines") as told:
        return _read(file, told)


def _read(file: Path, told: Stage) -> list[list[str]]:
    text = read_text(file, _FORM, _FIELD_BYTES, f"give a file in it, such as {file / 'communities.txt'}")
    if has_suffix(file, ".csv") or text.startswith(_HEADS):
        return _of_rows(file, text)
    communities = []
    pairs: list[tuple[str, str]] = []
    lines = _LINE_END.split(text)
    fields = _between_tabs if any(map(_has_blanks, lines)) else _WORD.findall
    for number, line in enumerate(lines, start=1):
        told.tell(number, len(lines))
        words = []
        for word in fields(line):
            if word.startswith("#"):
                break
            if word[0] in ",;" or word[-1] in ",;":
                raise InputError(
                    f"{file}, line {number}: {word!r} has a separator at its end; {_FORM}, not by commas or semicolons"
                )
            words.append(word)
        if words:
            communities.append(list(dict.fromkeys(words)))
        if len(words) == 2:
            pairs.append((words[0], words[1]))
    if not communities:
        raise InputError(f"{file} has no community; {_FORM}")
    if len(pairs) == len(communities) >= _LIKE_A_TABLE:
        _warn_of_a_table(file, pairs)
    return communities


def _of_rows(file: Path, text: str) -> list[list[str]]:
    """The communities of a table of ids and communities, in their order there."""
    rows = csv_rows(text, file)
    odd = next((row for row in rows if len(row) < 2 or not (row[0] and row[1])), None)
    if odd is not None:
        raise InputError(f"{file}: the row {','.join(odd)!r} has no id and community; write both in each row")
    communities: dict[str, dict[str, None]] = {}
    for name, community, *_ in rows:
        communities.setdefault(community, {})[name] = None
    if rows and len(communities[rows[0][1]]) == 1 < len(rows):
        del communities[rows[0][1]]
    if not communities:
        raise InputError(f"{file} has no community; write an id and its community in each row")
    if len(communities) >= _LIKE_A_TABLE and all(len(members) == 1 for members in communities.values()):
        warn_user(
            f"{file}: each of its {len(communities)} communities has one vertex: the first two columns may not be the "
            "id and the community",
            CoverWarning,
        )
    return [list(members) for members in communities.values()]


def _has_blanks(line: str) -> bool:
    """Whether a line with a tab has an id with a blank."""
    line = _COMMENT.split(line, maxsplit=1)[0].strip()
    return "\t" in line and any(" " in word for word in _between_tabs(line))


def _between_tabs(line: str) -> list[str]:
    return [word for word in (part.strip(_BLANKS) for part in line.split("\t")) if word]


def refuse_table(cover: Sequence[Sequence[str]], vertices: Collection[str], name: str, among: str) -> None:
    """Raise InputError for a table of vertices and labels that was read as a cover.

    That is certain if every line has two fields, the first is a different vertex on each line, and the second is never
    a vertex.  ``vertices`` are the ids of all vertices; ``among`` names their source in the message.
    """
    if len(cover) < _LIKE_A_TABLE or any(len(one) != 2 for one in cover):
        return
    first, labels = (set(column) for column in zip(*cover, strict=True))
    if len(first) == len(cover) and first <= (known := set(vertices)) and not labels & known:
        raise InputError(
            f"{name}: all {len(cover)} lines have two fields, a vertex and one of {len(labels)} that are no vertices "
            f"of {among}: this is a table of vertices and labels, and a cover has one community a line: {_GATHER}"
        )


def check_shared(cover: Sequence[Sequence[str]], truth: Sequence[Sequence[str]], name: str, known: str) -> None:
    """Raise InputError if two covers, read from the files ``name`` and ``known``, have no vertex in common.

    Warns with a :class:`CoverWarning` if less than a tenth of the smaller cover's vertices are in the other cover: they
    may be of different graphs, or use different ids.
    """
    ours, theirs = ({word for one in communities for word in one} for communities in (cover, truth))
    shared, fewer = len(ours & theirs), min(len(ours), len(theirs))
    if shared == 0:
        raise InputError(
            f"{name} and {known} have no vertex in common: the first has ids such as {min(ours)!r}, the second such as "
            f"{min(theirs)!r}; give two files about the same graph, with the same ids"
        )
    if shared < _FEW * fewer:
        warn_user(
            f"{name} and {known} have {shared} vertices in common, of {len(ours)} and {len(theirs)} that they have: "
            "are both about the same graph, with the same ids?",
            CoverWarning,
        )


def _warn_of_a_table(file: Path, pairs: list[tuple[str, str]]) -> None:
    """Warn that a cover of pairs may be an edge list or a table of labels."""
    vertices, labels = (set(column) for column in zip(*pairs, strict=True))
    table = len(vertices) == len(pairs) and 2 * len(labels) <= len(pairs)
    like = f"a table of vertices and one of {len(labels)} labels" if table else "an edge list or a table of labels"
    warn_user(
        f"{file}: all {len(pairs)} lines have two fields, as {like} has; they are taken for communities of two "
        f"vertices. Give a cover, one community a line; of a table, {_GATHER}",
        CoverWarning,
    )
