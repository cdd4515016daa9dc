"""``mmsbgen report``: a page with pictures of what a run found."""

from __future__ import annotations

from pathlib import Path

import click

from mmsbgen.cli._logs import is_quiet, log_options

_HELP = """Write a page with pictures of the run in RUN, the folder that `mmsbgen detect -o` wrote.

The page, report.html, needs no other file and no network; its pictures are written beside it as PNG files too.
"""


@click.command(help=_HELP)
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the report; default: RUN/report."
)
@click.option(
    "--graph",
    type=click.Path(path_type=Path),
    help="The run's edge list, where it is no longer where the run found it: for the drawing and links.",
)
@log_options
def report(run: Path, out: Path | None, graph: Path | None) -> None:
    """Write the report and say where it is."""
    from mmsbgen.report.page import write
    from mmsbgen.report.run_page import run_page

    page = run_page(run, graph)
    written = write(page, out or run / "report")
    if not is_quiet(click.get_current_context()):
        click.echo(f"{written}, with {len(page.pictures)} pictures beside it")
