"""``mmsbgen tune``: find the fastest configuration of each kernel on a device."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mmsbgen.base.errors import InputError
from mmsbgen.cli.printing.graph_tuning import GraphTuning, sentence
from mmsbgen.cli.shared.common import INTERRUPTED, of_roof, pairs, print_table, seconds
from mmsbgen.cli.shared.completed_names import family_option, kernel_names, strategy_names
from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.console import shown
from mmsbgen.cli.shared.declared_flags import declared_flags, reading_flags, reading_of_option
from mmsbgen.cli.shared.graph_problem import graph_options, graph_run
from mmsbgen.cli.shared.guided_help import GuidedCommand, expert, grouped
from mmsbgen.cli.shared.logs import json_option, log_options, no_progress
from mmsbgen.cli.shared.parameter_types import NamedPath
from mmsbgen.tuner.run.tune_options import TuneOptions

if TYPE_CHECKING:
    from rich.live import Live

    from mmsbgen.db.records.tuning_records import TrialRecord
    from mmsbgen.kernels.family import KernelFamily, KernelSpec
    from mmsbgen.kernels.problem import Value
    from mmsbgen.sampler.run.graph_chain import ChainGain
    from mmsbgen.tuner.fleet.fleet_run import FleetReport
    from mmsbgen.tuner.measure.noise import FinalsVerdict
    from mmsbgen.tuner.measure.roofs import Roofs
    from mmsbgen.tuner.run.tuning_report import KernelReport, TuneReport


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
    expert(click.option("--workers", metavar="SPEC,...|all", help="Tune on these devices of this machine at once.")),
    expert(
        click.option("--scheduler", metavar="ADDRESS", help="Tune on all devices that 'mmsbgen worker' offers there.")
    ),
)
@grouped(
    "Kernels and problem",
    family_option(),
    click.option(
        "--kernel",
        "kernels",
        multiple=True,
        metavar="NAME",
        shell_complete=kernel_names,
        help="Kernel to tune; may be repeated.",
    ),
    graph_options,
    reading_flags(for_experts=True),
    click.option(
        "-p", "--problem", "values", multiple=True, metavar="NAME=VALUE", help="A size or type of the problem."
    ),
    expert(click.option("--data", type=NamedPath(), help="Measure on this file, for families that read one.")),
    expert(
        click.option("--fix", "fixed", multiple=True, metavar="AXIS=VALUE,...", help="Keep an axis at these values.")
    ),
)
@grouped(
    "Search",
    declared_flags(TuneOptions, completed={"strategy": strategy_names}),
    expert(
        click.option(
            "--explain-space", is_flag=True, help="Say how many configurations each constraint refuses, and stop."
        )
    ),
)
@grouped(
    "Results",
    expert(shared_option("database", "Tuning database; else MMSBGEN_DATABASE_URL or the user's own.", metavar="URL")),
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
    graph: Path | None,
    k: int | None,
    mini_batch: str,
    partners: str,
    values: tuple[str, ...],
    fixed: tuple[str, ...],
    data: Path | None,
    database: str | None,
    explain_space: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the fastest configuration of each kernel on a device.

    Every configuration is compiled, checked against the reference and timed in a child process, and stored at
    once: Ctrl-C loses nothing, and the same command resumes the search. Configurations that the database has
    under the same key are not measured again.
    """
    from mmsbgen.families import resolve_family

    kernels = tuple(dict.fromkeys(kernels))
    files = {name: given.pop(name) for name in ("format", "columns", "weights", "vertices")}
    reading = reading_of_option(files, graph)
    found = resolve_family(family)
    specs = [found.kernel(name) for name in kernels]
    sizes = dict(pairs(values, "--problem"))
    if k is not None and "K" in sizes:
        raise InputError(f"-k {k} and --problem K={sizes['K']} both give the number of communities: leave one out")
    of_graph = graph_run(graph, k, mini_batch, partners, reading, found)
    if data is not None and found.name == "mmsb":
        raise InputError(f"--data {data} is for other families: give the graph of mmsb as --graph FILE -k K")
    of_data = {} if data is None else dict(found.dataset(data).values)
    problem = found.problem(**({} if of_graph is None else of_graph.problem(device)) | of_data | sizes)
    axes = axis_values(fixed, specs or [found.kernels[name] for name in found.worth_tuning(problem)])
    if explain_space:
        _explain(device, found, kernels, dict(problem), axes, as_json)
        return
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.tuner.run.tune import tune as run

    options = TuneOptions(**given).keywords() | {"fixed": axes}
    several = workers is not None or scheduler is not None
    if several and context.get_parameter_source("device") is not ParameterSource.COMMANDLINE:
        device = None  # a configured default does not apply to several devices
    if several and (device is not None or None not in (workers, scheduler)):
        raise InputError("--device, --workers and --scheduler each say where to tune: give one of them")
    report: TuneReport | FleetReport
    progress = None if no_progress(context) else _progress(live=not several)
    chains = None if of_graph is None or several else GraphTuning(of_graph, options)
    gain: ChainGain | str | None = None
    try:
        with open_store(database, when_used=True) as store:
            if several:
                from mmsbgen.tuner.fleet.fleet_run import tune_fleet

                if data is not None:
                    raise InputError(f"--data {data} is read on this machine: leave out --workers and --scheduler")
                if compilers := options.pop("compilers"):
                    raise InputError(f"--compilers {compilers}: the workers of a fleet compile what they measure")
                options |= {"workers": _listed(workers), "scheduler": scheduler}
                told = None if progress is None else progress.of
                report = tune_fleet(family, kernels or None, problem, store=store, progress=told, **options)
            else:
                with nullcontext() if chains is None else chains.recorded(device, options) as recorded:
                    options |= {"data": recorded if data is None else data}
                    report = run(device, family, kernels or None, problem, store=store, progress=progress, **options)
                if chains is not None and not report.interrupted:
                    gain = chains.gain(report, store)
            location = store.location
    finally:
        if progress is not None:
            progress.close()
    if as_json:
        sweep = gain if isinstance(gain, str) else gain and gain.as_dict()
        click.echo(json.dumps(report.as_dict() | {"sweep": sweep, "database": location}, indent=2))
    else:
        for one in getattr(report, "devices", [report]):
            _print(one)
        if gain is not None:
            click.echo(f"\n{gain if isinstance(gain, str) else sentence(gain)}")
        click.echo(f"\nrun {report.run[:12]} {report.status} after {report.seconds:.0f} s; stored in {location}")
    if report.interrupted:
        sys.exit(INTERRUPTED)


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


