"""The problem of a run: the sizes and types by which its kernels are selected and tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mmsbgen.backends import discover
from mmsbgen.backends.base import DeviceInfo
from mmsbgen.backends.discovery import select_device
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule
from mmsbgen.families.mmsb.sparse.sparse_sizes import DEGREE, nearest_degree
from mmsbgen.graph import Graph, Split, as_graph, split
from mmsbgen.kernels.problem import Problem
from mmsbgen.sampler.options.options import Options


def partner_rule(n_vertices: int, options: Options) -> PartnerRule:
    """How partners are drawn in a graph of ``n_vertices``; ``n_partners`` is clamped to the number of other vertices.

    If all other vertices are partners, or only one is, strata make no difference and the rule is ``uniform``.  Shared
    partners of a star are clamped to ``n_vertices``; then every vertex is taken once.
    """
    if options.sparse:
        return PartnerRule("all", n_vertices, seed=options.seed)
    if options.block:
        return PartnerRule("block", options.draws, seed=options.seed)
    if options.shares:
        return PartnerRule(options.partners, min(options.draws, n_vertices), seed=options.seed)
    others = n_vertices - 1
    n = min(options.draws, others)
    n_link = n // 2
    if options.partners == "uniform" or n == others or n_link == 0:
        return PartnerRule("uniform", n, seed=options.seed)
    return PartnerRule("stratified", n, n_link, seed=options.seed)


#: First compute capability with bfloat16 on tensor cores and asynchronous copies to shared memory.
_TENSOR_ARCHITECTURE = 80


def products_of(options: Options, info: DeviceInfo) -> str:
    """How a device multiplies for shared partners: the given option, else ``half`` for blocks if it has tensor cores.

    Held-out metrics of blocks do not differ with and without tensor cores (docs/reports/modes.md).  For
    stars two or three of thirty means lie outside the spread between seeds (on the same page), so stars use tensor
    cores only on request.

    Raises :class:`InputError` if ``half`` is requested on a device without tensor cores.
    """
    architecture = info.architecture.removeprefix("sm_")
    able = info.backend == "cuda" and architecture.isdigit() and int(architecture) >= _TENSOR_ARCHITECTURE
    if options.products == "half" and not able:
        raise InputError(
            f"products='half' are for tensor cores of CUDA GPUs from sm_{_TENSOR_ARCHITECTURE} on; "
            f"{info.name} ({info.architecture}) has products='single'"
        )
    best = "half" if able and options.block and options.dtype == "float32" else "single"
    return options.products or best


def problem_of(split: Split, options: Options, info: DeviceInfo) -> Problem:
    """The problem of a run on a split graph and a device; tuning it gives exact matches for the run's kernels."""
    n_vertices = split.graph.n_vertices
    sized = options.sized_for(n_vertices, split.graph.n_links)
    return problem_of_sized(split, sized, partner_rule(n_vertices, sized), info)


def problem_of_sized(split: Split, sized: Options, rule: PartnerRule, info: DeviceInfo) -> Problem:
    """As :func:`problem_of`, for options already sized for the graph."""
    return _problem(split.graph.n_vertices, split.graph.n_links, len(split.validation.pairs), sized, rule, info)


def problem_of_default_run(k: int, n_vertices: int, n_links: int, info: DeviceInfo) -> Problem:
    """The problem of a run with K = ``k`` and default options on any graph of this size."""
    sized = Options(n_communities=k).sized_for(n_vertices, n_links)
    pairs = 2 * round(sized.held_out_share(n_links) * n_links)
    return _problem(n_vertices, n_links, pairs, sized, partner_rule(n_vertices, sized), info)


def _problem(n_vertices: int, n_links: int, pairs: int, sized: Options, rule: PartnerRule, info: DeviceInfo) -> Problem:
    return MMSB.problem(
        K=sized.n_communities,
        N=n_vertices,
        m=min(sized.size, n_vertices),
        n=rule.n,
        pairs=max(1, pairs),
        dtype=sized.dtype,
        storage=sized.storage,
        step=sized.step,
        theta_step="gain" if sized.block else "published" if sized.step == "published" else "reflected",
        noise="on" if sized.draws_noise else "off",
        products="single" if sized.sparse else products_of(sized, info),
        entries=sized.entries if sized.sparse else 0,
        partners=rule.name,
        degree=nearest_degree(2 * n_links / n_vertices) if sized.sparse else DEGREE,
    )


def problem_of_graph(source: Any, options: Options, device: str | None = None) -> Problem:
    """The problem of a run on a named device and on any input of :func:`mmsbgen.graph.as_graph`.

    Raises :class:`InputError` for an invalid graph or an unavailable device.
    """
    info = select_device(device, *discover())
    return problem_of(split_of(as_graph(source), options), options, info)


def drawn_split(graph: Graph, options: Options) -> Split:
    """The split of a run on a graph: its shares of the links, by its seed."""
    shares = options.held_out_share(graph.n_links), options.test_share(graph.n_links)
    return split(graph, validation=shares[0], test=shares[1], seed=options.seed)


def as_drawn(options: Options, held: Mapping[str, int], n_links: int) -> Options:
    """The options with the shares that a run held out: defaults may have been others then.

    ``held`` are the numbers of its links held out for ``validation`` and ``test``, of ``n_links`` in all.
    """
    return replace(options, validation=held["validation"] / n_links, test=held["test"] / n_links)


def split_of(graph: Graph, options: Options) -> Split:
    """The training and validation links of a run on a graph."""
    return split(graph, validation=options.held_out_share(graph.n_links), seed=options.seed)
