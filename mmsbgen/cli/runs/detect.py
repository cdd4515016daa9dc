"""``mmsbgen detect``: finds overlapping communities of a graph."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mmsbgen.backends.ranks.starting import started_together
from mmsbgen.base.declared_options import options_of
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.version import __version__
from mmsbgen.cli.shared import logs
from mmsbgen.cli.shared.command_options import Communities, GuidedCommand, NamedPath, grouped, option, readable_path
from mmsbgen.cli.shared.common import ARGUMENTS, INTERRUPTED
from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.console import say, shown
from mmsbgen.cli.shared.declared_flags import declared_flags, reading_flags, reading_of
from mmsbgen.cli.shared.logs import is_quiet, is_verbose, json_option, log_options, no_progress
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.saved.result_options import ResultOptions

if TYPE_CHECKING:
    from mmsbgen.backends.ranks.world import World
    from mmsbgen.detection.detect import Detection
    from mmsbgen.graph import ReadingOptions


@click.command(
    cls=GuidedCommand,
    help="Find overlapping communities in GRAPH: an edge list, a table of links, or a file of another program (plain "
    "or .gz; - is standard input).",
    details="A run optimises; --sample-sweeps, --noise and mini-batches of stars sample.",
)
@click.argument("graph", type=NamedPath())
@option("-k", "--communities", "k", type=Communities(), help="Communities; by default held-out pairs choose.")
@option("-o", "--out", type=NamedPath(file_okay=False), help="Folder for the results.")
@grouped("Reading the graph", reading_flags())
@grouped(
    "Device and database",
    shared_option("device", "Device, as `mmsbgen devices` names it; the best one by default."),
    option("--devices", help="Devices that share the sweeps over sparse rows, such as cuda:0,cuda:1."),
    shared_option("database", "Tuning database: a path or URL.", expert=True),
)
@grouped(
    "Sampling",
    declared_flags(Options),
    option(
        "--fused/--separate",
        default=None,
        help="Many iterations of stars in one launch, or a launch a stage; the first is the default on CUDA, but "
        "for random-node-non-link.",
        expert=True,
    ),
    option("--step-size", type=float, help="eps_0 of eps = eps_0 (1 + t/t_0)^-kappa.", expert=True),
    option("--start-sum", type=float, default=1.0, help="Row sums at the start; 0 for about K.", expert=True),
)
@grouped(
    "Results",
    declared_flags(ResultOptions),
    option("--whole", is_flag=True, help="Write all of pi.", expert=True),
    option("--overwrite", is_flag=True, help="Replace unfinished runs and other graphs' results.", expert=True),
    json_option("Print the run record instead of a summary."),
)
@grouped(
    "Going on with a run",
    option(
        "--resume", type=NamedPath(), help="Checkpoint, or its folder, to go on from; without -o, results go there."
    ),
    option(
        "--checkpoint",
        "keep",
        is_flag=True,
        help="Leave a checkpoint at the end too, to add iterations later; it stays.",
        expert=True,
    ),
)
@log_options
@click.pass_context
def detect(context: click.Context, /, graph: Path, **given: Any) -> None:
    """Run one detection and print its summary."""
    devices = _devices(context, given)
    if len(devices) > 1 and not started_together():
        from mmsbgen.backends.ranks.starting import start_ranks

        sys.exit(start_ranks(len(devices), context.meta[ARGUMENTS]))
    with ExitStack() as stack:
        if started_together():
            from mmsbgen.backends.ranks.starting import tell_ready
            from mmsbgen.backends.ranks.world import World
            from mmsbgen.cli.shared.progress_display import mute_stages
            from mmsbgen.detection.ranks.following import device_of_rank, follow_rank
            from mmsbgen.detection.ranks.forming import check_alike

            world = stack.enter_context(World())
            flags = {one.name: one.opts[-1] for one in context.command.params}
            arguments = {"graph": graph, **given}
            alike = {flags[name]: str(arguments[name]) for name in arguments if name != "device"}
            check_alike(world, {"mmsbgen": __version__} | alike)
            given["device"] = device_of_rank(world, given["device"], devices)
            if world.rank:
                mute_stages()
                return follow_rank(world, given["device"], given["database"])
            tell_ready()
        else:
            world = None
            given["device"] = devices[0] if devices else given["device"]
        _detect(context, graph, given, world)


def _devices(context: click.Context, given: dict[str, Any]) -> list[str]:
    """The names given by --devices."""
    if given["devices"] is None:
        return []
    if context.get_parameter_source("device") is ParameterSource.COMMANDLINE:
        raise InputError(f"--device {given['device']} and --devices {given['devices']}: give one of them")
    names = [name.strip() for name in given["devices"].split(",")]
    if not all(names):
        raise InputError(f"--devices {given['devices']}: write it as cuda:0,cuda:1")
    return names


def _detect(context: click.Context, graph: Path, given: dict[str, Any], world: World | None) -> None:
    from mmsbgen.base.host_memory import keep_freed_memory
    from mmsbgen.base.libraries import import_lightly
    from mmsbgen.detection.detect import Request, perform
    from mmsbgen.detection.request import checkpoint_in

    import_lightly()
    keep_freed_memory()

    def message(text: str) -> None:
        logs.note(text)
        if not no_progress(context):
            say(text)

    resume = None if given["resume"] is None else checkpoint_in(given["resume"])
    out = resume.parent if given["out"] is None and resume is not None else given["out"]
    request = Request(
        _given_options(context, given),
        device=given["device"],
        database=given["database"],
        **{name: given[name] for name in options_of(ResultOptions)},
        whole=given["whole"],
        out=out,
        resume=resume,
        fused=given["fused"],
        keep_checkpoint=given["keep"],
        overwrite=given["overwrite"],
        reading=reading_of(given),
        world=world,
        on_message=message,
        on_detail=message if is_verbose(context) else logs.note,
    )
    if given["keep"] and out is None:
        raise InputError("--checkpoint needs a folder: give -o too")
    if out is None and is_quiet(context) and not given["as_json"]:
        raise InputError(
            "--quiet prints nothing: give a folder for the results with -o too, or --json, or leave it out"
        )
    try:
        found = perform(readable_path(graph), request)
    except KeyboardInterrupt as stop:
        click.echo(shown(" ".join(["Interrupted; no results were written.", *_notes(stop)])), err=True)
        sys.exit(INTERRUPTED)
    except MmsbgenError as error:
        for note in _notes(error):
            click.echo(shown(note), err=True)
        raise
    print_found(context, found, out, given["as_json"])
    if found.interrupted:
        _interrupted(found, graph, request.reading)


def print_found(context: click.Context, found: Detection, out: Path | None, json: bool) -> None:
    """Print the record of a detection as JSON, or else, unless messages are unwanted, its summary."""
    if json:
        from mmsbgen.sampler.saved.results import as_json

        click.echo(as_json(found.record))
    elif not is_quiet(context):
        from mmsbgen.cli.printing.run_summary import summary

        summary(found, out, verbose=is_verbose(context))


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def _given_options(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """The sampler's options. For a resumed run only the typed ones: its checkpoint has the others."""
    names = {
        "n_communities": "k",
        "initial_row_sum": "start_sum",
        **{name: name for name in options_of(Options) if name in given},
        "schedule": "step_size",  # the schedule depends on the kind of mini-batches
    }
    values = given | {"start_sum": given["start_sum"] or None}
    typed = {name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    optional = given["resume"] is not None
    if "step_size" in typed or not optional:
        values["step_size"] = _schedule(given["step_size"], _mini_batch(given, typed))
    return {option: values[name] for option, name in names.items() if name in typed or not optional}


def _interrupted(found: Detection, graph: Path, reading: ReadingOptions) -> None:
    done = f"Interrupted after iteration {found.record['iterations']}."
    where = found.checkpoint
    click.echo(
        f"{done} There is no checkpoint, as no folder was given with -o."
        if where is None
        else shown(f"{done} Go on with: mmsbgen detect {graph}{reading.flags()} --resume {where} -o {where.parent}"),
        err=True,
    )
    sys.exit(INTERRUPTED)


def _mini_batch(given: dict[str, Any], typed: set[str]) -> str:
    """The run's kind of mini-batches. A resumed run takes it from its checkpoint, unless it was typed."""
    if given["resume"] is None or "mini_batch" in typed:
        return str(given["mini_batch"])
    from mmsbgen.detection.request import checkpoint_in
    from mmsbgen.sampler.saved.checkpoint import load

    return load(checkpoint_in(given["resume"])).options.mini_batch


def _schedule(a: float | None, mini_batch: str) -> Any:
    from dataclasses import replace

    from mmsbgen.sampler.options.schedule import BLOCK_SCHEDULE, STAR_SCHEDULE

    if a is None:
        return None
    if not a > 0:
        raise InputError(f"--step-size must be positive, got {a}; 0.03 is usual")
    return replace(BLOCK_SCHEDULE if mini_batch == "block" else STAR_SCHEDULE, a=a)
