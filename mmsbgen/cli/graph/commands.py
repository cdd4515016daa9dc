"""``mmsbgen graph``: algorithms on a graph, with a value for each vertex."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.cli.shared.command_options import NamedPath, once, option, readable_path
from mmsbgen.cli.shared.common import MmsbgenGroup, keep_inputs, print_or_write
from mmsbgen.cli.shared.configuration import device_options
from mmsbgen.cli.shared.declared_flags import reading_flags, reading_of
from mmsbgen.cli.shared.logs import log_options, tell

if TYPE_CHECKING:
    from mmsbgen.algorithms import VertexValues
    from mmsbgen.graph import Arcs

#: Seeds of one run, which bounds its memory.
_SEEDS_AT_ONCE = 64
#: Part of a seed's scores that may be missing untold.
_TOLD = 1e-3
_SOURCE = once("--source", metavar="ID", required=True, help="The vertex that paths begin at.")


@click.group(cls=MmsbgenGroup, help="Run an algorithm on a graph: a line for each vertex, with its id and its value.")
def graph() -> None:
    """Group of the algorithms."""


def _algorithm(name: str, help: str, *options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A command of the group; its function takes what all algorithms do, and its own ``options``."""

    def add(function: Any) -> Any:
        for one in reversed(
            [
                click.argument("graph", type=NamedPath()),
                *options,
                option("--directed", is_flag=True, help="u v of the file is an arc from u to v, not a link."),
                reading_flags("format", "columns"),
                option("-o", "--out", type=NamedPath(dir_okay=False), help="Write a file instead of printing."),
                device_options,
                log_options,
            ]
        ):
            function = one(function)
        return graph.command(name, help=help)(function)

    return add


@_algorithm(
    "bfs",
    "Number of arcs on a shortest path from a vertex to each other; inf where there is none. A column for each source.",
    option("--source", metavar="ID", required=True, multiple=True, help="Vertex that paths begin at; repeatable."),
)
def bfs(graph: Path, source: tuple[str, ...], **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given) as (arcs, on, done):
        one = len(source) == 1
        found = algorithms.bfs(arcs, source[0], **on) if one else algorithms.multi_source_bfs(arcs, source, **on)
        levels = found.values.reshape(arcs.n_vertices, -1)
        columns = ["\t".join(["inf" if x < 0 else str(x) for x in row]) for row in levels.tolist()]
        done(
            "".join(f"{name}\t{row}\n" for name, row in zip(found.ids.tolist(), columns, strict=True)),
            f"{(levels >= 0).any(axis=1).sum()} reached, the farthest at {levels.max()}",
        )


@_algorithm(
    "closeness", "Closeness: how near a vertex is to the others, by arcs on paths from them; as networkx defines it."
)
def closeness(graph: Path, **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given) as (arcs, on, done):
        found = algorithms.closeness(arcs, **on)
        done(found, f"the largest closeness is {found.values.max(initial=0):.6g}", "{:.6g}".format)


@_algorithm(
    "sssp",
    "Least sum of weights on a path from a vertex to each other one; inf where there is none. Weights are the column "
    "that --columns names, or 'weight', or without a header the third; or the entries of a matrix.",
    _SOURCE,
)
def sssp(graph: Path, source: str, **given: Any) -> None:
    import numpy as np

    from mmsbgen import algorithms

    with _run(graph, given, weights="weight") as (arcs, on, done):
        found = algorithms.sssp(arcs, source, **on)
        reached = found.values[np.isfinite(found.values)]
        done(found, f"{reached.size} reached, the farthest at {reached.max():.6g}", repr)


@_algorithm(
    "widest",
    "Width of the widest path from a vertex to each other one, its least weight; 0 where there is none. Weights are as "
    "for sssp.",
    _SOURCE,
)
def widest(graph: Path, source: str, **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given, weights="weight") as (arcs, on, done):
        found = algorithms.widest_paths(arcs, source, **on)
        done(found, f"{(found.values > 0).sum()} reached", repr)


@_algorithm("components", "The number of each vertex's connected component; directions do not count.")
def components(graph: Path, **given: Any) -> None:
    import numpy as np

    from mmsbgen import algorithms

    with _run(graph, given) as (arcs, on, done):
        found = algorithms.components(arcs, **on)
        sizes = np.bincount(found.values)
        done(found, f"{plural(sizes.size, 'component')}, the largest of {sizes.max(initial=0)}", str)


