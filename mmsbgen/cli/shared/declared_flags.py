"""Command-line options from a dataclass of declared options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mmsbgen.base.declared_options import DeclaredOption, options_of

F = TypeVar("F", bound=Callable[..., Any])


def declared_flags(declaration: type[Any], *only: str) -> Callable[[F], F]:
    """Add the options of a dataclass: those in ``only``, or all but those for Python programs."""
    declared = options_of(declaration)
    names = only or [name for name, one in declared.items() if one.audience != "python"]

    def add(command: F) -> F:
        for name in reversed(names):
            command = _flag(declared[name])(command)
        return command

    return add


def _flag(declared: DeclaredOption) -> Callable[[F], F]:
    flag = f"--{declared.name.replace('_', '-')}"
    if declared.kind is bool:
        if declared.default is not False:
            flag += f"/--no-{flag[2:]}"
        return click.option(flag, is_flag=True, default=declared.default, help=declared.help)
    bound = int(declared.least) if declared.least > float("-inf") else None
    kinds = {int: click.IntRange(bound) if bound is not None else click.INT, float: click.FLOAT, str: click.STRING}
    return click.option(
        *filter(None, (declared.flag, flag)),
        type=click.Choice(declared.choices) if declared.choices else kinds[declared.kind],
        default=declared.default,
        show_default=declared.default is not None,
        metavar=declared.metavar,
        help=declared.help,
    )
