"""Types of options and arguments that click lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class NamedPath(click.Path):
    """A path that is not empty: an unset shell variable gives "", which ``Path`` takes for the current folder."""

    def __init__(self, **more: Any) -> None:
        super().__init__(path_type=Path, **more)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("the name is empty: give one, or leave the option out. Is a variable of the shell not set?")
        return super().convert(value, param, ctx)


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
