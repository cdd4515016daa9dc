"""``mmsbgen report``: a page with pictures of what a run found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import stage
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.logs import is_quiet, json_option, log_options

if TYPE_CHECKING:
    from mmsbgen.report.page import HtmlPage

_HELP = """Write a page with pictures of RUN: the folder of `mmsbgen detect -o`, or the model of `mmsbgen mf fit`.

The page, report.html, needs no other file and no network; its pictures are written beside it as PNG files too.
"""


@click.command(help=_HELP)
@click.argument("run", type=NamedPath())
@option(
    "-o",
    "--out",
    type=NamedPath(file_okay=False),
    help="Folder of the report; default: RUN/report, or MODEL-report beside a model.",
)
@option(
    "--graph",
    type=NamedPath(),
    help="The run's graph, where it is no longer where the run found it: for the drawing and links.",
)
@json_option("Print JSON: where the page is, and the names of its pictures.")
@log_options
@click.pass_context
def report(ctx: click.Context, run: Path, out: Path | None, graph: Path | None, as_json: bool) -> None:
    """Write the report and say where it is."""
    from mmsbgen.report import need_matplotlib

    need_matplotlib()
    if run.is_file():
        from mmsbgen.export.run_folder import refuse_file_of_run
        from mmsbgen.report.factorisation_page import factorisation_page

        refuse_file_of_run(run)
        if graph is not None:
            raise InputError("--graph is for the folder of a detection: leave it out")
        written(ctx, lambda: factorisation_page(run), out or run.with_name(f"{run.stem}-report"), as_json)
        return
    from mmsbgen.report.run.run_page import run_page

    written(ctx, lambda: run_page(run, graph), out or run / "report", as_json)


def written(ctx: click.Context, make: Callable[[], HtmlPage], out: Path, as_json: bool) -> None:
    """Make a page, write it and say where it is."""
    from mmsbgen.report.page import write

    with stage("drawing"):
        page = make()
    file = write(page, out)
    told = {"page": str(file), "pictures": [picture.name for picture in page.pictures]}
    if as_json:
        click.echo(json.dumps(told, indent=2))
    elif not is_quiet(ctx):
        click.echo(f"{file}; pictures beside it: {len(page.pictures)}")
