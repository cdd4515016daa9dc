"""``mmsbgen convert``: the results of a detection as files for other programs."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

from mmsbgen.cli._logs import is_quiet, log_options
from mmsbgen.errors import InputError

_FORMATS = ("csv", "gexf", "graphml", "parquet", "snap")
_HELP = """Turn the results in RESULTS, a folder that `mmsbgen detect -o` or a file that MMSB.save wrote, into a file
for other programs.

gexf and graphml: the graph with its communities as attributes of the vertices, for Gephi and others; of a folder they
need --graph.
Of each vertex: community (where it has the largest share; -1 for none), communities (all it is in, separated by |),
n_communities, share and strength (of community), memberships (the largest shares, as community:share).

parquet and csv: a row for every share that was kept, with id, community, share and member (whether the rule puts the
vertex there).

snap: a community a line, ids separated by tabs.

Communities go by their numbers in the model, those that the summary shows.
"""


@click.command(help=_HELP)
@click.argument("results", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write.")
@click.option("--to", "format", type=click.Choice(_FORMATS), help="Format; by default what the name of the file says.")
@click.option("--graph", type=click.Path(path_type=Path), help="The edge list that was given to detect.")
@click.option(
    "--top", type=click.IntRange(min=0), default=5, show_default=True, help="Shares in the attributes of a vertex."
)
@log_options
def convert(results: Path, out: Path, format: str | None, graph: Path | None, top: int) -> None:
    """Read the folder, write the file."""
    from mmsbgen.export.files import format_of, write
    from mmsbgen.export.folder import read_folder
    from mmsbgen.graph import GraphWarning, load_edge_list

    chosen = format_of(out, format)
    links = None
    if graph is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)  # detect has said so
            links = load_edge_list(graph)
    if results.is_file():
        from mmsbgen.estimator import MMSB

        if links is not None:
            raise InputError(f"{results} has its graph in it: leave --graph out")
        found = MMSB.load(results).exported()
    else:
        found = read_folder(results, links)
    write(found, out, chosen, top)
    if not is_quiet(click.get_current_context()):
        click.echo(f"{out}: {len(found.cover.members)} communities of {len(found.ids)} vertices, {chosen}", err=True)
