"""``mmsbgen propagate``: spreads known labels of some vertices to all others."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import GuidedCommand, NamedPath, option, readable_path
from mmsbgen.cli.shared.configuration import device_options
from mmsbgen.cli.shared.console import shown
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of
from mmsbgen.cli.shared.logs import json_option, log_options, tell

if TYPE_CHECKING:
    from mmsbgen.algorithms import LabelShares
    from mmsbgen.graph import Arcs, Graph, ReadingOptions

_READ = {"pairs": "an id and its label", "communities": "a community"}


@click.command(
    cls=GuidedCommand,
    help="Spread the known labels of some vertices of GRAPH to all others. Prints a line for each vertex, with its id, "
    "its label and the label's share; with -o writes all shares.",
)
@click.argument("graph", type=NamedPath())
@option(
    "--labels",
    type=NamedPath(dir_okay=False),
    required=True,
    help="Lines `id label [share]`, or a community a line, separated by tabs or spaces (.csv: commas); plain or .gz.",
)
@option(
    "--labels-format",
    type=click.Choice(["pairs", "communities"]),
    help="Lines of --labels: pairs of an id and its label, or communities. By default as the lines look.",
)
@option("-o", "--out", type=NamedPath(file_okay=False), help="Folder for results, as detect writes them.")
@option(
    "--rule",
    type=click.Choice(["harmonic", "spread", "published"]),
    default="harmonic",
    help="harmonic holds known labels; spread may change them, and is better where few are known; published is for "
    "comparisons.",
)
@option(
    "--alpha",
    type=float,
    default=0.85,
    help="Weight of neighbours in spread and published; less suits graphs of many links a vertex.",
)
@option("--tolerance", type=float, default=1e-3, help="Largest change of a share at the end.")
@reading_flags("columns", "weights")
@option(
    "--weighted",
    is_flag=True,
    help="Spread by weights: the column that --columns names, or 'weight', or without a header the third; or the "
    "entries of a matrix.",
)
@option("--max-rounds", type=int, default=1000, help="Most rounds.", expert=True)
@device_options
@option("--overwrite", is_flag=True, help="Replace files of others, and results of other runs.", expert=True)
@json_option("Print the run record instead of lines or a summary.")
@log_options
@click.pass_context
def propagate(context: click.Context, /, graph: Path, labels: Path, out: Path | None, **given: Any) -> None:
    """Run the rounds; print lines, or write a folder."""
    from mmsbgen.algorithms import propagate as spread
    from mmsbgen.base.atomic_files import writable_folder
    from mmsbgen.export.label_folder import label_record, write_label_folder
    from mmsbgen.sampler.saved.result_folder import keep_foreign, keep_others, record_in, replaced

    if out is not None and not given["overwrite"]:
        keep_foreign(out)
        before = record_in(out)
        if before is not None and before.get("command") != "propagate":
            raise InputError(f"{out} has results of a detection: name another folder, or give them up by --overwrite")
    if given["rule"] == "harmonic" and context.get_parameter_source("alpha") is ParameterSource.COMMANDLINE:
        raise InputError("--alpha is of the rules spread and published: leave it out, or give --rule spread")
    reading = reading_of(given)
    if given["weighted"] and reading.weights is not None:
        raise InputError(f"--weights {reading.weights} makes links of the weights that --weighted uses: leave one out")
    weighted = given["weighted"] or (len(reading.columns or ()) == 3 and reading.weights is None)
    read, arcs = _read(readable_path(graph), weighted, reading)
    if out is not None and not given["overwrite"]:
        keep_others(out, read.digest)
        for text in replaced(out, None):
            click.echo(shown(text), err=True)
    options = {name: given[name] for name in ("rule", "alpha", "tolerance", "max_rounds", "labels_format")}
    with contextlib.nullcontext() if out is None else writable_folder(out):
        begin = time.perf_counter()
        found = spread(arcs, labels, **options, device=given["device"], database=given["database"])
        seconds = time.perf_counter() - begin
        named = {"labels": str(labels), "labels_format": found.labels_format, "weighted": weighted}
        record = label_record(found, read, options | named, seconds)
        if out is not None:
            record = write_label_folder(out, found, read, record)
    if given["as_json"]:
        click.echo(json.dumps(record, indent=2, allow_nan=False))
    elif out is None:
        click.echo(shown(_lines(found)), nl=False)
    if not given["as_json"]:
        _tell(found, record, out)


def _read(file: Path, weighted: bool, reading: ReadingOptions) -> tuple[Graph, Arcs]:
    """The graph's links, and its arcs with their weights."""
    import numpy as np

    from mmsbgen.graph import as_arcs, read_graph
    from mmsbgen.graph.building import build_graph

    if not weighted:
        try:
            graph = read_graph(file, reading)
        except InputError as error:
            told = str(error).replace("the model takes unweighted links.", "--weighted spreads by weights.")
            raise InputError(told) from error
        return graph, as_arcs(graph)
    arcs = as_arcs(file, weights="weight", columns=reading.columns)
    once = arcs.sources < arcs.targets
    first, second = (ends[once].astype(np.int64) for ends in (arcs.sources, arcs.targets))
    graph = build_graph(first, second, arcs.ids, name=arcs.name, directed=False, file=str(file))
    return replace(graph, reading=replace(reading, weights="ignore").given()), arcs


def _lines(found: LabelShares) -> str:
    from mmsbgen.base.id_text import canonical_word

    shares = found.shares.max(axis=1).tolist()
    rows = zip(found.ids.tolist(), found.labels.tolist(), shares, strict=True)
    return "".join(
        f"{canonical_word(name)}\t{canonical_word(label) if share > 0 else ''}\t{share:.6g}\n"
        for name, label, share in rows
    )


def _tell(found: LabelShares, record: dict[str, Any], out: Path | None) -> None:
    from mmsbgen.base.id_text import plural
    from mmsbgen.sampler.saved.result_folder import FILES

    n, missing = len(found.ids), record["unreached"]
    told = [
        f"{plural(found.classes.size, 'label')} of {plural(found.known.size, 'vertex', 'vertices')} spread to "
        f"{int(found.shares.any(axis=1).sum())} of {n} in {plural(found.rounds, 'round')} ({record['seconds']:.2f} s).",
        record["convergence"]["text"],
        f"{record['options']['labels']} was read as lines of {_READ[record['options']['labels_format']]}.",
    ]
    if missing["count"]:
        some = ", ".join(missing["such_as"][:3])
        told.append(f"No label reached {plural(missing['count'], 'vertex', 'vertices')}, such as {some}.")
    if out is not None:
        told.append(f"Written to {out}: {', '.join(reversed(FILES))}.")
    tell("\n".join(told))
