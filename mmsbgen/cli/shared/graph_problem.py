"""Options of kernel commands that derive the problem from a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.completed_names import mini_batch_names, partner_names

if TYPE_CHECKING:
    from mmsbgen.graph import ReadingOptions, Split
    from mmsbgen.kernels.family import KernelFamily
    from mmsbgen.sampler.options.options import Options

F = TypeVar("F", bound=Callable[..., Any])


def graph_options(command: F) -> F:
    """Add ``--graph``, ``-k``, ``--mini-batch`` and ``--partners``."""
    for name, default, complete, of in (
        ("--partners", "stratified", partner_names, "Partners of stars"),
        ("--mini-batch", "block", mini_batch_names, "Mini-batches"),
    ):
        help = f"{of}, with --graph."
        command = option(name, default=default, shell_complete=complete, help=help, expert=True)(command)
    for add in (
        option("-k", "--communities", "k", type=click.IntRange(min=1), help="Communities, with --graph."),
        option("--graph", type=NamedPath(), help="For a run of `mmsbgen detect` on this graph."),
    ):
        command = add(command)
    return command


@dataclass(frozen=True)
class GraphRun:
    """The split graph and the options of ``mmsbgen detect GRAPH -k K``."""

    parts: Split
    options: Options

    def problem(self, device: str | None) -> dict[str, Any]:
        """The problem parameters of the run on a device."""
        from mmsbgen.backends import find_device
        from mmsbgen.sampler.chain.chain_problem import problem_of

        return dict(problem_of(self.parts, self.options, find_device(device)))


def graph_run(given: dict[str, Any], reading: ReadingOptions, family: KernelFamily | None) -> GraphRun | None:
    """The run of ``mmsbgen detect GRAPH -k K`` with the options of :func:`graph_options`; None without a graph.

    Raises ``InputError`` if only one of ``graph`` and ``k`` is given, or if ``family`` is not that of ``detect``.
    """
    graph, k = given["graph"], given["k"]
    if family is not None and family.name != "mmsb" and (graph is not None or k is not None):
        named = f"-k {k}" if graph is None else f"--graph {graph}"
        sizes = " ".join(f"-p {parameter.name}={parameter.default}" for parameter in family.parameters)
        data = f"its file as --data {graph or 'FILE'}, or " if family.read is not None else ""
        raise InputError(f"{named} is for the family mmsb; give {data}the sizes of {family.name} as {sizes}")
    if graph is None:
        if k is not None:
            raise InputError(f"-k {k} goes with --graph; without a graph give sizes as --problem NAME=VALUE")
        return None
    if k is None:
        raise InputError("--graph needs the number of communities too, for example -k 50")
    from mmsbgen.graph import read_graph
    from mmsbgen.sampler.chain.chain_problem import split_of
    from mmsbgen.sampler.options.options import Options

    options = Options(n_communities=k, mini_batch=given["mini_batch"], partners=given["partners"])
    return GraphRun(split_of(read_graph(graph, reading), options), options)
