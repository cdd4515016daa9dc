"""``mmsbgen config``: the settings of the configuration file and the environment."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from mmsbgen.cli.shared.common import print_table
from mmsbgen.cli.shared.logs import json_option, log_options

_HELP = """Show what the configuration file and the environment set.

Precedence: command line, environment, file, default. The file is TOML: at its top stand log,
log-file, and device and database for all commands; a table has the options of a command by their long names.

\b
    device = "intel"
    database = "postgresql://tuner@server/tuning"
    [detect]
    communities = 50
    [db.best]
    limit = 10

The variable of an option is MMSBGEN, the command and the option: MMSBGEN_DETECT_ITERATIONS=200. Ends with exit code 1
when something in the file or the environment cannot be meant.
"""


@click.command(help=_HELP)
@json_option("Print JSON.")
@log_options
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Print a table or JSON."""
    from mmsbgen.cli.shared.configuration import default_file, file_of

    rows, wrong, path = list(in_effect(ctx)), wrong_settings(ctx), file_of(ctx).path
    if as_json:
        told = {"file": None if path is None else str(path), "default_file": str(default_file())}
        click.echo(json.dumps(told | {"settings": rows, "problems": wrong}, indent=2, default=str))
    else:
        click.echo(f"configuration file: {path}" if path else f"no configuration file; it would be {default_file()}")
        if rows:
            click.echo()
            print_table(dict.fromkeys(rows[0], "left"), [{k: _text(v) for k, v in row.items()} for row in rows])
        for text in wrong:
            click.echo(f"\n{text}", err=True)
    if wrong:
        sys.exit(1)


config.tells_settings = True  # type: ignore[attr-defined]


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def commands(ctx: click.Context) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path of names, the root group first."""

    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        yield path, command
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                if (found := command.get_command(ctx, name)) is not None:
                    yield from below(found, (*path, name))

    yield from below(ctx.find_root().command, ())


def in_effect(ctx: click.Context) -> Iterator[dict[str, Any]]:
    """The settings of the environment and of the file, with values and sources."""
    from mmsbgen.cli.shared.configuration import PREFIX, file_of

    for name in sorted(os.environ):
        if name.startswith(f"{PREFIX}_") and os.environ[name]:
            yield {"setting": name, "value": _hidden(name, os.environ[name]), "set by": "environment"}
    for key, value in _flat(file_of(ctx).tables):
        yield {"setting": key, "value": _hidden(key, value), "set by": str(file_of(ctx).path)}


def _flat(tables: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{place}.{key}" if place else key)
        else:
            yield f"[{place}] {key}" if place else key, value


def _hidden(name: str, value: Any) -> Any:
    """A setting's value with the passwords of URLs masked; tokens, passwords and secrets are masked entirely."""
    import re

    if re.split(r"[^a-z]", name.lower())[-1] in ("token", "password", "secret"):
        return "***"
    if not isinstance(value, str):
        return value
    value = re.sub(r"(://[^/:@\s]*):\S*@", r"\1:***@", value)
    return re.sub(r"([?&]\w*password=)[^&\s]*", r"\1***", value)


def wrong_settings(ctx: click.Context) -> list[str]:
    """Error messages for invalid settings in the file and the environment, each with a remedy."""
    from mmsbgen.base.errors import InputError
    from mmsbgen.cli.shared.configuration import (
        PREFIX,
        VARIABLES,
        defaults,
        file_of,
        name_variables,
        options_of,
        origin,
        variable_of,
    )

    found = [] if (error := file_of(ctx).error) is None else [str(error)]
    known = {f"{PREFIX}_{name}" for name in VARIABLES}
    contexts: dict[tuple[str, ...], click.Context] = {(): ctx.find_root()}
    for place, command in commands(ctx):
        name_variables(command, place)
        here = contexts[place] = click.Context(command, contexts[place[:-1]] if place else None, " ".join(place[-1:]))
        here.meta.update(ctx.meta)
        try:
            here.default_map = defaults(here, command, place)
        except InputError as error:
            found.append(str(error))
        for option in options_of(command):
            known.add(variable_of(option, place))
            value, source = option.consume_value(here, {})
            told = origin(here, option, source)
            try:
                if told:
                    option.type_cast_value(here, value)
            except click.BadParameter as error:
                text = f" is {value!r}" if told.startswith("the environment") else ""
                found.append(f"{told}{text}: {error.message}")
    for name in sorted(os.environ):
        if name.startswith(f"{PREFIX}_") and name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            advice = f"did you mean {near[0]}?" if near else "`--help-all` of a command lists its options"
            found.append(f"the environment variable {name} sets nothing; {advice}")
    return list(dict.fromkeys(found))
