"""What the commands of ``mmsbgen db`` share: how they pick records and how they print."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from mmsbgen.cli._common import pairs, print_csv, print_json, print_table
from mmsbgen.cli._logs import is_quiet, json_option, log_options
from mmsbgen.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


class Output(NamedTuple):
    """How rows are printed."""

    as_json: bool
    as_csv: bool


def output_options(command: F) -> F:
    """Add ``--json`` and ``--csv``."""
    command = log_options(json_option("Print JSON.")(command))
    return click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")(command)


def filter_options(command: F) -> F:
    """Add the filters that pick trials."""
    for option in (
        click.option("--problem", "problem", multiple=True, metavar="NAME=VALUE", help="A problem parameter."),
        click.option(
            "--device", metavar="TEXT", help="A part of a recorded device's name or platform, or one here: opencl:0."
        ),
        click.option("--kernel", metavar="NAME", help="A kernel, as NAME or FAMILY/NAME."),
    ):
        command = option(command)
    return command


def parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Problem parameters from ``NAME=VALUE``; a value is JSON, or else the text itself.

    Raises ``InputError`` for what has no name or no ``=``, and for a name with two values.
    """
    found: dict[str, Any] = {}
    for name, value in pairs(texts, "--problem"):
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def moved(ctx: click.Context, as_json: bool, said: str, counts: dict[str, Any]) -> None:
    """Say what became of records: as JSON on standard output, else in words on standard error."""
    if as_json:
        click.echo(json.dumps(counts, indent=2))
    elif not is_quiet(ctx):
        click.echo(said, err=True)


def show(output: Output, columns: Sequence[Any], rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as asked."""
    if output.as_json and output.as_csv:
        raise InputError("--json and --csv exclude each other")
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