@_algorithm(
    "cores",
    "Core numbers: the largest k for which a vertex is in a subgraph of least degree k.",
    option("--k", type=click.IntRange(0), help="Only print the ids of this core's vertices."),
)
def cores(graph: Path, k: int | None, **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given) as (arcs, on, done):
        if k is not None:
            found = algorithms.k_core(arcs, k, **on)
            members = found.ids[found.values].tolist()
            done("".join(f"{name}\n" for name in members), f"{len(members)} in the {k}-core")
            return
        found = algorithms.cores(arcs, **on)
        most = found.values.max(initial=0)
        done(found, f"the largest core number is {most}, of {(found.values == most).sum()}", str)


@_algorithm(
    "triangles",
    "Triangles of each vertex, and the share of the pairs of its neighbours that are linked; directions do not count.",
)
def triangles(graph: Path, **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given) as (arcs, on, done):
        found = algorithms.triangles(arcs, **on)
        shares = found.clustering
        rows = zip(found.ids.tolist(), found.values.tolist(), shares.tolist(), strict=True)
        done(
            "".join(f"{name}\t{count}\t{share:.6g}\n" for name, count, share in rows),
            f"{plural(found.total, 'triangle')}, {found.transitivity:.6g} of all pairs of neighbours are linked, "
            f"{shares.mean() if shares.size else 0:.6g} of a vertex's on average",
        )


@_algorithm(
    "pagerank",
    "PageRank: the share of its steps that a random walk with restarts spends at each vertex.",
    option("--source", multiple=True, metavar="ID", help="Vertex where walks restart; by default any."),
    option("--alpha", type=float, default=0.85, help="Probability that a walk goes on."),
    option("--tolerance", type=float, default=1e-6, help="End at a smaller mean change of ranks."),
)
def pagerank(graph: Path, source: tuple[str, ...], alpha: float, tolerance: float, **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given, weights=_named(given)) as (arcs, on, done):
        again = dict.fromkeys(source, 1.0) or None
        found = algorithms.pagerank(arcs, alpha=alpha, personalization=again, tol=tolerance, max_iter=1000, **on)
        largest = f"the largest rank is {found.values.max(initial=0):.6g}"
        done(found, f"{plural(found.rounds or 0, 'round')}, {largest}", repr)


@_algorithm(
    "rank",
    "Personalised PageRank of many seeds at once: for each, the vertices that walks from it visit most. Lines have the "
    "seed, an id and its score.",
    option(
        "--seeds", type=NamedPath(dir_okay=False), required=True, help="A seed a line: an id, or several to begin at."
    ),
    option("--top", type=click.IntRange(1), default=100, help="Vertices of each seed."),
    option("--alpha", type=float, default=0.85, help="Probability that a walk goes on."),
    option("--tolerance", type=float, default=1e-6, help="End when the scores of a seed change by no more in all."),
    option("--max-rounds", type=int, default=1000, help="Most rounds.", expert=True),
)
def rank(graph: Path, seeds: Path, top: int, alpha: float, tolerance: float, max_rounds: int, **given: Any) -> None:
    import numpy as np

    from mmsbgen import algorithms
    from mmsbgen.algorithms.known_labels import lines_of_ids

    how: dict[str, Any] = {"alpha": alpha, "tolerance": tolerance, "max_rounds": max_rounds}
    with _run(graph, given | {"seeds": seeds}, weights=_named(given)) as (arcs, on, done):
        if not (lines := lines_of_ids(seeds, arcs)):
            raise InputError(f"{seeds} has no seed; give an id a line")
        rows, rounds, missing = [], 0, 0.0
        for first in range(0, len(lines), _SEEDS_AT_ONCE):
            part = lines[first : first + _SEEDS_AT_ONCE]
            found = algorithms.personalized_pagerank(arcs, part, **how, **on)
            rounds = max(rounds, found.rounds or 0)
            missing = max(missing, 1 - float(found.values.sum(axis=0).min()))
            for line, scores in zip(part, found.values.T, strict=True):
                best = np.argsort(-scores, kind="stable")[:top]
                best = best[scores[best] > 0]
                names, values = found.ids[best].tolist(), scores[best].tolist()
                rows += [f"{','.join(line)}\t{name}\t{value:.6g}\n" for name, value in zip(names, values, strict=True)]
        lacks = f", scores lack up to {missing:.2g} of 1: give a smaller --tolerance" if missing > _TOLD else ""
        done("".join(rows), f"{len(lines)} seeds, {rounds} rounds{lacks}")


