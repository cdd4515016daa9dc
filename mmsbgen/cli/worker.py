"""``mmsbgen worker``: offer a device of this machine to tuning runs that are asked for elsewhere."""

from __future__ import annotations

import click


@click.command()
@click.argument("scheduler")
@click.option("--device", metavar="SPEC", help="Device by number or name, see 'mmsbgen devices'; else the best one.")
def worker(scheduler: str, device: str | None) -> None:
    """Offer a device to tuning runs, through the Dask scheduler at SCHEDULER (tcp://HOST:PORT).

    Start one worker for each device. 'mmsbgen tune --scheduler SCHEDULER' then measures on all of them. Ends
    with the scheduler, or by Ctrl-C.
    """
    from mmsbgen.tuner.fleet_cluster import serve

    serve(scheduler, device, lambda info: click.echo(f"measuring on {info.name} ({info.platform}) for {scheduler}"))