def _print(report: TuneReport) -> None:
    """Print a report as tables and sentences."""
    from mmsbgen.kernels.space import describe

    info, roofs = report.info, report.roofs
    click.echo(f"{info.name} ({info.platform})")
    if roofs is not None:
        click.echo(_roofs(roofs))
    if done := [kernel for kernel in report.kernels if kernel.trials]:
        sides = dict.fromkeys(("kernel", "trials"), "left")
        numbers = "median", "spread", "prepare", "energy", "of roof", "vs default", "vs worst", "margin"
        sides |= dict.fromkeys(numbers, "right")
        rows = [_row(kernel) for kernel in done]
        click.echo()
        print_table({name: side for name, side in sides.items() if any(name in row for row in rows)}, rows)
        click.echo()
        for kernel in done:
            if kernel.best is not None:
                click.echo(f"{kernel.kernel}: {describe(kernel.best.config)}")
            if kernel.verdict is not None and kernel.rival is not None:
                click.echo(f"  {_certainty(kernel.verdict, describe(kernel.rival.config))}")
            if kernel.best is None:
                last = next((trial for trial in reversed(kernel.trials) if trial.message), None)
                why = f"; the last: {shown(last.message)}" if last else ""
                click.echo(f"{kernel.kernel}: no configuration worked{why}")
            if kernel.note:
                click.echo(f"{kernel.kernel}: {kernel.note}")
        untried = [
            kernel.kernel
            for kernel in done
            if [trial.config for trial in kernel.trials] == [kernel.space.default] and len(kernel.space.configs) > 1
        ]
        if untried and not report.interrupted:
            of = "" if len(untried) == len(done) else f" of {', '.join(untried)}"
            fewer = ", or --kernel for fewer kernels" if len(done) > 1 else ""
            click.echo(f"There was time for the defaults{of} only: give a larger --budget-seconds{fewer}.")


def _roofs(roofs: Roofs) -> str:
    """The rates, and how old they are or which shape reached them."""
    rates = f"roofs: copy {roofs.copy:.1f} GB/s, random {roofs.row_bytes}-byte rows {roofs.gather:.1f} GB/s"
    if roofs.age_s is None:
        return f"{rates} ({roofs.shapes['gather']})"
    age = f"{roofs.age_s / 3600:.0f} h" if roofs.age_s >= 3600 else f"{roofs.age_s / 60:.0f} min"
    return f"{rates}, measured {age} ago (--retune measures again)"


