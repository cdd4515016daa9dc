"""Options and arguments of commands: their types; ``--help`` shows usual options, ``--help-all`` all in groups."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mmsbgen.base.errors import InputError
from mmsbgen.base.user_files import check_name
from mmsbgen.cli.shared.console import shown

F = TypeVar("F", bound=Callable[..., Any])
_ALL = "mmsbgen.help_all"
_OTHERS = "Options"


class GuidedOption(click.Option):
    """An option that shows its default.

    One for experts is left out of ``--help``; ``--help-all`` shows it, and shells complete it.
    """

    def __init__(self, *args: Any, expert: bool = False, **more: Any) -> None:
        super().__init__(*args, **{"show_default": True, **more})
        self.expert = expert


class OnceOption(GuidedOption):
    """An option that is refused where the command line repeats it, as its last value would silently replace others."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser collect every value."""
        parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)

    def consume_value(self, ctx: click.Context, opts: Any) -> tuple[Any, Any]:
        """The one value, and where it is from."""
        given = opts.get(self.name) or []
        if len(given) > 1:
            raise click.BadParameter(f"it is given {len(given)} times, and takes one value.", ctx, self)
        return super().consume_value(ctx, {**opts, self.name: given[0]} if given else opts)


def option(*names: str, **more: Any) -> Callable[[F], F]:
    """Add a :class:`GuidedOption`; the arguments are those of ``click.option``, and ``expert``."""
    return click.option(*names, cls=GuidedOption, **more)


def once(*names: str, **more: Any) -> Callable[[F], F]:
    """Add an :class:`OnceOption`; the arguments are those of :func:`option`."""
    return click.option(*names, cls=OnceOption, **more)


def grouped(heading: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Add options, which ``--help-all`` shows below ``heading``."""

    def add(command: F) -> F:
        before = len(_declared(command))
        for option in reversed(options):
            command = option(command)
        for one in _declared(command)[before:]:
            if not hasattr(one, "mmsbgen_heading"):
                one.mmsbgen_heading = heading  # type: ignore[attr-defined]
        return command

    return add


def _declared(command: Any) -> list[click.Parameter]:
    """The parameters that decorators have added to a function so far, the last one first in help."""
    found: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
    return found


class GuidedCommand(click.Command):
    """A command whose ``--help`` leaves out what is for experts.

    ``details`` is a text that ``--help-all`` shows below the command's help.
    """

    def __init__(self, *args: Any, details: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.details = details
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options, in groups, and exit.",
            )
        )

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's help, and its details for ``--help-all``."""
        super().format_help_text(ctx, formatter)
        if self.details and ctx.meta.get(_ALL):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(self.details)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usual options as one list, or all options in groups."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        told = [(one, record) for one in options if (record := one.get_help_record(ctx)) is not None]
        if not ctx.meta.get(_ALL):
            usual = [record for one, record in told if not getattr(one, "expert", False)]
            with formatter.section("Options"):
                formatter.write_dl(usual)
            return
        groups: dict[str, list[tuple[str, str]]] = {}
        for one, record in told:
            groups.setdefault(getattr(one, "mmsbgen_heading", _OTHERS), []).append(record)
        others = groups.pop(_OTHERS, [])
        for heading, records in [(_OTHERS, others), *groups.items()]:
            with formatter.section(heading):
                formatter.write_dl(records)


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class NamedPath(click.Path):
    """A path whose name a file can have and that is safe to print.

    It is not empty: an unset shell variable gives "", which ``Path`` takes for the current folder.  A file ``-`` of the
    option ``--out`` is standard output.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(path_type=Path, **more)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("the name is empty: give one, or leave the option out. Is a variable of the shell not set?")
        name = str(value)
        readable = os.fsencode(name).decode("utf-8", "replace")
        if "\n" in readable or shown(readable) != readable:
            escaped = shown(name).replace("\n", "\\n")
            self.fail(f"the name {escaped} has line ends or control characters: rename it")
        try:
            check_name(Path(name))
        except InputError as error:
            self.fail(str(error))
        if name == "-" and self.file_okay and param is not None and param.name == "out":
            return Path("/dev/stdout")
        return super().convert(value, param, ctx)


def readable_path(path: Path) -> Path:
    """``path``, or standard input if it is ``-``."""
    return Path("/dev/stdin") if str(path) == "-" else path


class Communities(click.ParamType):  # type: ignore[type-arg]
    """A number of communities from 1 on, or ``auto``."""

    name = "integer|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return value
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is not a whole number from 1 on, or auto.", param, ctx)
        return number
