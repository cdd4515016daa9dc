"""Defaults of options from a configuration file and from the environment.

What counts is the option that was typed, else the environment, else the file, else the default.  The file is TOML:
keys at its top are options of ``mmsbgen`` itself and those that several commands share, a table has the options of a
command, ``[db.best]`` those of one of ``db``'s.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from mmsbgen.base.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
PREFIX = "MMSBGEN"
#: Variables that belong to no option, and those that belong to options of several commands.
VARIABLES = {
    "MMSBGEN_CONFIG": "the configuration file",
    "MMSBGEN_CONTRIBUTOR": "who tunes, kept with what is stored; without it nobody is named",
    "MMSBGEN_DATABASE_URL": "the tuning database, a path or URL, for all commands",
    "MMSBGEN_DEVICE": "the device, for all commands that compute on one",
    "MMSBGEN_LOG": "least level of the log on standard error: debug, info, warning or error",
    "MMSBGEN_LOG_FILE": "a file that the log is appended to",
    "MMSBGEN_TOKEN": "the token of mmsbgen serve",
}
_FILE, _ERROR = "mmsbgen.settings.file", "mmsbgen.settings.error"
_SHARED = {"device": "MMSBGEN_DEVICE", "database": "MMSBGEN_DATABASE_URL"}


class SharedOption(click.Option):
    """An option that several commands share: by its name at the top of the file, and by one variable for all.

    What the file or the environment says for one command goes before what it says for all.
    """

    @property
    def shared(self) -> str:
        """Its key in the file."""
        return key_of(self)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The command's own variable, else the shared one."""
        return super().resolve_envvar_value(ctx) or os.environ.get(_SHARED[self.shared]) or None

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, click.core.ParameterSource]:
        """As for every option, with the file's shared value before the default."""
        value, source = super().consume_value(ctx, opts)
        if source is click.core.ParameterSource.DEFAULT:
            found = (ctx.find_root().default_map or {}).get(self.shared)
            if found is not None:
                return found, click.core.ParameterSource.DEFAULT_MAP
        return value, source


def default_file() -> Path:
    """Where the configuration file is looked for when none is named."""
    import platformdirs

    return platformdirs.user_config_path("mmsbgen", appauthor=False) / "config.toml"


def load(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """The callback of ``--config``: keep the file's content for this command line; returns the file that there is."""
    if ctx.resilient_parsing:
        return value
    path = value or default_file()
    if value is None and not path.is_file():
        return None
    ctx.meta[_FILE] = path
    try:
        ctx.default_map = _translated(ctx, ctx.command, read(path), path, at_the_top=True)
    except InputError as error:
        ctx.meta[_ERROR] = error
    return path


#: ``--config`` of a program: the file is read before any other option.
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,
    expose_value=False,
    envvar="MMSBGEN_CONFIG",
    callback=load,
    help="Configuration file, instead of the user's own; see `mmsbgen config`.",
)


def file_of(ctx: click.Context) -> Path | None:
    """The configuration file that this command line has read, if there is one."""
    found: Path | None = ctx.meta.get(_FILE)
    return found


def error_of(ctx: click.Context) -> InputError | None:
    """What is wrong with the configuration file, where the command tells that itself."""
    found: InputError | None = ctx.meta.get(_ERROR)
    return found


def read(path: Path) -> dict[str, Any]:
    """The tables of a file.  Raises :class:`InputError` for one that cannot be read or is no TOML."""
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
    """Let the environment and the table of a command be its defaults.

    Raises :class:`InputError` for a file that cannot be used and for a key or value that the command cannot have, but
    of commands that look into the file themselves (``tells_settings``).
    """
    place = _place(ctx, name)
    for option in options_of(command):
        if option.envvar is None:
            option.envvar = variable_of(option, tuple(place.split(".")))
    tolerant = getattr(command, "tells_settings", False)
    error = error_of(ctx)
    if error is not None and not tolerant:
        raise error
    defaults = ctx.default_map or {}
    if name in defaults and not tolerant:
        table = _translated(ctx, command, defaults[name], ctx.meta[_FILE], place)
        ctx.default_map = {**defaults, name: table}


def problems(ctx: click.Context, group: click.Group, tables: Mapping[str, Any], path: Path) -> Iterator[InputError]:
    """What is wrong anywhere in a file, a table at a time; ``group`` is the whole command line."""

    def look(command: click.Command, table: Any, place: str) -> Iterator[InputError]:
        try:
            found = _translated(ctx, command, table, path, place, at_the_top=not place)
        except InputError as error:
            yield error
            found = table if isinstance(table, dict) else {}
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                if name in found and below is not None:
                    yield from look(below, found[name], f"{place}.{name}".lstrip("."))

    yield from look(group, dict(tables), "")


