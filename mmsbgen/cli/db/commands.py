"""``mmsbgen db``: queries the tuning database, and moves its records between machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.db.filter_options import (
    checked_kernel,
    checked_parameters,
    current_best,
    filter_options,
    filters,
    marks_of,
    none,
    parameters,
    picked_device,
    picked_run,
    reading,
)
from mmsbgen.cli.printing.output_options import Output, made, moved, row_options, show
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.common import MmsbgenGroup, csv_text
from mmsbgen.cli.shared.completed_names import family_option
from mmsbgen.cli.shared.configuration import shared_option, shared_value
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of_option
from mmsbgen.cli.shared.graph_problem import graph_options, graph_run
from mmsbgen.cli.shared.logs import json_option, log_options, tell
from mmsbgen.families import resolve_family

#: Rows of a table of trials.
_TABLE_ROWS = 50
_STATUSES = ("ok", "failed", "invalid", "compile_error", "launch_error", "wrong_result", "timeout", "crashed")


@click.group(cls=MmsbgenGroup, help="Ask the tuning database, and move its records between machines.")
@shared_option(
    "database", "A file or an SQLAlchemy URL, instead of MMSBGEN_DATABASE_URL or the user's data folder.", metavar="URL"
)
@click.pass_context
def db(ctx: click.Context, database: str | None) -> None:
    """Store the chosen database for the subcommands."""
    ctx.obj = database


@db.command()
@filter_options
@option("--limit", type=click.IntRange(min=1), help="At most so many rows.")
@row_options
@click.pass_context
@option("--objective", default="time", metavar="NAME", help="Best by time, energy or edp.")
def best(ctx: click.Context, /, objective: str, limit: int | None, **given: Any) -> None:
    """The best configuration of each device, kernel and problem."""
    from mmsbgen.cli.db import printed_rows as rows
    from mmsbgen.db.records.ranking import check_objective

    check_objective(objective)
    output = Output.of(given)
    with reading(ctx) as store:
        found = rows.best_rows(store.trials(**filters(store, given)), marks_of(store), objective)
        show(output, rows.BEST, found, empty=none(store), limit=limit)


@db.command()
@filter_options
@option("--status", type=click.Choice(_STATUSES), help="Only trials that ended so; failed: not ok.")
@option("--run", metavar="UUID", help="Only trials of this tuning run; 8 digits that begin its name will do.")
@option("--limit", type=click.IntRange(min=1), help="Most rows; 50 for a table, else all.")
@row_options
@click.pass_context
def trials(ctx: click.Context, /, status: str | None, run: str | None, limit: int | None, **given: Any) -> None:
    """Trials, newest first, failures included."""
    from mmsbgen.cli.db import printed_rows as rows

    output = Output.of(given)
    with reading(ctx) as store:
        run = picked_run(store, run)
        most = limit or (None if output.as_json or output.as_csv else _TABLE_ROWS)
        # One more row tells whether there are more.
        cut = None if output.sort or most is None else most + 1
        found = store.trials(**filters(store, given), status=status, run=run, limit=cut)
        marks = marks_of(store)
        shown = [rows.trial_row(trial, marks) for trial in found]
        show(output, rows.TRIAL, shown, empty=none(store), limit=most)
    if limit is None and most is not None and len(found) > most:
        tell(f"These are {most}; --limit N shows more, --csv and --json have all.")


@db.command()
@row_options
@click.pass_context
def devices(ctx: click.Context, /, **given: Any) -> None:
    """Devices that have records, with their newest roofs."""
    from mmsbgen.cli.db import printed_rows as rows

    output = Output.of(given)
    with reading(ctx) as store:
        show(output, rows.DEVICE, rows.device_rows(store.devices(), store.roofs()), empty=none(store))


@db.command()
@option("--limit", type=click.IntRange(min=1), help="Most rows.")
@row_options
@click.pass_context
def runs(ctx: click.Context, /, limit: int | None, **given: Any) -> None:
    """Tuning runs, newest first."""
    from mmsbgen.cli.db import printed_rows as rows

    output = Output.of(given)
    with reading(ctx) as store:
        show(output, rows.RUN, [rows.run_row(run) for run in store.runs()], empty=none(store), limit=limit)


@db.command()
@option("--kernel", metavar="NAME", help="Only this kernel.")
@row_options
@click.pass_context
def quarantine(ctx: click.Context, /, kernel: str | None, **given: Any) -> None:
    """Configurations that failed in a run, and are not selected for the same key until they are tuned again."""
    from mmsbgen.cli.db import printed_rows as rows

    output = Output.of(given)
    with reading(ctx) as store:
        found = rows.quarantine_rows(store.quarantined(kernel=checked_kernel(store, kernel)))
        of = f" of {kernel}" if kernel else ""
        show(output, rows.QUARANTINE, found, empty=none(store, f"No configuration{of} is in quarantine."))


@db.command()
@click.argument("other", metavar="OTHER")
@json_option("Print JSON: how many trials, and where.")
@log_options
@click.pass_context
def merge(ctx: click.Context, other: str, as_json: bool) -> None:
    """Add the records of OTHER, a database file or an SQLAlchemy URL, that this database lacks.

    Either all of them are added or none. OTHER is only read; merging it again adds nothing.
    """
    from mmsbgen.db.store.tuning_store import open_store

    with open_store(other, read_only=True) as source:
        if source.missing:
            raise InputError(f"there is no tuning database at {source.location}: name one that has records")
        bundle = source.bundle()
        with open_store(ctx.obj) as store:
            count = store.add_bundle(bundle)
            place = store.location
        said = f"{count} of {len(bundle.trials)} trials of {source.location} added to {place}"
        moved(as_json, said, {"added": count, "trials": len(bundle.trials), "database": place})


@db.command("export")
@click.argument("file", type=NamedPath(dir_okay=False))
@filter_options
@option("--with-host", is_flag=True, help="Keep the names of the machines that tuned.")
@option("--best", "most", type=click.IntRange(1), metavar="N", help="Only the N best, by today's kernels.")
@json_option("Print JSON: how many trials, and where.")
@log_options
@click.pass_context
def export_(ctx: click.Context, /, file: Path, with_host: bool, most: int | None, as_json: bool, **given: Any) -> None:
    """Write records to FILE.

    A .csv file has a table of the trials, a .jsonl file JSON lines with all that is recorded. All records are written,
    or those that match the filters; FILE is compressed if its name ends in .gz. Host names are left out unless
    --with-host is given.
    """
    from mmsbgen.db.exchange import jsonl

    suffix = Path(file.name.lower().removesuffix(".gz")).suffix
    if suffix not in ("", ".jsonl", ".csv"):
        raise InputError(f"{file} has the suffix {suffix}: write to .jsonl or .csv")
    with reading(ctx) as store:
        bundle, marks = store.bundle(**filters(store, given)), marks_of(store)
    if most is not None:
        bundle = current_best(bundle, most)
    if not with_host:
        bundle = jsonl.anonymous(bundle)
    if suffix == ".csv":
        from mmsbgen.base.atomic_files import write_packed
        from mmsbgen.cli.db import printed_rows as rows

        trials = made((rows.trial_row(trial, marks) for trial in bundle.trials), rows.TRIAL)
        write_packed(file, csv_text([column.field for column in rows.TRIAL], trials))
    else:
        jsonl.write(bundle, file)
    said = f"{len(bundle.trials)} trials written to {file}"
    moved(as_json, said, {"trials": len(bundle.trials), "file": str(file)})


@db.command("import")
@click.argument("file", type=NamedPath(dir_okay=False))
@json_option("Print JSON: how many trials, and where.")
@log_options
@click.pass_context
def import_(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Add the records in FILE that the database lacks: all of them or, when FILE is malformed, none.

    FILE has the JSON lines that export writes.
    """
    from mmsbgen.db.exchange import jsonl
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.tuner.run.recorded_types import check_types

    bundle = jsonl.read(file)
    check_types(bundle, str(file))
    with open_store(ctx.obj) as store:
        count = store.add_bundle(bundle)
        said = f"{count} of {len(bundle.trials)} trials added to {store.location}"
        moved(as_json, said, {"added": count, "trials": len(bundle.trials), "database": store.location})


