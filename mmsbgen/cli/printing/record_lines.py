"""Records as a few lines each, for terminals that are too narrow for a table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from mmsbgen.cli.shared.console import shown

#: Most lines of a record.
MOST_LINES = 4
_INDENT = "    "


@dataclass(frozen=True)
class Lines:
    """A record: ``heading`` is told once for consecutive records, ``parts`` maps lines from 1 on to their texts."""

    heading: str
    parts: Mapping[int, Sequence[str]]


def print_records(records: Iterable[Lines], width: int) -> None:
    """Print records of at most ``MOST_LINES`` lines of ``width`` characters; what is longer is cut, but headings wrap.

    The line that takes most room gets the lines that are left.
    """
    heading = ""
    for number, record in enumerate(records):
        if record.heading != heading:
            heading = record.heading
            click.echo(("\n" if number else "") + textwrap.fill(heading, width, break_on_hyphens=False))
        for line in _lines(record.parts, width):
            click.echo(line)


def _lines(parts: Mapping[int, Sequence[str]], width: int) -> list[str]:
    texts = [text for line in sorted(parts) if (text := _joined(parts[line], width))]
    longest = max(range(len(texts)), key=lambda at: len(texts[at]), default=0)
    found: list[str] = []
    for at, text in enumerate(texts):
        indent = _INDENT if at else ""
        most = MOST_LINES - len(texts) + 1 if at == longest else 1
        wrapped = textwrap.wrap(text, width - len(indent), break_on_hyphens=False) if most > 1 else [text]
        kept = [*wrapped[: most - 1], " ".join(wrapped[most - 1 :])] if len(wrapped) > most else wrapped
        found += [indent + _cut(line, width - len(indent)) for line in kept]
    return found


def _joined(parts: Sequence[str], width: int) -> str:
    """The parts of a line, two blanks apart if there is room."""
    texts = [shown(part).replace("\n", " ") for part in parts if part]
    wide = "  ".join(texts)
    return wide if len(wide) <= width else " ".join(texts)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
