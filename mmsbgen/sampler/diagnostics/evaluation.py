"""Evaluations of a chain: metrics on held-out pairs, and health checks."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR
from mmsbgen.graph import HeldOut
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics import explained_links, held_out
from mmsbgen.sampler.diagnostics.explained_links import Floats, Ints, RowSource
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.posterior.draws import effective_number, spaced
from mmsbgen.sampler.state import buffers
from mmsbgen.sampler.state.chain_state import ChainState

Trace = list[dict[str, Any]]
#: Most entries of pi of whose mean row the effective number of communities of a draw is.
_WATCHED = 1 << 22


def evaluate(sampler: Sampler, burnt_in: bool) -> tuple[held_out.HeldOutMetrics | None, ChainState]:
    """Metrics on the validation pairs (None without pairs), and the chain's state with this sample in its means.

    A sample that is not ``burnt_in`` restarts the running mean.  To include the sample, the caller passes the state to
    ``sampler.chain``.
    """
    pairs, chain = sampler.split.validation, sampler.chain
    if not (count := len(pairs.pairs)):
        return None, chain
    held = sampler.held_values
    n = chain.samples + 1 if burnt_in else 1
    if n == 1:
        sampler.device.write(held["sums"], np.zeros(count))
    sampler.launch("held-out", "perplexity_pairs", count, held)
    p = sampler.device.download(held["probabilities"])
    _of_unknown(sampler, p)
    sums = held | {"n_samples": np.float64(n)}
    sampler.launch("held-out", "perplexity_sum", buffers.HELD_OUT_BLOCKS, sums)
    totals = sampler.device.download(held["partial"]).sum(axis=0)
    mean = sampler.device.download(held["sums"]) / n
    links = np.asarray(pairs.labels, bool)
    published = chain.published_sum + np.where(links, sampler.device.download(held["published"]), p)
    evaluations = chain.published_evaluations + 1
    n_links, n_non = int(links.sum()), int((~links).sum())
    density = sampler.split.density
    found = held_out.HeldOutMetrics(
        samples=n,
        perplexity=held_out.perplexity(totals[2], totals[3], count),
        sample_perplexity=held_out.perplexity(totals[0], totals[1], count),
        log_likelihood=held_out.weighted(totals[2], totals[3], n_links, n_non, density),
        sample_log_likelihood=held_out.weighted(totals[0], totals[1], n_links, n_non, density),
        auc=held_out.auc(mean, links),
        published_perplexity=held_out.published(published / evaluations, links),
    )
    samples = n if burnt_in else 0
    return found, chain._replace(samples=samples, published_sum=published, published_evaluations=evaluations)


def of_result(sampler: Sampler, pairs: HeldOut) -> dict[str, Any] | None:
    """:func:`metrics` of ``pairs`` from the final memberships (the posterior mean if there are samples), on the host.

    None without pairs.
    """
    if not len(pairs.pairs):
        return None
    return metrics(link_probabilities(sampler, pairs.pairs), pairs, sampler.split.density)


def metrics(p: Floats, pairs: HeldOut, density: float) -> dict[str, Any]:
    """Metrics of the link probabilities ``p`` ``[H]`` of ``pairs`` in a graph of this ``density``.

    Keys: ``auc``, ``log_likelihood`` (nats per pair, classes weighted by their share in the graph), their standard
    errors ``auc_error`` and ``log_likelihood_error``, the 95 % interval ``auc_interval``, the balanced ``perplexity``,
    and the numbers of ``links`` and ``non_links``.
    """
    links = np.asarray(pairs.labels, bool)
    logs = held_out.log_likelihoods(p, links)
    sums, counts = (float(logs[links].sum()), float(logs[~links].sum())), (pairs.n_links, pairs.n_non_links)
    return {
        "links": pairs.n_links,
        "non_links": pairs.n_non_links,
        "auc": held_out.auc(p, links),
        "auc_error": held_out.auc_error(p, links),
        "auc_interval": held_out.auc_interval(p, links),
        "log_likelihood": held_out.weighted(*sums, *counts, density),
        "log_likelihood_error": held_out.weighted_error(logs, links, density),
        "perplexity": held_out.perplexity(*sums, links.size),
    }


def auc_text(evaluation: Mapping[str, Any], digits: int) -> str:
    """The AUC among :func:`metrics` in words."""
    value = evaluation["auc"]
    return "unknown (one class only)" if value is None or value != value else f"{value:.{digits}f}"


def link_probabilities(sampler: Sampler, pairs: Ints) -> Floats:
    """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of vertices, eq. (2.2), from whole rows.

    Vertices without a training link get the prior's mean row:
    :func:`mmsbgen.sampler.diagnostics.explained_links.as_unknown`.
    """
    beta, delta = sampler.beta(), sampler.options.crossing
    found = explained_links.link_probabilities(pairs, predicting_rows(sampler), beta, delta)
    # Rows of 16 bits may sum to slightly more than 1; the kernels clamp in the same way.
    return np.minimum(found, 1.0 - BETA_FLOOR) if sampler.shape.stored.narrow else found


def predicting_rows(sampler: Sampler, mean: bool = True) -> RowSource:
    """:func:`row_source` for predictions: vertices without a training link have the prior's mean row."""
    k = sampler.shape.k
    return explained_links.as_unknown(row_source(sampler, mean), sampler.split.unlinked, np.full(k, 1.0 / k))


