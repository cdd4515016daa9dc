"""Types of options and arguments that click lacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.base.user_files import check_name
from mmsbgen.cli.shared.console import shown


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
