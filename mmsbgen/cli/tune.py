"""``mmsbgen tune``: find the fastest configuration of each kernel on a device."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mmsbgen.base.declared_options import options_of
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.stop_signals import TimeUpError, ending_at
from mmsbgen.cli.printing.graph_tuning import GraphTuning, rest_of, sentence, spent_on_reading
from mmsbgen.cli.printing.tune_summary import note_earlier_winners, print_report, progress_display
from mmsbgen.cli.shared.command_options import GuidedCommand, NamedPath, grouped, option
from mmsbgen.cli.shared.common import INTERRUPTED, pairs, print_table
from mmsbgen.cli.shared.completed_names import family_option, kernel_names, strategy_names
from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.declared_flags import declared_flags, reading_flags, reading_of_option
from mmsbgen.cli.shared.graph_problem import graph_options, graph_run
from mmsbgen.cli.shared.logs import json_option, log_options, no_progress
from mmsbgen.tuner.run.tune_options import TuneOptions, last_moment

if TYPE_CHECKING:
    from mmsbgen.kernels.family import KernelFamily, KernelSpec
    from mmsbgen.kernels.problem import Value
    from mmsbgen.sampler.run.graph_chain import ChainGain
    from mmsbgen.tuner.fleet.fleet_run import FleetReport
    from mmsbgen.tuner.run.tuning_report import TuneReport


_STRATEGIES = """\
Strategies: 'default' tries all configurations if the budget allows. Else a fifth of the budget goes to ones \
that a model of the device ranks high, far apart from each other. Then come the most promising ones by a \
Gaussian process over the measured ones; in the last quarter of some 70 trials or more, these alternate with \
neighbours of the best. There are also 'exhaustive', 'random', and kernel_tuner's: random_sample, minimize, \
basinhopping, diff_evo, genetic_algorithm, greedy_mls, ordered_greedy_mls, greedy_ils, dual_annealing, mls, pso, \
simulated_annealing, firefly_algorithm."""