def _certainty(verdict: FinalsVerdict, rival: str) -> str:
    """The winner's margin over the other finalists, in one or two sentences."""
    if verdict.decided:
        return f"{verdict.margin:.1%} ± {verdict.noise:.1%} faster than the next in {verdict.rounds} rounds: {rival}"
    tied, near = len(verdict.tied), len(verdict.near)
    chosen = f"the simplest of the {near} within 1 % of the fastest"
    if near == tied:
        chosen = "the simplest of them"
    elif near == 1:
        chosen = "the fastest by more than 1 %"
    return (
        f"{tied} finalists cannot be told apart; this is {chosen}. The next one is {abs(verdict.margin):.1%} "
        f"{'slower' if verdict.margin >= 0 else 'faster'} (± {verdict.noise:.1%}, {verdict.rounds} rounds): {rival}"
    )


def _row(kernel: KernelReport) -> dict[str, str]:
    best = kernel.best
    counts = ", ".join(f"{count} {status}" for status, count in kernel.statuses.most_common())
    row = {"kernel": kernel.kernel, "trials": counts + (f" ({kernel.reused} known)" if kernel.reused else "")}
    if best is not None:
        row |= {
            "median": seconds(best.median_s),
            "spread": seconds(best.spread_s),
            **({} if "prepare_s" not in best.extra else {"prepare": seconds(best.extra["prepare_s"])}),
            **({} if best.energy_j is None else {"energy": f"{best.energy_j:.4g} J"}),
            "of roof": of_roof(kernel.roof_fraction),
            "vs default": _times(kernel.speedup_over_default),
            "vs worst": _times(kernel.speedup_over_worst),
            "margin": "" if kernel.margin is None else f"{kernel.margin:.1%}".replace("-0.0%", "0.0%"),
        }
    return row


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}x"


def _progress(*, live: bool) -> Any:
    """A display on standard error: a live line on a terminal, a line per kernel elsewhere."""
    from rich.live import Live
    from rich.text import Text

    from mmsbgen.cli.shared.console import stderr
    from mmsbgen.cli.shared.progress_display import mute_stages
    from mmsbgen.tuner.run.tuning_report import Progress

    console = stderr()

    class Display(Progress):
        def __init__(self, live: bool = live, name: str = "") -> None:
            self.name, self.waited = name, False
            mute_stages()
            self.live: Live | None = Live(console=console, transient=True) if console.is_terminal and live else None
            self.began = time.monotonic()
            if self.live is not None:
                self.live.start()

        def close(self) -> None:
            if self.live is not None:
                self.live.stop()

        def of(self, device: str) -> Display:
            """A display for one of several devices."""
            return Display(live=False, name=f"{device}: ")

        def show(self, text: str, *, keep: bool = False) -> None:
            if self.live is not None and not keep:
                self.live.update(Text(shown(text)))
            elif keep:
                console.print(shown(self.name + text), highlight=False, markup=False, soft_wrap=True)

        def started(self, report: TuneReport) -> None:
            self.show(f"tuning on {report.info.name} ({report.info.platform}); Ctrl-C ends it without loss", keep=True)
            self.show("finding what the device's memory can do ...")

        def roofs(self, roofs: Roofs) -> None:
            self.show(_roofs(roofs), keep=True)

        def kernel(self, report: KernelReport) -> None:
            self.began = time.monotonic()
            valid, total = len(report.space.configs), report.space.total
            self.show(f"{report.kernel}: {valid} of {total} configurations are valid here", keep=True)
            self.show(f"{report.kernel}: making inputs ...")

        def trial(self, report: KernelReport, trial: TrialRecord) -> None:
            self.show(_status_line(report, trial, time.monotonic() - self.began))

        def finished(self, report: KernelReport) -> None:
            self.show(_status_line(report, None, time.monotonic() - self.began), keep=True)

        def waiting(self, device: str) -> None:
            self.show(f"waiting for another measurement on {device} ...", keep=not self.waited)
            self.waited = True

        def interrupted(self) -> None:
            self.show("ending after this configuration; Ctrl-C again ends at once", keep=True)

    return Display()


def _status_line(report: KernelReport, trial: TrialRecord | None, elapsed: float) -> str:
    planned = min(report.budget or len(report.space.configs), len(report.space.configs))
    parts = [f"{report.kernel} {(done := len(report.trials))}/{planned}"]
    if (best := report.best) is not None:
        rate = f"{best.gbps:.3g} GB/s, of the roof: {of_roof(report.roof_fraction)}"
        parts.append(f"best {seconds(best.median_s)}, {rate}")
    if trial is not None:
        measured = done - report.reused
        left = elapsed / measured * (planned - done) if measured else 0.0
        if report.deadline is not None:
            left = min(left, max(0.0, report.deadline - time.monotonic()))
        parts.append(f"last {seconds(trial.median_s) if trial.status == 'ok' else trial.status}")
        parts.append(f"{left:.0f} s left" if measured else "")
    return "  ".join(filter(None, parts))
