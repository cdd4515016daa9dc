"""``mmsbgen evaluate``: how well communities agree with known ones."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.common import print_table
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of
from mmsbgen.cli.shared.logs import json_option, log_options
from mmsbgen.cli.shared.parameter_types import NamedPath

if TYPE_CHECKING:
    from mmsbgen.scores import Scores

_HELP = """Compare the communities in COVER with the known ones in TRUTH.

Both files have one community a line, ids separated by tabs or spaces (plain or .gz, # comments), as SNAP has them and
as `mmsbgen detect -o` writes communities.txt.

All measures are over the same vertices: with --graph all vertices of that graph, those without a link or a community
too; otherwise those that are in a community of either file, which lowers the scores where the graph has more.
Communities of one vertex, or that occur twice, count as they are. Without --graph files that share no
vertex are refused.

Look at the ONMI first. The average F1 rewards one community of all vertices where communities are large, the NMI of
Lancichinetti, Fortunato and Kertesz covers that have little in common.
"""


@click.command(help=_HELP)
@click.argument("cover", type=NamedPath())
@click.argument("truth", type=NamedPath())
@click.option("--graph", type=NamedPath(), help="File of a graph with all vertices, as detect reads it.")
@reading_flags("format", "columns", "vertices")
@json_option("Print one JSON object.")
@log_options
def evaluate(cover: Path, truth: Path, graph: Path | None, as_json: bool, **given: Any) -> None:
    """Print the scores as a table or as JSON."""
    from mmsbgen.scores import evaluate as compare
    from mmsbgen.scores import read_cover
    from mmsbgen.scores.cover import check_shared, refuse_table

    found, true = read_cover(cover), read_cover(truth)
    vertices = None
    # Weights make no vertices, so that they need no rule.
    reading = reading_of(given | {"weights": "ignore"})
    if graph is None and reading != reading_of({"weights": "ignore"}):
        raise InputError("--format, --columns and --vertices say how the file of --graph is read: give that too")
    if graph is not None:
        from mmsbgen.base.id_text import canonical_word
        from mmsbgen.graph import GraphWarning, load_graph

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)  # about links, which do not matter here
            vertices = load_graph(graph, reading).ids.tolist()
        words = set(map(canonical_word, vertices))
        for file, read in ((cover, found), (truth, true)):
            refuse_table(read, words, str(file), str(graph))
    else:  # with a graph every id is one of its vertices, or refused
        check_shared(found, true, str(cover), str(truth))
    scores = compare(found, true, vertices)
    if as_json:
        click.echo(json.dumps(asdict(scores), indent=2, allow_nan=False))
    else:
        _print(scores)


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
