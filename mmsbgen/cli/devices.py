"""``mmsbgen devices``: lists the devices that kernels can run on, and how to get missing ones."""

from __future__ import annotations

import json

import click

from mmsbgen.cli.printing.output_options import Column, Output, show
from mmsbgen.cli.shared.logs import json_option, log_options


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


_COLUMNS = [
    Column("spec", "name"),
    Column("name", "device"),
    Column("platform", "platform"),
    Column("kind", "kind", line=2),
    Column("compute_units", "units", side="right", line=2, label="{} units"),
    Column("global_memory", "memory", _size, side="right", line=2, label="memory {}"),
    Column("local_memory", "local memory", _size, side="right", line=2, label="local {}"),
    Column("max_block_size", "max block", side="right", line=2, label="max block {}"),
    Column("vector_width_float", "vector", "{} x float".format, side="right", line=3),
    Column("has_fp64", "fp64", lambda has: "yes" if has else "no", line=3, label="fp64 {}"),
    Column("driver", "driver", line=3, label="driver {}"),
]


@click.command(help="List the devices that kernels can run on, the best first, and say how to get what is missing.")
@json_option("Print JSON with all that is known.")
@log_options
def devices(as_json: bool) -> None:
    """Print a table or JSON; the first device is the one that is used when none is named."""
    from mmsbgen.backends import discover

    found, hints = discover()
    if as_json:
        click.echo(json.dumps({"devices": [info.as_dict() for info in found], "hints": hints}, indent=2))
        return
    if found:
        show(Output(False, False), _COLUMNS, [info.as_dict() for info in found], empty="")
        click.echo(
            f"\nUsed when none is named: {found[0].spec}. Choose another with --device: its name, its number if "
            "unique, or a unique part of device or platform."
        )
    else:
        click.echo("No device was found.")
    if hints:
        click.echo("\nNot here:")
        for hint in hints:
            click.echo(f"  - {hint}")
