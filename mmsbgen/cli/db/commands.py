"""``mmsbgen db``: queries the tuning database, and moves its records between machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.db.filter_options import checked_kernel, checked_parameters, filter_options
from mmsbgen.cli.db.named_records import picked_device, picked_run
from mmsbgen.cli.shared.common import MmsbgenGroup
from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.graph_problem import graph_options, of_graph
from mmsbgen.cli.shared.logs import is_quiet
from mmsbgen.cli.shared.output_options import Output, moved, output_options, show
from mmsbgen.cli.shared.parameter_types import NamedPath

if TYPE_CHECKING:
    from mmsbgen.cli.db.printed_rows import Marks
    from mmsbgen.db.exchange.jsonl import Bundle
    from mmsbgen.db.store.tuning_store import Store

_FORMATS = ("jsonl", "t4", "cache")
_STATUSES = ("ok", "invalid", "compile_error", "launch_error", "wrong_result", "timeout", "crashed")


@click.group(cls=MmsbgenGroup, help="Ask the tuning database, and move its records between machines.")
@shared_option(
    "database",
    "A file or an SQLAlchemy URL, instead of MMSBGEN_DATABASE_URL or the user's data folder.",
    metavar="URL",
)
@click.pass_context
def db(ctx: click.Context, database: str | None) -> None:
    """Store the chosen database for the subcommands."""
    ctx.obj = database


@db.command()
@filter_options
@click.option("--limit", type=click.IntRange(min=1), help="At most so many rows.")
@output_options()
@click.pass_context
@click.option("--objective", default="time", metavar="NAME", show_default=True, help="Best by time, energy or edp.")
def best(
    ctx: click.Context,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    objective: str,
    limit: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """The best configuration of each device, kernel and problem."""
    from mmsbgen.cli.db import printed_rows as rows
    from mmsbgen.db.records.ranking import check_objective

    check_objective(objective)
    with _reading(ctx) as store:
        device = picked_device(store, device)
        picked = checked_parameters(store, problem)
        trials = store.trials(kernel=checked_kernel(store, kernel), device=device, problem=picked)
        found = rows.best_rows(trials, _marks(store), objective)[:limit]
    show(Output(as_json, as_csv), rows.BEST, found)


@db.command()
@filter_options
@click.option("--status", type=click.Choice(_STATUSES), help="Only trials that ended so.")
@click.option("--run", metavar="UUID", help="Only trials of this tuning run; 8 digits that begin its name will do.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many.")
@output_options()
@click.pass_context
def trials(
    ctx: click.Context,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    status: str | None,
    run: str | None,
    limit: int,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Trials, newest first, failures included."""
    from mmsbgen.cli.db import printed_rows as rows

    with _reading(ctx) as store:
        device, run = picked_device(store, device), picked_run(store, run)
        picked = checked_parameters(store, problem)
        kernel = checked_kernel(store, kernel)
        found = store.trials(kernel=kernel, device=device, problem=picked, status=status, run=run, limit=limit)
        marks = _marks(store)
    show(Output(as_json, as_csv), rows.TRIAL, [rows.trial_row(trial, marks) for trial in found])


@db.command()
@output_options()
@click.pass_context
def devices(ctx: click.Context, as_json: bool, as_csv: bool) -> None:
    """Devices that have records, with their newest roofs."""
    from mmsbgen.cli.db import printed_rows as rows

    with _reading(ctx) as store:
        found = rows.device_rows(store.devices(), store.roofs())
    show(Output(as_json, as_csv), rows.DEVICE, found)


@db.command()
@click.option("--limit", type=click.IntRange(min=1), help="The newest so many.")
@output_options()
@click.pass_context
def runs(ctx: click.Context, limit: int | None, as_json: bool, as_csv: bool) -> None:
    """Tuning runs, newest first."""
    from mmsbgen.cli.db import printed_rows as rows

    with _reading(ctx) as store:
        found = [rows.run_row(run) for run in store.runs()[:limit]]
    show(Output(as_json, as_csv), rows.RUN, found)


@db.command()
@click.option("--kernel", metavar="NAME", help="Only this kernel.")
@output_options()
@click.pass_context
def quarantine(ctx: click.Context, kernel: str | None, as_json: bool, as_csv: bool) -> None:
    """Configurations that failed in a run, and are not selected for the same key until they are tuned again."""
    from mmsbgen.cli.db import printed_rows as rows

    with _reading(ctx) as store:
        found = rows.quarantine_rows(store.quarantined(kernel=checked_kernel(store, kernel)))
    show(Output(as_json, as_csv), rows.QUARANTINE, found)


