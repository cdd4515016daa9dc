"""``mmsbgen doctor``: checks the machine and its devices, and suggests remedies."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.guided_help import option
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
    from mmsbgen.cli.config import in_effect, wrong_settings
    from mmsbgen.cli.shared.configuration import default_file, file_of
    from mmsbgen.cli.shared.machine_checks import Finding

    path = file_of(ctx).path
    set_here = [row["setting"] for row in in_effect(ctx)]
    what = f"configuration file {path}" if path else f"no configuration file; it would be {default_file()}"
    yield Finding("settings", "ok", what, details={"set": set_here})
    if set_here:
        yield Finding("settings", "ok", f"set: {', '.join(set_here)}")
    for text in wrong_settings(ctx):
        yield Finding("settings", "problem", text, "Mend it; `--help-all` of a command lists its options")


def _print(finding: Finding, *, first: bool) -> None:
    status = click.style(f"{finding.status:<8}", fg=_COLOURS[finding.status])
    click.echo(f"{finding.topic if first else '':<10}{status} {finding.what}")
    if finding.remedy:
        click.echo(f"{'':<19}-> {finding.remedy}")