def shared_option(name: str, help: str, **more: Any) -> Callable[[F], F]:
    """``--device`` or ``--database``, which may be set once for all commands."""
    return click.option(f"--{name}", cls=SharedOption, help=help, **more)


def _place(ctx: click.Context, name: str) -> str:
    words = [name]
    while ctx.parent is not None:
        words.insert(0, str(ctx.info_name))
        ctx = ctx.parent
    return ".".join(words)


def _translated(
    ctx: click.Context,
    command: click.Command,
    table: Any,
    path: Path,
    place: str = "",
    *,
    at_the_top: bool = False,
) -> dict[str, Any]:
    """The table of a command with its keys as the names of parameters; tables of subcommands stay as they are."""
    where = f"{path}: [{place}]" if place else f"{path}:"
    if not isinstance(table, dict):
        raise InputError(f"{path}: {place} = {table!r}: write a table, [{place}], with one option a line")
    options = {key_of(param): param for param in options_of(command)}
    below = set(command.list_commands(ctx)) if isinstance(command, click.Group) else set()
    shared = set(_SHARED) if at_the_top else set()
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        if name in below:
            if not isinstance(value, dict):
                raise InputError(f"{where} {key} = {value!r}: write a table with its options")
            found[name] = value
        elif name in options:
            found[str(options[name].name)] = checked(ctx, options[name], value, f"{where} {key}")
        elif name in shared:
            if not isinstance(value, str) or not value:
                raise InputError(f"{where} {key} = {value!r}: write a text in quotes")
            found[name] = value
        else:
            raise InputError(f"{where} {key} is not known; {_nearest(name, {*options, *below, *shared})}")
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known := sorted(known), 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def checked(ctx: click.Context, option: click.Option, value: Any, where: str) -> Any:
    """A value of the file as the option takes it; raises :class:`InputError` naming place, value and what is wrong."""
    if option.multiple:
        if not isinstance(value, list):
            raise InputError(f"{where} = {value!r}: write a list, [{value!r}]")
    elif isinstance(value, list | dict):
        raise InputError(f"{where} = {value!r}: write one value")
    if option.is_flag and not isinstance(value, bool):
        raise InputError(f"{where} = {value!r}: write true or false")
    if not option.is_flag and isinstance(value, bool):
        raise InputError(f"{where} = {str(value).lower()}: the option takes a value ({option.type.name})")
    try:
        option.type_cast_value(ctx, value)
    except click.BadParameter as error:
        raise InputError(f"{where} = {value!r}: {error.message}") from error
    return value


def check_environment(ctx: click.Context, option: click.Option, path: tuple[str, ...]) -> None:
    """Raise :class:`InputError` for a value that the environment has for an option, where the option cannot have it."""
    name = variable_of(option, path)
    text = os.environ.get(name)
    if not text:
        return
    try:
        option.type_cast_value(ctx, option.type.split_envvar_value(text) if option.multiple else text)
    except click.BadParameter as error:
        raise InputError(f"the environment variable {name} is {text!r}: {error.message}") from error


def blame(error: click.BadParameter) -> None:
    """Let an error name the environment variable where the wrong value is from one."""
    option, ctx = error.param, error.ctx
    if not isinstance(option, click.Option) or ctx is None or error.param_hint is not None:
        return
    if ctx.get_parameter_source(str(option.name)) is not click.core.ParameterSource.ENVIRONMENT:
        return
    names = [option.envvar, _SHARED.get(key_of(option)) if isinstance(option, SharedOption) else None]
    name = next(name for name in names if isinstance(name, str) and os.environ.get(name))
    error.param_hint = f"{option.get_error_hint(ctx)} from the environment variable {name}"


def options_of(command: click.Command) -> Iterator[click.Option]:
    """The options of a command that a file or the environment may set."""
    for param in command.params:
        if isinstance(param, click.Option) and not param.is_eager and param.opts[0].startswith("-"):
            yield param


def key_of(option: click.Option) -> str:
    """An option's key in the file: its long name."""
    return next(word for word in sorted(option.opts, key=len, reverse=True)).lstrip("-")


def variable_of(option: click.Option, path: tuple[str, ...]) -> str:
    """The variable that sets an option of the command ``path``, such as ``("db", "best")``."""
    if isinstance(option.envvar, str):
        return option.envvar
    return "_".join([PREFIX, *path, key_of(option)]).upper().replace("-", "_")
