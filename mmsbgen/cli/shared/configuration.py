"""Defaults of options from a configuration file and from the environment.

The command line precedes the environment, the environment the file, the file the built-in default. The file is TOML.
Its top-level keys are options of ``mmsbgen`` itself and options that several commands share. A table has the options of
one command; ``[db.best]`` those of a subcommand of ``db``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from mmsbgen.base.errors import InputError, did_you_mean
from mmsbgen.cli.shared.command_options import GuidedOption, NamedPath

F = TypeVar("F", bound=Callable[..., Any])
PREFIX = "MMSBGEN"
#: Variables that belong to no option, and those that belong to options of several commands.
VARIABLES = ("CONFIG", "CONTRIBUTOR", "DATABASE_URL", "DEVICE", "LOG", "LOG_FILE", "TOKEN")
#: Options that may be set once for all commands, by these keys at the top of the file and these variables.
SHARED = {"device": "MMSBGEN_DEVICE", "database": "MMSBGEN_DATABASE_URL"}
_META = "mmsbgen.settings"


@dataclass
class ConfigurationFile:
    """The configuration file of a command line; ``error`` is set if it cannot be used."""

    path: Path | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    error: InputError | None = None


class SharedOption(GuidedOption):
    """An option of ``SHARED``; in file and environment, a value for one command precedes the value for all."""


def default_file() -> Path:
    """The path of the user's configuration file, read when no other is named."""
    import platformdirs

    return platformdirs.user_config_path("mmsbgen", appauthor=False) / "config.toml"


def load(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Callback of ``--config``: read the file and store its content for this command line.

    Returns the file's path; None if none is named and the user has none.
    """
    if ctx.resilient_parsing:
        return value
    path = value or default_file()
    if value is None and not path.is_file():
        return None
    found = ctx.meta[_META] = ConfigurationFile(path)
    try:
        found.tables = read(path)
        ctx.default_map = defaults(ctx, ctx.command, ())
    except InputError as error:
        found.error = error
    return path


#: ``--config`` of a program: the file is read before any other option.
config_option = click.option(
    "--config",
    type=NamedPath(dir_okay=False),
    is_eager=True,
    expose_value=False,
    envvar="MMSBGEN_CONFIG",
    callback=load,
    help="Configuration file, instead of the user's own; see `mmsbgen doctor`.",
)


def file_of(ctx: click.Context) -> ConfigurationFile:
    """The configuration file of this command line; empty where there is none."""
    return ctx.meta.get(_META) or ConfigurationFile()


def shared_value(ctx: click.Context, name: str) -> str | None:
    """The value of an option of ``SHARED`` that environment or file set for all commands."""
    return os.environ.get(SHARED[name]) or file_of(ctx).tables.get(name)


def read(path: Path) -> dict[str, Any]:
    """The tables of a file.  Raises :class:`InputError` if it cannot be read or is not TOML."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"the configuration file {path} cannot be read: {reason}; give another with --config"
        ) from error
    except ValueError as error:
        raise InputError(f"the configuration file {path} is no TOML: {error}; mend that line") from error


def apply(ctx: click.Context, name: str, command: click.Command) -> None:
    """Set a command's defaults from the environment and from its table in the file.

    Raises :class:`InputError` for an unusable file and for an unknown key, except for commands that check the file
    themselves (``tells_settings``).
    """
    place = (*place_of(ctx), name)
    name_variables(command, place)
    if not getattr(command, "tells_settings", False):
        if (error := file_of(ctx).error) is not None:
            raise error
        ctx.default_map = {**(ctx.default_map or {}), name: defaults(ctx, command, place)}


def name_variables(command: click.Command, place: tuple[str, ...]) -> None:
    """Give the options of a command their environment variables."""
    for option in options_of(command):
        own = variable_of(option, place)
        option.envvar = [own, SHARED[key_of(option)]] if isinstance(option, SharedOption) else own