def _of_unknown(sampler: Sampler, probabilities: Floats) -> None:
    """Correct the kernel's ``probabilities``, on the device, for pairs with an end without training links."""
    split, device, held = sampler.split, sampler.device, sampler.held_values
    unknown = split.unlinked_validation
    if not unknown.size:
        return
    rows, beta = predicting_rows(sampler, mean=False), sampler.state.beta()
    p = probabilities.copy()
    p[unknown] = explained_links.link_probabilities(
        split.validation.pairs[unknown], rows, beta, sampler.options.crossing
    )
    sums = device.download(held["sums"])
    sums[unknown] += p[unknown] - probabilities[unknown]
    device.write(held["probabilities"], p)
    device.write(held["sums"], sums)


def _keep_draw(sampler: Sampler, log_likelihood: float) -> None:
    """Keep the current state, whose held-out pairs have just been evaluated, among the chain's draws."""
    assert sampler.draws is not None
    begin, n, k = time.perf_counter(), sampler.shape.n_vertices, sampler.shape.k
    watched = row_source(sampler, mean=False)(spaced(n, max(1, _WATCHED // k)))
    communities = effective_number(watched.mean(axis=0, dtype=np.float64))
    p = sampler.device.download(sampler.held_values["probabilities"])[: len(sampler.split.validation.pairs)]
    sampler.draws.keep(sampler.iteration, log_likelihood, communities, p, sampler.state.beta())
    sampler.stages.add({"posterior": time.perf_counter() - begin})


def evaluation(sampler: Sampler, seconds: float) -> dict[str, Any]:
    """One row of the trace: progress of the chain, metrics and health checks.

    The sample enters the chain's means and, where it is of the posterior, its draws.  Raises :class:`MmsbgenError` if
    row sums are not finite.
    """
    sampler.settle()
    options = sampler.options
    burnt_in = sampler.course.burnt_in(options, sampler.iteration)
    drawn = sampler.sampling or options.draws_noise
    if burnt_in and (options.average or (options.keeps_spread and drawn)):
        sampler.accumulate()
    found, chain = evaluate(sampler, burnt_in)
    sampler.chain = chain
    if burnt_in and drawn and sampler.draws is not None and sampler.draws.wants_next():
        _keep_draw(sampler, math.nan if found is None else found.sample_log_likelihood)
    mean_row_sum = float(sampler.row_sums().mean())
    if not math.isfinite(mean_row_sum):
        raise MmsbgenError(
            f"the chain left the range of {options.dtype} by iteration {sampler.iteration}: its row sums are no finite "
            "numbers. Use a smaller step size or the split step."
        )
    sampler.stages.drain()
    return {
        "iteration": sampler.iteration,
        "updates_per_vertex": chain.vertex_updates / sampler.split.graph.n_vertices,
        "seconds": seconds,
        "eps": sampler.eps,
        "phase": "sample" if drawn else "optimise",
        "mean_row_sum": mean_row_sum,
        "clips": sampler.clipped(),
        **({} if sampler.shared is None else sampler.shared.noted()),
        "burnt_in": burnt_in,
        **({} if found is None else dataclasses.asdict(found)),
    }
