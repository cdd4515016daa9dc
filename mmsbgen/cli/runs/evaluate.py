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
from mmsbgen.cli.shared.common import print_table
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of_option
from mmsbgen.cli.shared.logs import json_option, log_options
from mmsbgen.cli.shared.parameter_types import NamedPath

if TYPE_CHECKING:
    from mmsbgen.graph import Graph, ReadingOptions
    from mmsbgen.scores import Scores, Structure

_HELP = """Compare the communities in COVER with the known ones in TRUTH, or score them by the links of a graph.

Files of communities have one a line (plain or .gz, # comments), as SNAP has them and as `mmsbgen detect -o` writes
communities.txt. Ids are separated by tabs, or by spaces where no id has any.

With TRUTH, all measures are over the same vertices: with --graph all vertices of that graph, those without a link or
a community too; otherwise those that are in a community of either file, which lowers the scores where the graph has
more. Communities of one vertex, or that occur twice, count as they are. Without --graph files that share no vertex
are refused.

Look at the ONMI first. The average F1 rewards one community of all vertices where communities are large, the NMI of
Lancichinetti, Fortunato and Kertesz covers that have little in common.

Weights of --graph are ignored with TRUTH, as they make no vertices.

Without TRUTH, --graph gives modularity, conductance, the share of links inside communities and internal density. They
reward communities with few links out of them, which need not be the true ones.
"""


@click.command(help=_HELP)
@click.argument("cover", type=NamedPath())
@click.argument("truth", type=NamedPath(), required=False)
@click.option("--graph", type=NamedPath(), help="File of the graph, as detect reads it.")
@reading_flags("format", "columns", "weights", "vertices")
@json_option("Print one JSON object.")
@log_options
def evaluate(cover: Path, truth: Path | None, graph: Path | None, as_json: bool, **given: Any) -> None:
    """Print the scores as a table or as JSON."""
    reading = reading_of_option(given, graph)
    if truth is None:
        if graph is None:
            raise InputError("give TRUTH, known communities to compare with, or --graph to score by its links")
        _show(_structure_of(cover, graph, reading), _print_structure, as_json)
        return
    # Weights make no vertices, so that they need no rule.
    _show(_scores_of(cover, truth, graph, replace(reading, weights="ignore")), _print, as_json)


def _show(found: Any, table: Callable[[Any], None], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2, allow_nan=False))
    else:
        table(found)


def _scores_of(cover: Path, truth: Path, graph: Path | None, reading: ReadingOptions) -> Scores:
    from mmsbgen.base.id_text import canonical_word
    from mmsbgen.scores import evaluate as compare
    from mmsbgen.scores import read_cover
    from mmsbgen.scores.cover import check_shared, refuse_table

    found, true = read_cover(cover), read_cover(truth)
    vertices = None
    if graph is not None:
        vertices = _read_graph(graph, reading).ids.tolist()
        words = set(map(canonical_word, vertices))
        for file, read in ((cover, found), (truth, true)):
            refuse_table(read, words, str(file), str(graph))
    else:  # with a graph every id is one of its vertices, or refused
        check_shared(found, true, str(cover), str(truth))
    return compare(found, true, vertices)


def _structure_of(cover: Path, graph: Path, reading: ReadingOptions) -> Structure:
    from mmsbgen.base.id_text import canonical_word
    from mmsbgen.scores import read_cover, structure
    from mmsbgen.scores.cover import refuse_table

    found, read = read_cover(cover), _read_graph(graph, reading)
    refuse_table(found, set(map(canonical_word, read.ids.tolist())), str(cover), str(graph))
    return structure(found, read.ids[read.links], read.ids.tolist())


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
