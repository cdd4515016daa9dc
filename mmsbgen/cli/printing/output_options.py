"""Output formats of ``mmsbgen db`` and ``mmsbgen report``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import option
from mmsbgen.cli.shared.common import csv_text, output_width, print_table
from mmsbgen.cli.shared.console import shown
from mmsbgen.cli.shared.logs import json_option, log_options, tell

F = TypeVar("F", bound=Callable[..., Any])
#: Characters of a line from which tables fold their cells, and columns that fold anywhere.
_WIDE, _FEW = 200, 3
#: Most lines of a record on a terminal that is too narrow for a table.
_MOST_LINES = 4
_INDENT = "    "
#: The end of a line that was cut.
_CUT = "…"
#: Texts by line of a record, from 1 on.
_Parts = Mapping[int, Sequence[str]]


@dataclass(frozen=True)
class Column:
    """A field of a row; ``title`` is its heading in tables, empty for fields that are shown if asked for only.

    A terminal that is too narrow for a table gets lines: ``line`` is the line of this field, 0 that of a heading, and
    ``label`` its text there.
    """

    field: str
    title: str = ""
    text: Callable[[Any], str] = str
    side: str = "left"
    line: int = 1
    label: str = "{}"

    def told(self, row: Mapping[str, Any]) -> str:
        """The text of the field in a table; that of lists and mappings without an own text is JSON."""
        value = row[self.field]
        plain = self.text is not str or isinstance(value, str | int | float)
        return self.text(value) if plain else "" if value is None else json.dumps(value)

    def labelled(self, row: Mapping[str, Any]) -> str:
        """The text of the field in a line."""
        text = self.told(row)
        return self.label.format(text) if text else ""


@dataclass(frozen=True)
class Output:
    """The output format of rows, their order and their fields.

    Raises ``InputError`` if both JSON and CSV are asked for.
    """

    as_json: bool
    as_csv: bool
    sort: str | None = None
    columns: str | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Output:
        """What the options of :func:`row_options` say."""
        return cls(given["as_json"], given["as_csv"], given["sort"], given["columns"])

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise InputError("--json and --csv exclude each other")


def row_options(command: F) -> F:
    """Add ``--sort``, ``--columns``, ``--json`` and ``--csv``, as the keywords of :class:`Output`."""
    for add in (
        log_options,
        json_option("Print JSON."),
        option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, for spreadsheets."),
        option(
            "--columns",
            metavar="NAME,...",
            help="Only these columns: titles, fields of --json, or parts of problem and configuration, such as K.",
        ),
        option("--sort", metavar="NAME", help="Sort by this column; -NAME: the largest first."),
    ):
        command = add(command)
    return command


def moved(as_json: bool, said: str, counts: dict[str, Any]) -> None:
    """Print how many records were moved: JSON on standard output, else text on standard error."""
    if as_json:
        click.echo(json.dumps(counts, indent=2))
    else:
        tell(said)


def show(
    output: Output, columns: Sequence[Column], rows: Sequence[dict[str, Any]], *, empty: str, limit: int | None = None
) -> None:
    """Print rows, or the first ``limit`` of them, as JSON, CSV, a table or lines; ``empty`` is told if there are none.

    ``--columns`` and ``--sort`` also take parameters of the problem and axes of the configuration, such as ``K``.

    Raises ``InputError`` for the name of a column that is not there.
    """
    names = [] if output.columns is None else [name.strip() for name in output.columns.split(",")]
    if output.sort is not None:
        order = output.sort.removeprefix("-")
        by_part, there = _with_parts(rows, columns, [order])
        by = _column(there, order, "--sort")
        values = [row[by.field] for row in made(by_part, [by])]
        rows = _sorted(rows, values, output.sort.startswith("-"))
    rows, there = _with_parts(rows, columns, names)
    picked = [_column(there, name, "--columns") for name in names] or columns
    rows = made(rows[:limit], picked)
    if output.as_json:
        fields = [column.field for column in picked]
        told = rows if output.columns is None else [{field: row[field] for field in fields} for row in rows]
        click.echo(json.dumps(told, indent=2, allow_nan=False, ensure_ascii=False))
    elif output.as_csv:
        click.echo(csv_text([column.field for column in picked], rows), nl=False)
    elif rows:
        if output.columns is None:
            picked = [column for column in columns if column.title]
        _print(picked, rows)
    elif empty:
        click.echo(shown(empty), err=True)


def made(rows: Iterable[dict[str, Any]], columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Rows with the values that are functions, as they take long; those that no column shows are left out."""
    fields = {column.field for column in columns}
    return [
        {
            name: value() if callable(value) else value
            for name, value in row.items()
            if name in fields or not callable(value)
        }
        for row in rows
    ]


