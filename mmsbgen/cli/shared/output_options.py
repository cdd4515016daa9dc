"""Output formats of ``mmsbgen db`` and ``mmsbgen report``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.common import print_csv, print_json, print_table
from mmsbgen.cli.shared.console import shown
from mmsbgen.cli.shared.logs import is_quiet, json_option, log_options

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Output:
    """The output format of rows.  Raises ``InputError`` if both JSON and CSV are asked for."""

    as_json: bool
    as_csv: bool

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise InputError("--json and --csv exclude each other")


def output_options(json_help: str = "Print JSON.") -> Callable[[F], F]:
    """Add ``--json`` and ``--csv``."""

    def add(command: F) -> F:
        command = log_options(json_option(json_help)(command))
        as_csv = click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, for spreadsheets.")
        return as_csv(command)

    return add


def moved(ctx: click.Context, output: Output, said: str, counts: dict[str, Any]) -> None:
    """Print how many records were moved: JSON or a row of CSV on standard output, else text on standard error."""
    if output.as_json:
        click.echo(json.dumps(counts, indent=2))
    elif output.as_csv:
        print_csv(list(counts), [counts])
    elif not is_quiet(ctx):
        click.echo(shown(said), err=True)


def show(output: Output, columns: Sequence[Any], rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as JSON, CSV or a table."""
    if output.as_json:
        print_json(rows)
    elif output.as_csv:
        print_csv([column.field for column in columns], rows)
    elif rows:
        shown = [column for column in columns if column.title]
        sides = {column.title: column.side for column in shown}
        print_table(sides, [{c.title: c.text(row[c.field]) for c in shown} for row in rows])
    else:
        click.echo("no records: none were made yet (mmsbgen tune), or the filters leave none", err=True)
