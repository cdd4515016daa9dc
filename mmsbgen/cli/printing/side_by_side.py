"""Two texts side by side, with matching lines aligned and differences marked."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Words of the dialects that are ignored when lines are aligned.
_FILLER = re.compile(
    r"__global\b|__local\b|__shared__|__kernel\b|__device__|__forceinline__|__noinline__|__restrict__|restrict\b"
    r"|static|inline|extern|\"C\"|__global__|__attribute__|\(uint\)|\s+"
)


def rows(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    """Aligned pairs of lines; None where a text has no matching line."""
    ours, theirs = ([_FILLER.sub("", line) for line in side] for side in (left, right))
    for tag, i0, i1, j0, j1 in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(left[i0:i1], right[j0:j1], strict=True)
        else:
            yield from itertools.zip_longest(left[i0:i1], right[j0:j1])


def print_side_by_side(titles: tuple[str, str], left: str, right: str) -> None:
    """Print two texts in two columns, as wide as the terminal; without one, plain and in full width.

    Between the columns ``|`` marks lines that differ, ``<`` and ``>`` lines of one text only.
    """
    console = Console()
    if not console.is_terminal:
        _print_plain(titles, left.splitlines(), right.splitlines())
        return
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(titles[0], ratio=1, overflow="fold")
    table.add_column("", width=1)
    table.add_column(titles[1], ratio=1, overflow="fold")
    for one, other in rows(left.splitlines(), right.splitlines()):
        table.add_row(_marked(one, other), Text(_mark(one, other), style="bold yellow"), _marked(other, one))
    console.print(table)


def _mark(one: str | None, other: str | None) -> str:
    return " " if one == other else "<" if other is None else ">" if one is None else "|"


def _print_plain(titles: tuple[str, str], left: Sequence[str], right: Sequence[str]) -> None:
    width = max(map(len, (titles[0], *left)))
    print(f"{titles[0]:<{width}}   {titles[1]}")
    for one, other in rows(left, right):
        print(f"{one or '':<{width}} {_mark(one, other)} {other or ''}".rstrip())


def _marked(line: str | None, other: str | None) -> Text:
    """A line with the words highlighted that the other line lacks."""
    if line is None:
        return Text("")
    if other is None:
        return Text(line, style="yellow")
    text = Text(line)
    mine, theirs = ([m.group() for m in re.finditer(r"\w+|\s+|.", side)] for side in (line, other))
    starts = [0, *itertools.accumulate(map(len, mine))]
    for tag, i0, i1, _, _ in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        if tag != "equal":
            text.stylize("yellow", starts[i0], starts[i1])
    return text
