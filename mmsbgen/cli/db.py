"""``mmsbgen db``: ask the tuning database, and move its records between machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from mmsbgen.cli._common import MmsbgenGroup, print_csv, print_json, print_table
from mmsbgen.cli._logs import is_quiet, json_option, log_options
from mmsbgen.cli._settings import shared_option
from mmsbgen.errors import InputError

if TYPE_CHECKING:
    from mmsbgen.cli._db_rows import Marks
    from mmsbgen.db.store import Store

F = TypeVar("F", bound=Callable[..., Any])
_FORMATS = ("jsonl", "t4", "cache")
_STATUSES = ("ok", "invalid", "compile_error", "launch_error", "wrong_result", "timeout", "crashed")


class Output(NamedTuple):
    """How rows are printed."""

    as_json: bool
    as_csv: bool


def output_options(command: F) -> F:
    """Add ``--json`` and ``--csv``."""
    command = log_options(json_option("Print JSON.")(command))
    return click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")(command)


def filter_options(command: F) -> F:
    """Add the filters that pick trials."""
    for option in (
        click.option("--problem", "problem", multiple=True, metavar="NAME=VALUE", help="A problem parameter."),
        click.option("--device", metavar="TEXT", help="A part of the device's backend, name, platform or vendor."),
        click.option("--kernel", metavar="NAME", help="A kernel, as NAME or FAMILY/NAME."),
    ):
        command = option(command)
    return command


@click.group(cls=MmsbgenGroup, help="Ask the tuning database, and move its records between machines.")
@shared_option(
    "database",
    "A file or an SQLAlchemy URL, instead of MMSBGEN_DATABASE_URL or the user's data folder.",
    metavar="URL",
)
@click.pass_context
def db(ctx: click.Context, database: str | None) -> None:
    """Keep the choice of database for the commands below."""
    ctx.obj = database


@db.command()
@filter_options
@click.option("--limit", type=click.IntRange(min=1), help="At most so many rows.")
@output_options
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
    from mmsbgen.cli import _db_rows as rows
    from mmsbgen.db.ranking import check_objective

    check_objective(objective)
    with _reading(ctx) as store:
        trials = store.trials(kernel=kernel, device=device, problem=parameters(problem))
        found = rows.best_rows(trials, _marks(store), objective)[:limit]
    _show(Output(as_json, as_csv), rows.BEST, found)


@db.command()
@filter_options
@click.option("--status", type=click.Choice(_STATUSES), help="Only trials that ended so.")
@click.option("--run", metavar="UUID", help="Only trials of this tuning run.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many.")
@output_options
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
    """What was tried, newest first, failures included."""
    from mmsbgen.cli import _db_rows as rows

    with _reading(ctx) as store:
        found = store.trials(
            kernel=kernel, device=device, problem=parameters(problem), status=status, run=run, limit=limit
        )
        marks = _marks(store)
    _show(Output(as_json, as_csv), rows.TRIAL, [rows.trial_row(trial, marks) for trial in found])


@db.command()
@output_options
@click.pass_context
def devices(ctx: click.Context, as_json: bool, as_csv: bool) -> None:
    """Devices that have records, with their newest roofs."""
    from mmsbgen.cli import _db_rows as rows

    with _reading(ctx) as store:
        found = rows.device_rows(store.devices(), store.roofs())
    _show(Output(as_json, as_csv), rows.DEVICE, found)


@db.command()
@click.option("--limit", type=click.IntRange(min=1), help="The newest so many.")
@output_options
@click.pass_context
def runs(ctx: click.Context, limit: int | None, as_json: bool, as_csv: bool) -> None:
    """Tuning runs, newest first."""
    from mmsbgen.cli import _db_rows as rows

    with _reading(ctx) as store:
        found = [rows.run_row(run) for run in store.runs()[:limit]]
    _show(Output(as_json, as_csv), rows.RUN, found)


@db.command()
@click.option("--kernel", metavar="NAME", help="Only this kernel.")
@output_options
@click.pass_context
def quarantine(ctx: click.Context, kernel: str | None, as_json: bool, as_csv: bool) -> None:
    """Configurations that failed in a run, and are not selected there until they are tuned again."""
    from mmsbgen.cli import _db_rows as rows

    with _reading(ctx) as store:
        found = rows.quarantine_rows(store.quarantined(kernel=kernel))
    _show(Output(as_json, as_csv), rows.QUARANTINE, found)


@db.command()
@click.argument("other", metavar="OTHER")
@json_option("Print JSON: how many trials, and where.")
@log_options
@click.pass_context
def merge(ctx: click.Context, other: str, as_json: bool) -> None:
    """Add the records of OTHER, a database file or an SQLAlchemy URL, that this database lacks.

    All of them are added or none, and OTHER is only read; doing it again adds nothing.
    """
    from mmsbgen.db.store import open_store

    with open_store(other, read_only=True) as source:
        if source.missing:
            raise InputError(f"there is no tuning database at {source.location}: name one that has records")
        bundle = source.bundle()
        with open_store(ctx.obj) as store:
            count = store.add_bundle(bundle)
            place = store.location
        said = f"{count} of {len(bundle.trials)} trials of {source.location} added to {place}"
        _moved(ctx, as_json, said, {"added": count, "trials": len(bundle.trials), "database": place})


@db.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@filter_options
@click.option("--format", "form", type=click.Choice(_FORMATS), default="jsonl", show_default=True, help="Of the file.")
@click.option("--with-host", is_flag=True, help="Keep the names of the machines that tuned.")
@json_option("Print JSON: how many trials, and where.")
@log_options
@click.pass_context
def export_(
    ctx: click.Context,
    file: Path,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    form: str,
    with_host: bool,
    as_json: bool,
) -> None:
    """Write records to FILE: as JSON lines, in the T4 format of results, or as a cache of kernel_tuner.

    All of them, or those that pass the filters; packed when FILE ends in .gz. The names of machines are left out.
    """
    from mmsbgen.db import formats

    with _reading(ctx) as store:
        bundle = formats.chosen(store.bundle(), kernel=kernel, device=device, problem=parameters(problem))
    formats.write(bundle if with_host else formats.anonymous(bundle), file, form)
    said = f"{len(bundle.trials)} trials written to {file}"
    _moved(ctx, as_json, said, {"trials": len(bundle.trials), "file": str(file)})


@db.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@filter_options
@json_option("Print JSON: how many trials, and where.")
@log_options
@click.pass_context
def import_(
    ctx: click.Context, file: Path, kernel: str | None, device: str | None, problem: Sequence[str], as_json: bool
) -> None:
    """Add the records in FILE that the database lacks: all of them or, when FILE is malformed, none.

    FILE is what export writes, or another program's T4 results or cache of kernel_tuner; of these, --kernel, --device
    and --problem say what the file does not. Records of other programs are kept and shown, never selected.
    """
    from mmsbgen.db import formats
    from mmsbgen.db.foreign import Named
    from mmsbgen.db.store import open_store

    bundle = formats.read(file, Named(kernel or "", device or "", parameters(problem)))
    with open_store(ctx.obj) as store:
        count = store.add_bundle(bundle)
        said = f"{count} of {len(bundle.trials)} trials added to {store.location}"
        _moved(ctx, as_json, said, {"added": count, "trials": len(bundle.trials), "database": store.location})


@db.command()
@filter_options
@click.option("--driver", metavar="TEXT", help="The driver's version.")
@click.option("--compiler", metavar="TEXT", help="The compiler's name.")
@click.option("--compiler-version", metavar="TEXT", help="The compiler's version.")
@click.option("--compiler-options", metavar="TEXT", help="The compiler's options.")
@click.option("--template-digest", metavar="TEXT", help="The digest of the kernel's template.")
@click.option("--on", "spec", metavar="DEVICE", help="Explain what a run on this device of this machine gets.")
@click.option("--limit", type=click.IntRange(min=1), default=3, show_default=True, help="The nearest so many.")
@output_options
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    kernel: str | None,
    device: str | None,
    problem: Sequence[str],
    spec: str | None,
    limit: int,
    as_json: bool,
    as_csv: bool,
    **parts: str | None,
) -> None:
    """The records nearest to what is asked for, and the parts in which each differs.

    With --on, of a device of this machine, driver, compiler, template and the rest of the problem are what a run would
    have, and what it would use is said first.
    """
    from mmsbgen.cli import _db_rows as rows

    if kernel is None:
        raise InputError("name the kernel to explain: --kernel NAME")
    wanted: dict[str, Any] = {name.replace("_", " "): text for name, text in parts.items() if text is not None}
    wanted |= {f"problem.{name}": value for name, value in parameters(problem).items()}
    with _reading(ctx) as store:
        if spec is not None:
            wanted = _would_use(store, spec, kernel, parameters(problem)) | wanted
        found = rows.explain_rows(store, kernel, device, wanted, limit, _marks(store))
    _show(Output(as_json, as_csv), rows.EXPLAIN, found)


@db.command("report")
@filter_options
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tuning-report"),
    show_default=True,
    help="Folder of the report.",
)
@click.option("--size", type=click.IntRange(min=1), help="Size (such as K) of the figures that are for one size.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Report of scripts/bench/bench_paper_cpu.py, for the speed-up over plain C.",
)
@json_option("Print JSON: where the page is, and the names of its pictures.")
@log_options
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
) -> None:
    """Write a page with pictures of the records, or of those that pass the filters.

    The page, report.html, needs no other file and no network; its pictures are written beside it as PNG files too.
    """
    from mmsbgen.report import need_matplotlib

    need_matplotlib()
    from mmsbgen.cli.report import written
    from mmsbgen.db import formats
    from mmsbgen.report.sweeps import read_baseline
    from mmsbgen.report.tuning_page import tuning_page

    with _reading(ctx) as store:
        bundle = formats.chosen(store.bundle(), kernel=kernel, device=device, problem=parameters(problem))
        where = store.location
    if not bundle.trials:
        raise InputError(
            f"no report was written, as {where} has no records that pass: tune first (mmsbgen tune), or filter less"
        )
    plain_c = None if baseline is None else read_baseline(baseline, kernel or "update_phi")
    written(ctx, lambda: tuning_page(bundle, where, size, plain_c), out, as_json)


def _would_use(store: Store, spec: str, kernel: str, problem: dict[str, Any]) -> dict[str, Any]:
    """Say what a run would use; returns the parts of the key that it looks up."""
    from mmsbgen.backends.discovery import discover, select_device
    from mmsbgen.db.nearness import parts
    from mmsbgen.db.selection import Index
    from mmsbgen.db_keys import key_of
    from mmsbgen.families import family
    from mmsbgen.runtime import look_up, why
    from mmsbgen.space import describe

    named, _, name = kernel.rpartition("/")
    found = family(named or "mmsb")
    asked, info, index = found.problem(**problem), select_device(spec, *discover()), Index(store)
    selection = look_up(index, info, found, name, asked)
    key = key_of(info, found.kernel(name), asked)
    click.echo(f"{name} on {info.name} ({info.platform}) would use: {describe(selection.config)}", err=True)
    click.echo(f"  tier {selection.tier}: {why(selection)}", err=True)
    for failure in store.quarantined(family=key.kernel.family, kernel=name):
        if failure.key == key:
            click.echo(f"  quarantined here: {describe(failure.config)} ({failure.reason})", err=True)
    return parts(key)


def parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Problem parameters from ``NAME=VALUE``; a value is JSON, or else the text itself.

    Raises ``InputError`` for what has no name or no ``=``.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError(f"--problem {text!r}: write it as NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _moved(ctx: click.Context, as_json: bool, said: str, counts: dict[str, Any]) -> None:
    """Say what became of records: as JSON on standard output, else in words on standard error."""
    if as_json:
        click.echo(json.dumps(counts, indent=2))
    elif not is_quiet(ctx):
        click.echo(said, err=True)


def _marks(store: Store) -> Marks:
    """What is quarantined, and what is stale on this machine and with the package as it is."""
    from mmsbgen.cli._db_rows import Marks
    from mmsbgen.db_keys import Present

    return Marks(store.quarantined(), Present().differences)


def _reading(ctx: click.Context) -> Store:
    """The database, read only; a word on standard error when there is none."""
    from mmsbgen.db.store import open_store

    store = open_store(ctx.obj, read_only=True)
    if store.missing and not is_quiet(ctx):
        click.echo(f"There is no tuning database at {store.location} yet: mmsbgen tune makes one.", err=True)
    return store


def _show(output: Output, columns: Sequence[Any], rows: Sequence[dict[str, Any]]) -> None:
    if output.as_json and output.as_csv:
        raise InputError("--json and --csv exclude each other")
    if output.as_json:
        print_json(rows)
    elif output.as_csv:
        print_csv([column.field for column in columns], rows)
    elif rows:
        shown = [column for column in columns if column.title]
        sides = {column.title: column.side for column in shown}
        print_table(sides, [{c.title: c.text(row[c.field]) for c in shown} for row in rows])
    else:
        click.echo("no records", err=True)