def place_of(value: Any) -> Any:
    """A key that sorts numbers as numbers, before texts, also within mappings and lists."""
    if isinstance(value, Mapping):
        return 2, [(name, place_of(one)) for name, one in value.items()]
    if isinstance(value, list | tuple):
        return 3, [place_of(one) for one in value]
    return (0, value) if isinstance(value, int | float) else (1, str(value))


def _print(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> None:
    width = output_width()
    titles = {column.title or column.field: column for column in columns}
    table = [{title: column.told(row) for title, column in titles.items()} for row in rows]
    needed = sum(max(len(title), *(len(row[title]) for row in table)) + 2 for title in titles)
    if needed <= width + 2 or width >= _WIDE or len(titles) <= _FEW:
        print_table({title: column.side for title, column in titles.items()}, table, width)
        return
    _print_records((_lines(columns, row) for row in rows), width)


def _lines(columns: Sequence[Column], row: Mapping[str, Any]) -> tuple[str, _Parts]:
    parts: dict[int, list[str]] = {}
    for column in columns:
        parts.setdefault(column.line, []).append(column.labelled(row))
    return ", ".join(filter(None, parts.pop(0, []))), parts


def _with_parts(
    rows: Sequence[dict[str, Any]], columns: Sequence[Column], names: Sequence[str]
) -> tuple[Sequence[dict[str, Any]], Sequence[Column]]:
    """Rows and columns with those ``names`` that are parts of a problem or a configuration."""
    known = {name for column in columns for name in (column.title, column.field)}
    for name in dict.fromkeys(names) if known & {"problem", "config"} else ():
        parts = [row.get("problem", {}) | row.get("config", {}) for row in rows]
        # Without rows nothing tells which parts there are.
        if name and name not in known and (not rows or any(name in part for part in parts)):
            rows = [{**row, name: part.get(name)} for row, part in zip(rows, parts, strict=True)]
            columns = [*columns, Column(name, name, lambda value: "" if value is None else str(value))]
    return rows, columns


def _column(columns: Sequence[Column], name: str, option: str) -> Column:
    for column in columns:
        if name.strip() in (column.title, column.field):
            return column
    there = [column.title or column.field for column in columns]
    raise InputError(f"{option} {name.strip()!r}: there is no such column; there are {', '.join(there)}")


def _sorted(rows: Sequence[dict[str, Any]], values: Sequence[Any], largest_first: bool) -> Sequence[dict[str, Any]]:
    """The rows by their ``values``, those without a value last."""
    valued = [at for at, value in enumerate(values) if value is not None]
    found = sorted(valued, key=lambda at: place_of(values[at]), reverse=largest_first)
    return [rows[at] for at in [*found, *(at for at, value in enumerate(values) if value is None)]]


def _print_records(records: Iterable[tuple[str, _Parts]], width: int) -> None:
    """Print records of at most ``_MOST_LINES`` lines of ``width`` characters; what is longer is cut, but headings wrap.

    Each part gets the lines that it needs, but leaves one for each of those after it.
    """
    heading, cut = "", False
    for number, (head, parts) in enumerate(records):
        if head != heading:  # told once for consecutive records
            heading = head
            click.echo(("\n" if number else "") + textwrap.fill(heading, width, break_on_hyphens=False))
        lines = _fitted(parts, width)
        cut = cut or any(line.endswith(_CUT) for line in lines)
        for line in lines:
            click.echo(line)
    if cut:
        tell(f"What ends in {_CUT} was cut; a wider terminal, --csv and --json have more.")


def _fitted(parts: _Parts, width: int) -> list[str]:
    texts = [text for line in sorted(parts) if (text := _joined(parts[line], width))]
    found: list[str] = []
    for at, text in enumerate(texts):
        indent = _INDENT if at else ""
        most = _MOST_LINES - len(found) - (len(texts) - at - 1)
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
    return text if len(text) <= width else f"{text[: width - 1]}{_CUT}"
