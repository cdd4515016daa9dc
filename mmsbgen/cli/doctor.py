"""``mmsbgen doctor``: checks the machine and its devices, and suggests remedies."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import option
from mmsbgen.cli.shared.configuration import (
    PREFIX,
    VARIABLES,
    default_file,
    defaults,
    file_of,
    name_variables,
    options_of,
    origin,
    shared_option,
    variable_of,
)
from mmsbgen.cli.shared.logs import json_option, log_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmsbgen.cli.shared.machine_checks import Finding

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "red"}
_HELP = """Look at what mmsbgen needs on this machine, try each device, and say what to do.

Packages, memory, disk, OpenCL and CUDA with their drivers and compilers, the tuning database with its records for the
devices of this machine, the configuration file and the environment. On each device a kernel is compiled, checked and
timed, a few seconds each. Nothing is changed. Ends with exit code 1 when there is a problem.
"""


@click.command(help=_HELP)
@shared_option("device", "Test this device alone.", metavar="SPEC")
@shared_option("database", "Tuning database; else MMSBGEN_DATABASE_URL or the user's own.", metavar="URL")
@option("--self-test/--no-self-test", default=True, help="Whether a kernel is run on each device.")
@json_option("Print JSON.")
@log_options
@click.pass_context
def doctor(ctx: click.Context, device: str | None, database: str | None, self_test: bool, as_json: bool) -> None:
    """Print findings as they are made, or JSON."""
    from mmsbgen.backends.discovery import discover, select_device
    from mmsbgen.cli.shared.machine_checks import examine

    if device is not None and ctx.get_parameter_source("device") is ParameterSource.COMMANDLINE:
        devices, hints = discover()
        if devices:  # without any device, the checks report what is missing
            select_device(device, devices, hints)
    began = time.monotonic()
    found: list[Finding] = []
    for one in itertools.chain(_settings(ctx), examine(database, device, self_tests=self_test)):
        if not as_json:
            _print(one, first=not found or found[-1].topic != one.topic)
        found.append(one)
    counts = Counter(one.status for one in found)
    if as_json:
        click.echo(json.dumps({"findings": [asdict(one) for one in found], "counts": counts}, indent=2))
    else:
        told = ", ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in ("problem", "warning", "note") if counts[s])
        click.echo(f"\n{told or 'Nothing to mend'}; {time.monotonic() - began:.1f} s.")
    if counts["problem"]:
        sys.exit(1)


doctor.tells_settings = True  # type: ignore[attr-defined]


def _settings(ctx: click.Context) -> Iterator[Finding]:
    from mmsbgen.cli.shared.machine_checks import Finding

    path = file_of(ctx).path
    what = f"configuration file {path}" if path else f"no configuration file; it would be {default_file()}"
    yield Finding("settings", "ok", what)
    if set_here := list(_in_effect(ctx)):
        yield Finding("settings", "ok", f"set: {', '.join(set_here)}", details={"set": set_here})
    for text in _wrong_settings(ctx):
        yield Finding("settings", "problem", text, "Mend it; `--help-all` of a command lists its options")


def _print(finding: Finding, *, first: bool) -> None:
    status = click.style(f"{finding.status:<8}", fg=_COLOURS[finding.status])
    click.echo(f"{finding.topic if first else '':<10}{status} {finding.what}")
    if finding.remedy:
        click.echo(f"{'':<19}-> {finding.remedy}")


def _commands(
    ctx: click.Context, command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and every one below it with its path of names, the group first."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            if (found := command.get_command(ctx, name)) is not None:
                yield from _commands(ctx, found, (*path, name))


def _in_effect(ctx: click.Context) -> Iterator[str]:
    """The settings of the environment and of the file, with their values."""
    for name in sorted(os.environ):
        if name.startswith(f"{PREFIX}_") and os.environ[name]:
            yield f"{name}={_hidden(name, os.environ[name])}"
    for key, value in _flat(file_of(ctx).tables):
        yield f"{key} = {_hidden(key, value)}"


def _flat(tables: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{place}.{key}" if place else key)
        else:
            yield f"[{place}] {key}" if place else key, value


def _hidden(name: str, value: Any) -> Any:
    """A setting's value with the passwords of URLs masked; tokens, passwords and secrets are masked entirely."""
    if re.split(r"[^a-z]", name.lower())[-1] in ("token", "password", "secret"):
        return "***"
    if not isinstance(value, str):
        return value
    value = re.sub(r"(://[^/:@\s]*):\S*@", r"\1:***@", value)
    return re.sub(r"([?&]\w*password=)[^&\s]*", r"\1***", value)


def _wrong_settings(ctx: click.Context) -> list[str]:
    """Error messages for invalid settings in the file and the environment, each with a remedy."""
    found = [] if (error := file_of(ctx).error) is None else [str(error)]
    known = {f"{PREFIX}_{name}" for name in VARIABLES}
    contexts: dict[tuple[str, ...], click.Context] = {(): ctx.find_root()}
    for place, command in _commands(ctx, ctx.find_root().command):
        name_variables(command, place)
        here = contexts[place] = click.Context(command, contexts[place[:-1]] if place else None, " ".join(place[-1:]))
        here.meta.update(ctx.meta)
        try:
            here.default_map = defaults(here, command, place)
        except InputError as error:
            found.append(str(error))
        for one in options_of(command):
            known.add(variable_of(one, place))
            value, source = one.consume_value(here, {})
            told = origin(here, one, source)
            try:
                if told:
                    one.type_cast_value(here, value)
            except click.BadParameter as error:
                text = f" is {value!r}" if told.startswith("the environment") else ""
                found.append(f"{told}{text}: {error.message}")
    for name in sorted(os.environ):
        if name.startswith(f"{PREFIX}_") and name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            advice = f"did you mean {near[0]}?" if near else "`--help-all` of a command lists its options"
            found.append(f"the environment variable {name} sets nothing; {advice}")
    return list(dict.fromkeys(found))