@db.command()
@click.argument("other", metavar="OTHER")
@output_options("Print JSON: how many trials, and where.")
@click.pass_context
def merge(ctx: click.Context, other: str, as_json: bool, as_csv: bool) -> None:
    """Add the records of OTHER, a database file or an SQLAlchemy URL, that this database lacks.

    Either all of them are added or none. OTHER is only read; merging it again adds nothing.
    """
    from mmsbgen.db.store.tuning_store import open_store

    output = Output(as_json, as_csv)
    with open_store(other, read_only=True) as source:
        if source.missing:
            raise InputError(f"there is no tuning database at {source.location}: name one that has records")
        bundle = source.bundle()
        with open_store(ctx.obj) as store:
            count = store.add_bundle(bundle)
            place = store.location
        said = f"{count} of {len(bundle.trials)} trials of {source.location} added to {place}"
        moved(ctx, output, said, {"added": count, "trials": len(bundle.trials), "database": place})


@db.command("export")
@click.argument("file", type=NamedPath(dir_okay=False))
@filter_options
@click.option("--format", "form", type=click.Choice(_FORMATS), default="jsonl", show_default=True, help="Of the file.")
@click.option("--with-host", is_flag=True, help="Keep the names of the machines that tuned.")
@click.option(
    "--best",
    "most",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the N best of each problem, by today's kernels.",
)
@click.option(
    "--chain",
    "chains",
    multiple=True,
    type=NamedPath(exists=True, dir_okay=False),
    help="For experts, with --best: a report of bench_chain.py; leaves out what ranks before the chain's fastest.",
)
@output_options("Print JSON: how many trials, and where.")
@click.pass_context
def export_(
    ctx: click.Context,
    file: Path,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    form: str,
    with_host: bool,
    most: int | None,
    chains: Sequence[Path],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Write records to FILE: as JSON lines, in the T4 format of results, or as a cache of kernel_tuner.

    All records are written, or those that match the filters; FILE is compressed if its name ends in .gz. Host names
    are left out unless --with-host is given.
    """
    from mmsbgen.db.exchange import formats

    output = Output(as_json, as_csv)
    if chains and most is None:
        raise click.UsageError("--chain needs --best")
    with _reading(ctx) as store:
        bundle = _picked_bundle(store, kernel, device, problem)
    if most is not None:
        bundle = _best_records(bundle, most, chains)
    formats.write(bundle if with_host else formats.anonymous(bundle), file, form)
    said = f"{len(bundle.trials)} trials written to {file}"
    moved(ctx, output, said, {"trials": len(bundle.trials), "file": str(file)})


@db.command("import")
@click.argument("file", type=NamedPath(dir_okay=False))
@output_options("Print JSON: how many trials, and where.")
@click.pass_context
def import_(ctx: click.Context, file: Path, as_json: bool, as_csv: bool) -> None:
    """Add the records in FILE that the database lacks: all of them or, when FILE is malformed, none.

    FILE has one of the formats of export.
    """
    from mmsbgen.db.exchange import formats
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.tuner.run.recorded_types import check_types

    output = Output(as_json, as_csv)
    bundle = formats.read(file)
    check_types(bundle, str(file))
    with open_store(ctx.obj) as store:
        count = store.add_bundle(bundle)
        said = f"{count} of {len(bundle.trials)} trials added to {store.location}"
        moved(ctx, output, said, {"added": count, "trials": len(bundle.trials), "database": store.location})


@db.command()
@filter_options
@click.option("--driver", metavar="TEXT", help="The driver's version.")
@click.option("--compiler", metavar="TEXT", help="The compiler's name.")
@click.option("--compiler-version", metavar="TEXT", help="The compiler's version.")
@click.option("--compiler-options", metavar="TEXT", help="The compiler's options.")
@click.option("--template-digest", metavar="TEXT", help="The digest of the kernel's program.")
@click.option("--on", "spec", metavar="DEVICE", help="Explain what a run on this device of this machine gets.")
@graph_options
@click.option("--limit", type=click.IntRange(min=1), default=3, show_default=True, help="The nearest so many.")
@output_options()
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    spec: str | None,
    graph: Path | None,
    k: int | None,
    mini_batch: str,
    partners: str,
    limit: int,
    as_json: bool,
    as_csv: bool,
    **parts: str | None,
) -> None:
    """The records nearest to the requested key, and the parts in which each differs.

    With --on, the driver, compiler, template and rest of the problem are those of a run on that device of this machine.
    The configuration that the run would use is printed first; with --json or --csv, on standard error. With --graph and
    -k the problem is that of detect with these options.
    """
    from mmsbgen.cli.db import printed_rows as rows
    from mmsbgen.cli.db.explain_output import would_use

    if kernel is None:
        raise InputError("name the kernel to explain: --kernel NAME")
    wanted: dict[str, Any] = {name.replace("_", " "): text for name, text in parts.items() if text is not None}
    if graph is not None and spec is None:
        raise InputError(f"--graph {graph} goes with --on DEVICE: the problem may depend on the device")
    asked = of_graph(graph, k, mini_batch, partners, spec)
    with _reading(ctx) as store:
        device = picked_device(store, device, shipped=True)
        checked_kernel(store, kernel)
        picked = checked_parameters(store, problem)
        wanted |= {f"problem.{name}": value for name, value in picked.items()}
        if spec is not None:
            wanted = would_use(store, spec, kernel, asked | picked, to_stderr=as_json or as_csv) | wanted
        found = rows.explain_rows(store, kernel, device, wanted, limit, _marks(store))
    show(Output(as_json, as_csv), rows.EXPLAIN, found)


@db.command("report")
@filter_options
@click.option(
    "-o",
    "--out",
    type=NamedPath(file_okay=False),
    default=Path("tuning-report"),
    show_default=True,
    help="Folder of the report.",
)
@click.option("--size", type=click.IntRange(min=1), help="Size (such as K) of the figures that are for one size.")
@click.option(
    "--baseline",
    type=NamedPath(dir_okay=False),
    help="Report of scripts/bench/bench_paper_cpu.py, for the speed-up over plain C.",
)
@output_options("Print JSON: where the page is, and the names of its pictures.")
@click.pass_context
def report_(
    ctx: click.Context,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    out: Path,
    size: int | None,
    baseline: Path | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Write a page with pictures of the records, or of those that match the filters.

    The page, report.html, needs no other file and no network; its pictures are written beside it as PNG files too.
    """
    from mmsbgen.report import need_matplotlib

    need_matplotlib()
    from mmsbgen.cli.report import written
    from mmsbgen.report.tuning.sweep_pictures import read_baseline
    from mmsbgen.report.tuning.tuning_page import tuning_page

    output = Output(as_json, as_csv)
    with _reading(ctx) as store:
        bundle, where = _picked_bundle(store, kernel, device, problem), store.location
    if not bundle.trials:
        raise InputError(
            f"no report was written, as {where} has no records that pass: tune first (mmsbgen tune), or filter less"
        )
    plain_c = None if baseline is None else read_baseline(baseline, kernel or "update_phi")
    written(ctx, lambda: tuning_page(bundle, where, size, plain_c), out, output)


def _picked_bundle(store: Store, kernel: str | None, device: str | None, problem: Sequence[str]) -> Bundle:
    """The records that pass the filters of a command."""
    from mmsbgen.db.exchange import formats

    picked: dict[str, Any] = {"kernel": checked_kernel(store, kernel), "problem": checked_parameters(store, problem)}
    return formats.chosen(store.bundle(), device=picked_device(store, device), **picked)


def _best_records(bundle: Bundle, most: int, reports: Sequence[Path]) -> Bundle:
    """The best records of each problem, without those of kernels that have changed since.

    Raises ``InputError`` if none are left.
    """
    from mmsbgen.db.exchange import best_records
    from mmsbgen.tuner.run.changed_keys import Present

    present = Present()
    chains = [chain for path in reports for chain in best_records.read_chain_times(path)]
    current = [trial for trial in bundle.trials if not present.program_changed(trial)]
    found = best_records.best_records(replace(bundle, trials=current), most, chains)
    if not found.trials:
        raise InputError("no record was made with the kernels of this version: tune, then export")
    return found


def _marks(store: Store) -> Marks:
    """Marks of quarantined trials, and of trials that are stale on this machine with this version."""
    from mmsbgen.cli.db.printed_rows import Marks
    from mmsbgen.tuner.run.changed_keys import Present

    return Marks(store.quarantined(), Present().differences)


def _reading(ctx: click.Context) -> Store:
    """Open the database read-only; print a note on standard error if there is none."""
    from mmsbgen.db.store.tuning_store import open_store

    store = open_store(ctx.obj, read_only=True)
    if store.missing and not is_quiet(ctx):
        click.echo(f"There is no tuning database at {store.location} yet: mmsbgen tune makes one.", err=True)
    return store