@click.command(cls=GuidedCommand, details=_STRATEGIES)
@grouped(
    "Devices",
    shared_option("device", "Device, as 'mmsbgen devices' names it; else the best one.", metavar="SPEC"),
    option("--workers", metavar="SPEC,...|all", help="Tune on these devices of this machine at once.", expert=True),
    option(
        "--scheduler", metavar="ADDRESS", help="Tune on all devices that 'mmsbgen worker' offers there.", expert=True
    ),
)
@grouped(
    "Kernels and problem",
    family_option(),
    option(
        "--kernel",
        "kernels",
        multiple=True,
        metavar="NAME",
        shell_complete=kernel_names,
        help="Kernel to tune; may be repeated.",
    ),
    graph_options,
    reading_flags(for_experts=True),
    option("-p", "--problem", "values", multiple=True, metavar="NAME=VALUE", help="A size or type of the problem."),
    option("--data", type=NamedPath(), help="Measure on this file, for families that read one.", expert=True),
    option(
        "--fix", "fixed", multiple=True, metavar="AXIS=VALUE,...", help="Keep an axis at these values.", expert=True
    ),
)
@grouped(
    "Search",
    declared_flags(TuneOptions, completed={"strategy": strategy_names}),
    option(
        "--explain-space",
        is_flag=True,
        help="Say how many configurations each constraint refuses, and stop.",
        expert=True,
    ),
)
@grouped(
    "Results",
    shared_option(
        "database", "Tuning database; else MMSBGEN_DATABASE_URL or the user's own.", metavar="URL", expert=True
    ),
    json_option("Print the report as JSON."),
)
@log_options
@click.pass_context
def tune(
    context: click.Context,
    /,
    device: str | None,
    workers: str | None,
    scheduler: str | None,
    family: str,
    kernels: tuple[str, ...],
    database: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the fastest configuration of each kernel on a device.

    Every configuration is compiled, checked against the reference and timed in a child process, and stored at
    once: Ctrl-C loses nothing, and the same command resumes the search. Configurations that the database has
    under the same key are not measured again.

    Ends with exit code 1 if no configuration of any kernel works, and with 2 if there was no time to try one.
    """
    from mmsbgen.families import resolve_family

    began, budget_s = time.monotonic(), given["budget_seconds"]
    chosen = TuneOptions(**{name: given[name] for name in options_of(TuneOptions) if name in given})
    kernels = tuple(dict.fromkeys(kernels))
    data: Path | None = given["data"]
    reading = reading_of_option(given, given["graph"])
    found = resolve_family(family)
    specs = [found.kernel(name) for name in kernels]
    sizes, k = dict(pairs(given["values"], "--problem")), given["k"]
    if k is not None and "K" in sizes:
        raise InputError(f"-k {k} and --problem K={sizes['K']} both give the number of communities: leave one out")
    try:
        with ending_at(math.inf if budget_s is None else last_moment(began, budget_s)):
            of_graph = graph_run(given, reading, found)
    except TimeUpError:
        raise spent_on_reading(budget_s) from None
    if data is not None and found.name == "mmsb":
        raise InputError(f"--data {data} is for other families: give the graph of mmsb as --graph FILE -k K")
    try:
        of_data = {} if data is None else dict(found.dataset(data).values)
    except InputError as error:
        if "--columns" not in str(error):
            raise
        raise InputError(f"{error}. With --data it is read without options: mend the file") from None
    problem = found.problem(**({} if of_graph is None else of_graph.problem(device)) | of_data | sizes)
    axes = axis_values(given["fixed"], specs or [found.kernels[name] for name in found.worth_tuning(problem)])
    if given["explain_space"]:
        _explain(device, found, kernels, dict(problem), axes, as_json)
        return
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.tuner.run.tune import tune as run

    options = chosen.keywords() | {"fixed": axes}
    several = workers is not None or scheduler is not None
    if several and context.get_parameter_source("device") is not ParameterSource.COMMANDLINE:
        device = None  # a configured default does not apply to several devices
    if several and (device is not None or None not in (workers, scheduler)):
        raise InputError("--device, --workers and --scheduler each say where to tune: give one of them")
    report: TuneReport | FleetReport
    progress = None if no_progress(context) else progress_display(live=not several)
    chains = None if of_graph is None or several else GraphTuning(of_graph, options, began)
    gain: ChainGain | str | None = None
    stopped = False
    try:
        with open_store(database, when_used=True) as store:
            if several:
                from mmsbgen.tuner.fleet.fleet_run import tune_fleet

                if data is not None:
                    raise InputError(f"--data {data} is read on this machine: leave out --workers and --scheduler")
                if compilers := options.pop("compilers"):
                    raise InputError(f"--compilers {compilers}: the workers of a fleet compile what they measure")
                if of_graph is not None and budget_s is not None:
                    options["budget_seconds"] = rest_of(began, budget_s)
                options |= {"workers": _listed(workers), "scheduler": scheduler}
                told = None if progress is None else progress.of
                report = tune_fleet(family, kernels or None, problem, store=store, progress=told, **options)
            else:
                with nullcontext() if chains is None else chains.recorded(device, options) as recorded:
                    options |= {"data": recorded if data is None else data}
                    report = run(device, family, kernels or None, problem, store=store, progress=progress, **options)
            reports: list[TuneReport] = getattr(report, "devices", [report])
            for one in reports:
                note_earlier_winners(one, store)
            if chains is not None and not report.interrupted:
                try:
                    gain = chains.gain(reports[0], store)
                except KeyboardInterrupt:  # the search is over, and its report is still due
                    gain, stopped = "Interrupted: whole sweeps were not compared with the defaults", True
            location = store.location
    finally:
        if progress is not None:
            progress.close()
    if as_json:
        sweep = gain if isinstance(gain, str) else gain and gain.as_dict()
        click.echo(json.dumps(report.as_dict() | {"sweep": sweep, "database": location}, indent=2))
    else:
        for one in reports:
            print_report(one)
        if gain is not None:
            click.echo(f"\n{gain if isinstance(gain, str) else sentence(gain)}")
        click.echo(f"\nrun {report.run[:12]} {report.status} after {report.seconds:.0f} s; stored in {location}")
    if report.interrupted or stopped:
        sys.exit(INTERRUPTED)
    tried = [kernel for one in reports for kernel in one.kernels if kernel.trials]
    if not tried and budget_s is not None:
        raise InputError(
            f"--budget-seconds {budget_s:g}: no kernel was tried; give more, or --kernel for fewer kernels"
        )
    if tried and all(kernel.best is None for kernel in tried):
        raise MmsbgenError("no configuration of any kernel worked: see why above, and what `mmsbgen doctor` finds")


def axis_values(texts: Iterable[str], specs: Iterable[KernelSpec]) -> dict[str, tuple[Value, ...]]:
    """The values of ``--fix``, converted to the types of the axes."""
    from mmsbgen.tuner.search.candidates import fixed_values

    given = {name: text.split(",") for name, text in pairs(texts, "--fix")}
    try:
        return fixed_values(given, specs)
    except InputError as error:
        raise InputError(f"--fix {error}") from None


def _explain(
    device: str | None,
    family: KernelFamily,
    kernels: tuple[str, ...],
    values: dict[str, Value],
    fixed: dict[str, tuple[Value, ...]],
    as_json: bool,
) -> None:
    """Print how many configurations of each kernel are valid on a device, and how many each constraint refuses."""
    from mmsbgen.backends import find_device
    from mmsbgen.kernels.build import traits_of
    from mmsbgen.tuner.search.candidates import candidates

    info = find_device(device)
    traits, where = traits_of(info), f"{info.name} ({info.platform})"
    problem = family.problem(**values)
    rows = []
    for name in kernels or family.worth_tuning(problem):
        space = candidates(family.kernel(name), problem, traits, fixed)
        rows.append({"kernel": name, "what": "valid", "count": len(space.configs), "example": ""})
        rows += [
            {"kernel": name, "what": f"refused: {why}", "count": count, "example": space.examples[why]}
            for why, count in space.refusals.most_common()
        ]
    if as_json:
        click.echo(json.dumps({"device": where, "spaces": rows}, indent=2))
        return
    click.echo(f"Configurations on {where}:\n")
    sides = {"kernel": "left", "what": "left", "count": "right", "example": "left"}
    print_table(sides, [{key: str(value) for key, value in row.items()} for row in rows])


def _listed(text: str | None) -> list[str] | None:
    """The devices of ``--workers``; None if the option was not given."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"--workers {text!r}: write devices as opencl:0,opencl:1, or 'all'")
    return words
