"""``mmsbgen evaluate``: how well communities agree with known ones."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.common import print_table
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of, reading_of_option
from mmsbgen.cli.shared.logs import json_option, log_options

if TYPE_CHECKING:
    from mmsbgen.graph import Graph, ReadingOptions
    from mmsbgen.scores import Scores, Structure

_HELP = """Compare the communities in COVER with the known ones in TRUTH, or score them by the links of a graph.

COVER is a folder that `mmsbgen detect -o` wrote, which tells the graph, or a file of communities. Such files have one
community a line (plain or .gz, # comments). Ids are separated by tabs, or by spaces where no id has any.

With TRUTH, all measures are over the same vertices: those of the graph if it is known, else those that are in a
community of either file. Communities of one vertex, or that occur twice, count as they are.

Look at the ONMI first. The average F1 rewards one community of all vertices where communities are large, the NMI of
Lancichinetti, Fortunato and Kertesz covers that have little in common.

Without TRUTH, the links give modularity, conductance, the share of links inside communities and internal density. They
reward communities with few links out of them, which need not be the true ones.
"""


@click.command(help=_HELP)
@click.argument("cover", type=NamedPath())
@click.argument("truth", type=NamedPath(), required=False)
@option("--graph", type=NamedPath(), help="File of the graph, as detect reads it.")
@reading_flags("format", "columns", "weights", "vertices")
@json_option("Print one JSON object.")
@log_options
def evaluate(cover: Path, truth: Path | None, graph: Path | None, as_json: bool, **given: Any) -> None:
    """Print the scores as a table or as JSON."""
    if not cover.exists():
        raise InputError(f"{cover}: no such file or folder; name a folder of results, or a file of communities")
    if cover.is_dir():
        read: Graph | None = _graph_of_run(cover, graph, reading_of(given))
        cover = cover / "communities.txt"
    else:
        reading = reading_of_option(given, graph)
        # Weights make no vertices, so that they need no rule beside TRUTH.
        of_links = reading if truth is None else replace(reading, weights="ignore")
        read = None if graph is None else _read_graph(graph, of_links)
    if truth is not None:
        _show(_scores_of(cover, truth, read), _print, as_json)
    elif read is not None:
        _show(_structure_of(cover, read), _print_structure, as_json)
    else:
        raise InputError("give TRUTH, known communities to compare with, or --graph to score by its links")


def _show(found: Any, table: Callable[[Any], None], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2, allow_nan=False))
    else:
        table(found)


def _graph_of_run(folder: Path, graph: Path | None, reading: ReadingOptions) -> Graph:
    from mmsbgen.export.run_folder import graph_of_run, read_run

    read_run(folder)  # refuses files that do not belong together
    if not reading.is_default:
        raise InputError(
            f"{folder} tells how its graph is read: leave out --format, --columns, --weights and --vertices"
        )
    read, why = graph_of_run(folder, graph)
    if read is None:
        raise InputError(f"the graph of {folder} is not at hand: {why}; give it with --graph")
    return read


def _scores_of(cover: Path, truth: Path, graph: Graph | None) -> Scores:
    from mmsbgen.base.id_text import canonical_word
    from mmsbgen.base.libraries import import_lightly
    from mmsbgen.scores import evaluate as compare
    from mmsbgen.scores import read_cover
    from mmsbgen.scores.cover import check_shared, refuse_table

    import_lightly()
    found, true = read_cover(cover), read_cover(truth)
    vertices = None
    if graph is not None:
        vertices = graph.ids.tolist()
        words = set(map(canonical_word, vertices))
        for file, read in ((cover, found), (truth, true)):
            refuse_table(read, words, str(file), graph.name)
    else:  # with a graph every id is one of its vertices, or refused
        check_shared(found, true, str(cover), str(truth))
    return compare(found, true, vertices)


def _structure_of(cover: Path, graph: Graph) -> Structure:
    from mmsbgen.base.id_text import canonical_word
    from mmsbgen.scores import read_cover, structure
    from mmsbgen.scores.cover import refuse_table

    found, ids = read_cover(cover), graph.ids
    refuse_table(found, set(map(canonical_word, ids.tolist())), str(cover), graph.name)
    return structure(found, ids[graph.links], ids.tolist())


def _read_graph(graph: Path, reading: ReadingOptions) -> Graph:
    from mmsbgen.graph import GraphWarning, load_graph

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # the run of detect told them
        return load_graph(graph, reading)


def _print_structure(found: Structure) -> None:
    def told(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.4f}"

    measures = {
        "modularity (Shen et al., for overlaps)": told(found.modularity),
        "conductance, mean of communities": told(found.conductance),
        "internal density, mean of communities": told(found.internal_density),
        "links inside a community": f"{found.coverage_of_links:.1%}",
        "vertices in a community": f"{found.coverage:.1%}",
        "communities of a covered vertex": f"{found.memberships:.2f}",
    }
    title = f"{found.communities} communities of {found.vertices} vertices, {found.links} links"
    print_table({title: "left", "value": "right"}, [{title: name, "value": v} for name, v in measures.items()])


def _print(scores: Scores) -> None:
    measures = {
        "ONMI (McDaid, Greene, Hurley; max)": scores.onmi,
        "ONMI (Lancichinetti, Fortunato, Kertesz)": scores.onmi_lfk,
        "average F1": scores.average_f1,
        "Omega index": scores.omega,
    }
    rows = [{"measure": name, "value": f"{value:.4f}"} for name, value in measures.items()]
    print_table({"measure": "left", "value": "right"}, rows)
    click.echo()
    extents = {
        "communities": (f"{scores.communities}", f"{scores.true_communities}"),
        "coverage": (f"{scores.coverage:.1%}", f"{scores.true_coverage:.1%}"),
        "memberships of a covered vertex": (f"{scores.memberships:.2f}", f"{scores.true_memberships:.2f}"),
    }
    rows = [{f"{scores.vertices} vertices": name, "cover": a, "truth": b} for name, (a, b) in extents.items()]
    print_table({f"{scores.vertices} vertices": "left", "cover": "right", "truth": "right"}, rows)
