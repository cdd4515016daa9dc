"""Command-line options from a dataclass of declared options, and those of how a graph is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mmsbgen.base.declared_options import DeclaredOption, options_of
from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import NamedPath, grouped, option

if TYPE_CHECKING:
    from pathlib import Path

    from mmsbgen.graph.reading_options import ReadingOptions

F = TypeVar("F", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def declared_flags(
    declaration: type[Any], *only: str, completed: Mapping[str, Complete] | None = None
) -> Callable[[F], F]:
    """Add the options of a dataclass: those in ``only``, or all but those for Python programs.

    ``completed`` has functions that complete values in shells, by the name of an option without declared choices.
    """
    declared = options_of(declaration)
    names = only or [name for name, one in declared.items() if one.audience != "python"]

    def add(command: F) -> F:
        for name in reversed(names):
            one = declared[name]
            flag: Any = _flag(one, (completed or {}).get(name))
            command = (grouped(one.group, flag) if one.group else flag)(command)
        return command

    return add


def reading_flags(*only: str, for_experts: bool = False) -> Callable[[F], F]:
    """Add the options of :class:`mmsbgen.graph.ReadingOptions`: those in ``only``, or all.

    With ``for_experts`` only ``--help-all`` shows them.
    """
    from mmsbgen.graph.reading_options import FORMATS

    flags = {
        "format": option(
            "--format",
            type=click.Choice(FORMATS),
            default="auto",
            help="Format of GRAPH; text is an edge list or a table.",
            expert=True,
        ),
        "columns": option(
            "--columns",
            metavar="A,B[,W]",
            help="Columns of a link's two ends (and weight): names, or numbers from 1.",
            expert=for_experts,
        ),
        "weights": option(
            "--weights",
            metavar="ignore|threshold=X",
            shell_complete=lambda ctx, param, begun: [x for x in ("ignore", "threshold=") if x.startswith(begun)],
            help="Count every row as a link, or rows of weight X or more. By default weights other than 1 are refused.",
            expert=for_experts,
        ),
        "vertices": option(
            "--vertices",
            type=NamedPath(),
            help="File with one id a line, of vertices with and without links.",
            expert=True,
        ),
    }

    def add(command: F) -> F:
        for name in reversed(only or tuple(flags)):
            command = flags[name](command)
        return command

    return add


def reading_of(given: Mapping[str, Any]) -> ReadingOptions:
    """The options of :func:`reading_flags` as they are given; raises InputError for wrong ones."""
    from mmsbgen.graph.reading_options import ReadingOptions

    columns = given.get("columns")
    named = None if columns is None else tuple(part.strip() for part in columns.split(","))
    if named is not None and (len(named) not in (2, 3) or not all(named)):
        raise InputError(f"--columns {columns!r}: give two names or numbers, such as --columns source,target")
    return ReadingOptions(given.get("format", "auto"), named, given.get("weights"), given.get("vertices"))


def reading_of_option(given: Mapping[str, Any], graph: Path | None) -> ReadingOptions:
    """As :func:`reading_of`, of the file that ``--graph`` names; raises InputError too if there is none to read."""
    reading = reading_of(given)
    if graph is None and not reading.is_default:
        raise InputError("--format, --columns, --weights and --vertices say how --graph is read: give that too")
    return reading


def _flag(declared: DeclaredOption, complete: Complete | None) -> Callable[[F], F]:
    flag, expert = f"--{declared.name.replace('_', '-')}", declared.audience != "everybody"
    if declared.kind is bool:
        if declared.default is not False:
            flag += f"/--no-{flag[2:]}"
        return option(flag, is_flag=True, default=declared.default, help=declared.help, expert=expert)
    bound = int(declared.least) if declared.least > float("-inf") else None
    kinds = {int: click.IntRange(bound) if bound is not None else click.INT, float: click.FLOAT, str: click.STRING}
    return option(
        *filter(None, (declared.flag, flag)),
        type=click.Choice(declared.choices) if declared.choices else kinds[declared.kind],
        default=declared.default,
        metavar=declared.metavar,
        shell_complete=complete,
        help=declared.help,
        expert=expert,
    )
