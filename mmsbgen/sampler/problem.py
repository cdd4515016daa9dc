"""The problem of a run: the sizes and types for which its kernels are selected, and for which one would tune."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb import MMSB, reference
from mmsbgen.graph import Split, as_graph, split
from mmsbgen.problem import Problem
from mmsbgen.sampler.minibatch import strategy
from mmsbgen.sampler.options import Options


def partner_rule(n_vertices: int, options: Options) -> reference.PartnerRule:
    """How partners are drawn in a graph of ``n_vertices``: ``n_partners`` clamped to the other vertices.

    Where all others are partners, or only one, strata make no difference, and the rule is the uniform one.
    """
    if options.block:
        return reference.PartnerRule("block", options.draws, seed=options.seed)
    others = n_vertices - 1
    n = min(options.draws, others)
    n_link = n // 2
    if options.partners == "uniform" or n == others or n_link == 0:
        return reference.PartnerRule("uniform", n, seed=options.seed)
    return reference.PartnerRule("stratified", n, n_link, seed=options.seed)


def problem_of(split: Split, options: Options) -> Problem:
    """The problem of a run of ``options`` on a split graph; tuning it makes the run's look-ups exact."""
    n_vertices = split.graph.n_vertices
    sized = options.sized_for(n_vertices, split.graph.n_links)
    rule = partner_rule(n_vertices, sized)
    return MMSB.problem(
        K=sized.n_communities,
        N=n_vertices,
        m=min(sized.size, n_vertices),
        n=rule.n,
        pairs=max(1, len(split.validation.pairs)),
        dtype=sized.dtype,
        storage=sized.storage,
        step=sized.step,
        theta_step="gain" if sized.block else "published" if sized.step == "published" else "reflected",
        noise="on" if sized.draws_noise else "off",
        products=sized.products,
        partners=rule.name,
    )


def problem_of_graph(source: Any, options: Options) -> Problem:
    """The problem of a run of ``options`` on what :func:`mmsbgen.graph.as_graph` takes; raises ``InputError``."""
    strategy(options.mini_batch)
    graph = as_graph(source)
    return problem_of(split(graph, validation=options.held_out_share(graph.n_links), seed=options.seed), options)
