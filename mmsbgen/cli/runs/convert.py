"""``mmsbgen convert``: the results of a detection as files for other programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import is_formula
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.common import keep_inputs
from mmsbgen.cli.shared.logs import log_options, tell

_FORMATS = ("csv", "gexf", "graphml", "netcdf", "parquet", "snap", "tsv")
_HELP = """Turn the results in RESULTS, a folder that `mmsbgen detect -o` or a file that MMSB.save wrote, into a file
for other programs.

gexf and graphml: the graph with its communities as attributes of the vertices, for Gephi and others.
Vertices are numbered. Of each: label (its id), community (where it has the largest share; -1 for none), communities
(all it is in, separated by |), n_communities, share and strength (of community), memberships (the share of each, as
community:share).

parquet, csv and tsv: a row for every membership, with id, community and share. The shares of a vertex are scaled to sum
to 1 over its communities; those of `mmsbgen propagate` are as they are.

snap: a community a line, ids separated by tabs.

netcdf (.nc): the draws of a run that samples, for ArviZ.

Communities are numbered from 0, the largest, as in communities.txt; those of `mmsbgen propagate` have their labels.
"""


@click.command(help=_HELP)
@click.argument("results", type=NamedPath())
@option("-o", "--out", type=NamedPath(dir_okay=False), required=True, help="The file to write; - prints it.")
@option("--to", "format", type=click.Choice(_FORMATS), help="Format; by default what the name of the file says.")
@option(
    "--graph",
    type=NamedPath(),
    help="The run's graph, where it is no longer where the run found it; for gexf and graphml.",
)
@log_options
def convert(results: Path, out: Path, format: str | None, graph: Path | None) -> None:
    """Convert a run folder or a saved model to one file."""
    from mmsbgen.base.id_text import plural
    from mmsbgen.export.export_files import NEED_LINKS, format_of, write
    from mmsbgen.export.run_folder import graph_of_run, read_run, refuse_file_of_run
    from mmsbgen.sampler.diagnostics.verdict import of_record

    chosen, verdict = format_of(out, format), None
    keep_inputs(out, results, graph)
    refuse_file_of_run(results)
    if not results.exists():
        raise InputError(f"{results} does not exist: name a folder of results, or a saved model")
    if results.is_file():
        from mmsbgen.estimator import MMSB

        if graph is not None:
            raise InputError(f"{results} has its graph in it: leave --graph out")
        found = MMSB.load(results).exported()
    else:
        found, record = read_run(results)
        verdict = of_record(record)
        if file := record["graph"].get("file"):
            keep_inputs(out, Path(file))
        if graph is not None or chosen in NEED_LINKS:
            links, why = graph_of_run(results, graph)
            if links is None:
                raise InputError(f"a {chosen} file has the links, and {why}: give the run's graph with --graph")
            found = replace(found, graph=links)
    write(found, out, chosen)
    tell(f"{out}: {len(found.cover.members)} communities of {len(found.ids)} vertices, {chosen}")
    if verdict is not None and verdict.refuted:
        tell(verdict.sentence)
    odd = [name for name in found.ids if isinstance(name, str) and is_formula(name)] if chosen in ("csv", "tsv") else []
    if odd:
        told = plural(len(odd), "id begins", "ids begin")
        tell(f"{told} as formulas do, such as {odd[0]!r}: import them into spreadsheets as text")