@db.command()
@filter_options
@option("--on", "spec", metavar="DEVICE", help="Explain what a run on this device of this machine gets.")
@family_option(None)
@graph_options
@option("--graph-columns", metavar="A,B[,W]", help="As --columns of detect: columns of the table in --graph.")
@reading_flags("format", "weights", "vertices")
@option("--limit", type=click.IntRange(min=1), default=3, help="The nearest so many.")
@row_options
@click.pass_context
def explain(
    ctx: click.Context, /, kernel: str | None, spec: str | None, family: str | None, limit: int, **given: Any
) -> None:
    """The records nearest to the requested key, and the parts in which each differs.

    With --on, the driver, compiler, template and rest of the problem are those of a run on that device of this machine.
    The configuration that the run would use is printed first; with --json or --csv, on standard error. With --graph and
    -k the problem is that of detect with these options, on the device set for all commands, else the best one.
    """
    from mmsbgen.backends import find_device
    from mmsbgen.cli.db import printed_rows as rows

    output, graph = Output.of(given), given["graph"]
    of, _, name = (kernel or "").rpartition("/")
    if graph is not None and spec is None:
        spec = find_device(shared_value(ctx, "device")).spec
    kernels = None if spec is None and family is None else resolve_family(family or of or "mmsb")
    if kernels is not None and kernel is None and len(kernels.kernels) == 1:
        kernel = name = next(iter(kernels.kernels))
    if kernel is None:
        raise InputError("name the kernel to explain: --kernel NAME")
    if kernels is not None and name not in kernels.kernels:
        raise InputError(f"{kernels.name} has no kernel {name!r}: name the family that has it, --family NAME|FILE.py")
    given["columns"] = given["graph_columns"]
    try:
        run = graph_run(given, reading_of_option(given, graph), kernels)
    except InputError as error:  # --columns are those of the printed table here
        raise InputError(str(error).replace("--columns", "--graph-columns")) from error
    asked = {} if run is None else run.problem(spec)
    with reading(ctx) as store:
        device = picked_device(store, given["device"], shipped=True)
        if family is None:
            checked_kernel(store, kernel)
        picked = checked_parameters(store, given["problem"]) if family is None else parameters(given["problem"])
        wanted: dict[str, Any] = {f"problem.{name}": value for name, value in picked.items()}
        if spec is not None and kernels is not None:
            aside = output.as_json or output.as_csv
            wanted = rows.would_use(store, spec, kernels, name, asked | picked, to_stderr=aside) | wanted
        found = rows.explain_rows(store, kernel, device, wanted, limit, marks_of(store), kernels)
        show(output, rows.EXPLAIN, found, empty=none(store))


@db.command("report")
@filter_options
@option("-o", "--out", type=NamedPath(file_okay=False), default=Path("tuning-report"), help="Folder of the report.")
@json_option("Print JSON: where the page is, and the names of its pictures.")
@log_options
@click.pass_context
def report_(ctx: click.Context, /, out: Path, as_json: bool, **given: Any) -> None:
    """Write a page with pictures of the records, or of those that match the filters.

    The page, report.html, needs no other file and no network; its pictures are written beside it as PNG files too.
    """
    from mmsbgen.report import need_matplotlib

    need_matplotlib()
    from mmsbgen.cli.runs.report import written
    from mmsbgen.report.tuning.tuning_page import tuning_page

    with reading(ctx) as store:
        bundle, where = store.bundle(**filters(store, given)), store.location
    if not bundle.trials:
        raise InputError(
            f"no report was written, as {where} has no records that pass: tune first (mmsbgen tune), or filter less"
        )
    written(ctx, lambda: tuning_page(bundle, where), out, as_json)
