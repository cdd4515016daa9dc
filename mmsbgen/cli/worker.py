"""``mmsbgen worker``: do jobs of a database on a device of this machine, or offer it to tuning runs elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import click
from click.core import ParameterSource

from mmsbgen.base.declared_options import options_of
from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.common import INTERRUPTED
from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.declared_flags import declared_flags
from mmsbgen.cli.shared.logs import log_options, note, tell
from mmsbgen.jobs.worker.task import WorkerSettings


@click.command()
@shared_option("device", "Device, as 'mmsbgen devices' names it; else the best one.", metavar="SPEC")
@shared_option("database", "Database with the jobs; else MMSBGEN_DATABASE_URL or the user's own.", metavar="URL")
@option(
    "--data",
    type=NamedPath(file_okay=False),
    help="Folder for the files of jobs while they run; else one in the user's data folder.",
)
@option("--kinds", default="tune,detect", help="Kinds of jobs to take.")
@option("--once", is_flag=True, help="Wait for one job, do it and end.")
@option("--drain", is_flag=True, help="End when no job waits.")
@declared_flags(WorkerSettings)
@option("--scheduler", metavar="ADDRESS", help="Take measurements of a Dask scheduler (tcp://HOST:PORT) instead.")
@log_options
@click.pass_context
def worker(
    context: click.Context, /, device: str | None, database: str | None, scheduler: str | None, **given: Any
) -> None:
    """Do tuning and detection jobs of a database on a device of this machine.

    Start one worker for each device. Each job runs in a child process; its files are read from the database and
    stored there. If a worker is killed, another one takes its job when the lease ends, and resumes at the last
    checkpoint or trial. Ctrl-C, SIGTERM or SIGHUP returns the job to the queue; a second signal, at least two seconds
    later, does not wait for a checkpoint.

    With --scheduler the device measures for 'mmsbgen tune --scheduler' elsewhere, until the scheduler ends.
    """
    if scheduler is not None:
        typed = context.get_parameter_source("database") is ParameterSource.COMMANDLINE
        if typed or given["once"] or given["drain"]:
            raise InputError(
                f"--scheduler {scheduler} takes no jobs of a database: leave --database, --once, --drain out"
            )
        from mmsbgen.tuner.fleet.cluster import serve

        serve(scheduler, device, lambda info: click.echo(f"measuring on {info.name} ({info.platform}) for {scheduler}"))
        return
    import platformdirs

    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.jobs.queue import Queue
    from mmsbgen.jobs.worker.supervisor import Worker

    def say(text: str) -> None:
        note(text)
        tell(f"{time.strftime('%H:%M:%S')} {text}")

    settings = WorkerSettings(
        data=given["data"] or platformdirs.user_data_path("mmsbgen") / "worker",
        device=device,
        kinds=[kind.strip() for kind in given["kinds"].split(",") if kind.strip()],
        **{name: given[name] for name in options_of(WorkerSettings)},
    )
    with open_store(database) as store:
        number = Worker(Queue(store), store.place, settings, say).run(
            most=1 if given["once"] else None, drain=given["drain"]
        )
    if number == signal.SIGINT:
        sys.exit(INTERRUPTED)
