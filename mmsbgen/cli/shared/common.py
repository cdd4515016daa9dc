"""Base of all commands: groups that import commands on use, errors without a traceback, and printed tables."""

from __future__ import annotations

import csv
import importlib
import io
import json
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mmsbgen.base.errors import InputError, MmsbgenError, did_you_mean
from mmsbgen.cli.shared.console import shown

#: The exit code of a command that Ctrl-C has ended.
INTERRUPTED = 130
#: Where a context's ``meta`` has the arguments of the whole command line.
ARGUMENTS = "mmsbgen.arguments"
#: Fewest characters of a line that output is made for, and those without a terminal.
_NARROWEST, _WITHOUT_TERMINAL = 40, 240


@dataclass(frozen=True)
class LazyCommand:
    """A command that is imported when it runs: ``target`` is ``package.module:name``, ``help`` one line."""

    target: str
    help: str


class Failure(click.ClickException):
    """An expected error with its exit code; click prints it as ``Error: ...`` on standard error."""

    def __init__(self, error: MmsbgenError) -> None:
        super().__init__(shown(str(error)))
        self.exit_code: int = error.exit_code  # type: ignore[misc]


class MmsbgenGroup(click.Group):
    """A group whose ``lazy`` commands are imported on use, so that its own ``--help`` stays fast.

    An :class:`MmsbgenError` from any command below it is printed as ``Error: ...`` on standard error and
    ends the program with the error's ``exit_code``. Ctrl-C that a command does not handle ends it with 130.
    """

    group_class = type  # subgroups have this class too

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; it goes on when nobody reads its output any more."""
        from mmsbgen.cli.shared.console import keep_streams

        keep_streams()
        return super().main(*args, **kwargs)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Create the context; Ctrl-C while options are parsed ends the program with 130."""
        given = [*args]
        try:
            with _interruptible():
                context = super().make_context(info_name, args, parent, **extra)
        except MmsbgenError as error:  # the help cannot be printed
            raise Failure(error) from error
        context.meta.setdefault(ARGUMENTS, given)
        return context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The named command; a lazy one is imported now."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.lazy[cmd_name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The named command, with defaults from the environment and the configuration file."""
        from mmsbgen.cli.shared.configuration import apply

        unknown = not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None
        if unknown and (near := did_you_mean(args[0], self.list_commands(ctx))):
            ctx.fail(f"There is no command {args[0]!r}{near}")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            apply(ctx, name, command)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; the help of lazy ones needs no import."""
        rows = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                rows.append((name, self.lazy[name].help))
            elif (command := super().get_command(ctx, name)) is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=100)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options; an error names the variable or file that set a wrong value."""
        try:
            return super().parse_args(ctx, args)
        except BaseException as error:
            ctx.close()  # click leaves open a context whose options cannot be parsed
            if isinstance(error, click.BadParameter):
                from mmsbgen.cli.shared.configuration import blame

                blame(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn an expected error into a message and an exit code."""
        from mmsbgen.cli.shared import logs

        try:
            if ctx.parent is not None:
                return super().invoke(ctx)
            from mmsbgen.cli.shared.progress_display import showing_stages

            with _interruptible(), showing_stages(ctx):
                return super().invoke(ctx)
        except MmsbgenError as error:
            logs.note(str(error), logging.ERROR)
            raise Failure(error) from error
        except MemoryError as error:
            reason = f" ({error})" if str(error) else ""
            logs.note(traceback.format_exc(), logging.ERROR)
            raise Failure(MmsbgenError(f"the memory ran out{reason}: free some, or ask for less")) from error
        except click.BadParameter as error:
            from mmsbgen.cli.shared.configuration import blame

            blame(error)
            raise
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:
            logs.note(traceback.format_exc(), logging.CRITICAL)
            raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn Ctrl-C into one line and exit code 130, as in shells; click's own would be 1."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def pairs(texts: Iterable[str], option: str) -> list[tuple[str, str]]:
    """Names and values of texts NAME=VALUE; raises ``InputError`` for other texts and for a name with two values."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise InputError(f"{option} {text!r}: write it as NAME=VALUE")
        if name in found:
            raise InputError(f"{option} {name}={found[name]} and {name}={value}: give {name} one value")
        found[name] = value
    return list(found.items())


def keep_inputs(out: Path | None, *inputs: Path | None) -> None:
    """Raise :class:`InputError` if the file ``out`` is one of the inputs, which it would replace."""
    for path in inputs:
        if out is not None and path is not None and all(map(os.path.exists, (out, path))) and out.samefile(path):
            raise InputError(f"-o {out} would replace {path}, which the command reads: name another file")


def print_or_write(text: str, out: Path | None) -> None:
    """Print a result, or write it to the file ``out``, gzip when its name ends in ``.gz``."""
    from mmsbgen.base.atomic_files import write_packed

    if out is None:
        click.echo(shown(text), nl=False)
    else:
        write_packed(out, text, make_folder=True)


def output_width() -> int:
    """Characters of a line on standard output: those of the terminal or of COLUMNS, else as without any."""
    if columns := os.environ.get("COLUMNS", ""):
        return int(columns) if columns.isdecimal() and int(columns) >= _NARROWEST else _NARROWEST
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WITHOUT_TERMINAL


def print_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int | None = None) -> None:
    """Print rows as a table; ``columns`` maps each name to 'left' or 'right'.

    It is as wide as ``width``, else as the terminal; without a terminal 240 characters.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width)
    if width is None and not console.is_terminal:
        console = Console(width=_WITHOUT_TERMINAL)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in columns.items():
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(row.get(name, ""))) for name in columns))
    console.print(table)


def csv_text(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header; None is an empty cell, values other than numbers and texts are JSON.

    A quote stands before a text that a spreadsheet would take for a formula, and control characters are escaped.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return out.getvalue()


def seconds(value: float | None) -> str:
    """A readable time, such as ``157.2 us``; empty for None."""
    if value is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"


def _cell(value: Any) -> Any:
    from mmsbgen.base.id_text import is_formula

    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{shown(value)}" if is_formula(value) else shown(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