class _Groups(click.ParamType):  # type: ignore[type-arg]
    """Numbers of groups, separated by commas."""

    name = "K[,K2,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = str(value).split(",")
        if not all(word.isdecimal() and int(word) >= 2 for word in words):
            self.fail(f"{value!r}: give whole numbers of 2 or more, such as 4 or 2,3,4.", param, ctx)
        return sorted({int(word) for word in words})


@_algorithm(
    "blockmodel",
    "Groups of vertices with alike links, by belief propagation of the stochastic blockmodel. Lines have an id, its "
    "group and how probable that is. With several K, a table on standard error compares their free energies and that "
    "of one group; the groups of the least are printed.",
    option("-k", "numbers", type=_Groups(), required=True, help="Numbers of groups."),
    option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Of the starts."),
    option("--starts", type=click.IntRange(1), default=4, help="Starts for each K.", expert=True),
    option("--max-rounds", type=int, default=500, help="Most rounds of a start.", expert=True),
)
def blockmodel(graph: Path, numbers: list[int], seed: int, starts: int, max_rounds: int, **given: Any) -> None:
    from mmsbgen import algorithms

    with _run(graph, given) as (arcs, on, done):
        how: dict[str, Any] = {"seed": seed, "starts": starts, "max_rounds": max_rounds}
        tried = numbers if len(numbers) == 1 else [1, *numbers]
        every = [algorithms.blockmodel(arcs, k, **how, **on) for k in reversed(tried)][::-1]
        found = min(every, key=lambda one: one.description)
        if len(every) > 1:
            tell("K\tfree energy\twith parameters")
            for k, one in zip(tried, every, strict=True):
                tell(f"{k}\t{one.free_energy:.6f}\t{one.description:.6f}")
        chances = found.marginals.max(axis=1, initial=0).tolist()
        rows = zip(found.ids.tolist(), found.labels.tolist(), chances, strict=True)
        rest = "" if found.converged else ", which were not enough: give more --max-rounds"
        done(
            "".join(f"{name}\t{group}\t{chance:.6g}\n" for name, group, chance in rows),
            f"{plural(found.shares.size, 'group')}, free energy {found.free_energy:.6f} a vertex, "
            f"{plural(found.rounds, 'round')}{rest}",
        )


def _named(given: dict[str, Any]) -> str | None:
    """Weights are read where --columns names their column."""
    return "weight" if len(reading_of(given).columns or ()) == 3 else None


@contextmanager
def _run(file: Path, given: dict[str, Any], weights: str | None = None) -> Iterator[tuple[Arcs, dict[str, Any], Any]]:
    """Read the graph; yields it, the options of devices, and what writes the result and sums it up."""
    from mmsbgen.base.atomic_files import place_of
    from mmsbgen.graph import as_arcs

    keep_inputs(given["out"], file, given.get("seeds"))
    with nullcontext() if given["out"] is None else place_of(given["out"]):
        reading, how = reading_of(given), {"directed": given["directed"], "weights": weights}
        arcs = as_arcs(readable_path(file), columns=reading.columns, format=reading.format, **how)
        begin = time.perf_counter()

        def done(found: VertexValues | str, summary: str, text: Callable[[Any], str] = str) -> None:
            seconds = time.perf_counter() - begin
            print_or_write(found if isinstance(found, str) else _lines(found, text), given["out"])
            where = f"{given['out']}: " if given["out"] else ""
            tell(f"{where}{arcs.n_vertices} vertices, {arcs.n_arcs} arcs; {summary} ({seconds:.2f} s)")

        yield arcs, {name: given[name] for name in ("device", "database")}, done


def _lines(found: VertexValues, text: Callable[[Any], str]) -> str:
    rows = zip(found.ids.tolist(), found.values.tolist(), strict=True)
    return "".join(f"{name}\t{text(value)}\n" for name, value in rows)