def defaults(ctx: click.Context, command: click.Command, place: tuple[str, ...]) -> dict[str, Any]:
    """The values that the file sets for a command, by parameter name.

    Raises :class:`InputError` for a key that the command does not have, and for a table, list or truth value where
    its option takes none.
    """
    path, tables = file_of(ctx).path, file_of(ctx).tables
    options = {key_of(option): option for option in options_of(command)}
    below = set(command.list_commands(ctx)) if isinstance(command, click.Group) else set()
    shared = set() if place else set(SHARED)
    found = {
        str(option.name): tables[key]
        for key, option in options.items()
        if isinstance(option, SharedOption) and key in tables
    }
    table = tables
    for word in place:
        table = next((value for key, value in table.items() if key.replace("_", "-") == word), {})
        table = table if isinstance(table, dict) else {}
    for key, value in table.items():
        name = key.replace("_", "-")
        where = f"{path}: {setting(key, place)}"
        if name in options:
            if reason := _misfit(options[name], value):
                shown = str(value).lower() if isinstance(value, bool) else repr(value)
                raise InputError(f"{where} = {shown}: {reason}")
            found[str(options[name].name)] = value
        elif name in below and not isinstance(value, dict):
            raise InputError(f"{where} = {value!r}: write a table, with one option a line")
        elif name in shared and not (value and isinstance(value, str)):
            raise InputError(f"{where} = {value!r}: write a text in quotes")
        elif name not in {*below, *shared}:
            known = sorted({*options, *below, *shared})
            raise InputError(f"{where} is not known{did_you_mean(name, known) or '; there are ' + ', '.join(known)}")
    return found


def _misfit(option: click.Option, value: Any) -> str:
    """An error message if click would misread a value of the file; empty if the value fits."""
    if option.multiple:
        return "" if isinstance(value, list) else f"write a list, [{value!r}]"
    if isinstance(value, list | dict):
        return "write one value"
    if option.is_flag:
        return "" if isinstance(value, bool) else "write true or false"
    return f"the option takes a value ({option.type.name})" if isinstance(value, bool) else ""


def origin(ctx: click.Context, option: click.Option, source: ParameterSource | None) -> str:
    """The environment variable, or the place and value in the file, that set an option; empty if neither did."""
    if source is ParameterSource.ENVIRONMENT:
        names = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
        return f"the environment variable {next(name for name in names if os.environ.get(name))}"
    if source is ParameterSource.DEFAULT_MAP:
        value = (ctx.default_map or {}).get(str(option.name))
        return f"{file_of(ctx).path}: {setting(key_of(option), place_of(ctx))} = {value!r}"
    return ""


def blame(error: click.BadParameter) -> None:
    """Add to an error the environment variable, or the place in the file, that set the wrong value."""
    option, ctx = error.param, error.ctx
    if isinstance(option, click.Option) and ctx is not None and error.param_hint is None:
        place = origin(ctx, option, ctx.get_parameter_source(str(option.name)))
        error.param_hint = f"{option.get_error_hint(ctx)} from {place}" if place else None


def shared_option(name: str, help: str, **more: Any) -> Callable[[F], F]:
    """``--device`` or ``--database``, which may be set once for all commands."""
    return click.option(f"--{name}", cls=SharedOption, help=help, **more)


def device_options(command: F) -> F:
    """Add ``--device`` and ``--database`` of commands that compute."""
    command = shared_option("database", "Tuning database: a path or URL.", expert=True)(command)
    return shared_option("device", "Device, as `mmsbgen devices` names it; the best one by default.")(command)


def place_of(ctx: click.Context) -> tuple[str, ...]:
    """The path of names of a context's command, without the program's name."""
    return () if ctx.parent is None else (*place_of(ctx.parent), str(ctx.info_name))


def setting(key: str, place: tuple[str, ...]) -> str:
    """A key as messages show it: ``[db.best] limit``."""
    return f"[{'.'.join(place)}] {key}" if place else key


def options_of(command: click.Command) -> Iterator[click.Option]:
    """The options of a command that a file or the environment may set."""
    for param in command.params:
        if isinstance(param, click.Option) and not param.is_eager and param.opts[0].startswith("-"):
            yield param


def key_of(option: click.Option) -> str:
    """An option's key in the file: its long name."""
    return next(word for word in sorted(option.opts, key=len, reverse=True)).lstrip("-")


def variable_of(option: click.Option, path: tuple[str, ...]) -> str:
    """The environment variable of an option of the command ``path``, such as ``("db", "best")``."""
    if isinstance(option.envvar, str):
        return option.envvar
    return "_".join([PREFIX, *path, key_of(option)]).upper().replace("-", "_")
