"""``mmsbgen devices``: lists the devices that kernels can run on, and how to get missing ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mmsbgen.cli.printing.output_options import Column, Output, show
from mmsbgen.cli.shared.logs import json_option, log_options

if TYPE_CHECKING:
    from mmsbgen.backends import DeviceInfo

_COLUMNS = [
    Column("name", "name"),
    Column("device", "device"),
    Column("platform", "platform"),
    Column("kind", "kind", line=2),
    Column("units", "units", side="right", line=2, label="{} units"),
    Column("memory", "memory", side="right", line=2, label="memory {}"),
    Column("local memory", "local memory", side="right", line=2, label="local {}"),
    Column("max block", "max block", side="right", line=2, label="max block {}"),
    Column("vector", "vector", side="right", line=3),
    Column("fp64", "fp64", line=3, label="fp64 {}"),
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
        show(Output(False, False), _COLUMNS, [_row(info) for info in found], empty="")
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


def _row(info: DeviceInfo) -> dict[str, str]:
    return {
        "name": info.spec,
        "device": info.name,
        "platform": info.platform,
        "kind": info.kind,
        "units": str(info.compute_units),
        "memory": _size(info.global_memory),
        "local memory": _size(info.local_memory),
        "max block": str(info.max_block_size),
        "vector": f"{info.vector_width_float} x float",
        "fp64": "yes" if info.has_fp64 else "no",
        "driver": info.driver,
    }


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"
