"""Checks of a chain whose state is large: rows of the start, of mini-batches before and after, and of all vertices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.state_rows import Rows

#: What a float32 row may be off by from one, and an element of the start from the reference, relatively.
SUM, START = 1e-5, 1e-4
#: Vertices that a mini-batch must leave alone, spread over the state; iterations that are looked at, at most.
WITNESSES, _LOOKS = 1000, 64
#: Rows of a star that are held against the reference: so many of the first slots, and of the last.
_EACH = 16


class CheckError(Exception):
    """A check that did not hold, in words."""


def beyond(sampler: Sampler, offset: int) -> int:
    """The first slot whose row begins at ``offset`` elements of the state or behind that."""
    return -(-offset // sampler.shape.row)


def check_sums(rows: Array) -> float:
    """How far sums of rows ``[V, K]`` are from 1 at most; raises :class:`CheckError` where that is too far."""
    sums = rows.sum(axis=1, dtype=np.float64)
    off = float(np.abs(sums - 1).max(initial=0.0))
    if not off <= SUM or rows.min(initial=0.0) < 0:
        raise CheckError(f"rows sum to {sums.min():.6g} to {sums.max():.6g}, the least element is {rows.min():.3g}")
    return off


def check_start(sampler: Sampler, offsets: Sequence[int]) -> int:
    """Hold rows of the start against the reference's; how many vertices' were.

    Those at both ends, on both sides of the offsets, and those that have their places where offsets are cut to 32 bits.
    """
    n = sampler.split.graph.n_vertices
    edges = [beyond(sampler, offset) for offset in offsets if beyond(sampler, offset) < n]
    wanted = {0, 1, n - 2, n - 1, *(v for edge in edges for v in (edge - 1, edge, edge + 1, n - 1 - edge))}
    vertices = np.array(sorted(v for v in wanted if 0 <= v < n))
    found = Rows(sampler, 0)(vertices)
    right, _ = equations.initial_rows(sampler.options.seed, vertices, sampler.options.n_communities)
    # The exponentials, of which a row has K that sum to about K, are off by 1e-7 each where they are small.
    wrong = np.abs(found - right) > START * right + 1e-6 / right.shape[1]
    if wrong.any():
        raise CheckError(f"rows of the start are not the reference's: vertices {vertices[wrong.any(axis=1)].tolist()}")
    return len(vertices)


class Updates(NamedTuple):
    """What :func:`check_updates` has seen: iterations, rows of mini-batches, and how many lay beyond each offset."""

    iterations: int
    rows: int
    read: list[int]
    written: list[int]
    worst_sum: float


def check_updates(sampler: Sampler, offsets: Sequence[int], least: int) -> Updates:
    """Look at mini-batches until each offset has rows of theirs beyond it, before and after, and ``least`` were seen.

    Raises :class:`CheckError` where a row stayed, does not sum to 1, or one of a vertex in no mini-batch changed.
    """
    n = sampler.split.graph.n_vertices
    edges = np.array([beyond(sampler, offset) for offset in offsets])
    there = edges < n
    read, written = np.zeros(len(edges), np.int64), np.zeros(len(edges), np.int64)
    seen, iterations, worst = 0, 0, 0.0
    while iterations < least or not (read[there].all() and written[there].all()):
        if iterations == _LOOKS:
            raise CheckError(f"{_LOOKS} mini-batches have {read.tolist()} rows beyond the offsets")
        vertices = coming(sampler)
        others = np.setdiff1d(np.linspace(0, n - 1, WITNESSES).astype(np.int64), vertices)
        before, slots = Rows(sampler, 0), slots_of(sampler)
        old, witnesses = before(vertices), before(others)
        if sampler.advance(1) != 1:
            raise CheckError("more than one iteration was made")
        after, new_slots = Rows(sampler, 0), slots_of(sampler)
        new = after(vertices)
        same = ~(new != old).any(axis=1)
        if same.any():
            raise CheckError(f"{same.sum()} of {len(vertices)} rows of a mini-batch stayed, of {vertices[same][0]} say")
        worst = max(worst, check_sums(new))
        if after(others).tobytes() != witnesses.tobytes():
            raise CheckError("rows of vertices in no mini-batch changed")
        read += [int((slots[vertices] >= edge).sum()) for edge in edges]
        written += [int((new_slots[vertices] >= edge).sum()) for edge in edges]
        seen, iterations = seen + len(vertices), iterations + 1
    return Updates(iterations, seen, read.tolist(), written.tolist(), worst)


def coming(sampler: Sampler) -> Array:
    """The vertices of the next mini-batch."""
    batch = sampler.batches.batch(sampler.iteration + 1, sampler.launch)
    last = batch.first + batch.n_vertices
    return sampler.device.download_range(sampler.values["vertices"], batch.first, last).astype(np.int64)


def slots_of(sampler: Sampler) -> Array:
    """The slot of every vertex's row."""
    return sampler.device.download(sampler.values["slots"])


def check_all_rows(sampler: Sampler) -> float:
    """How far the sums of all rows are from 1 at most."""
    return max(check_sums(sampler.rows(first, stop)[0]) for first, stop in sampler.state_chunks())


class Against(NamedTuple):
    """What :func:`check_reference` has seen: rows, those with a draw that flipped, and partners beyond each offset."""

    rows: int
    flipped: int
    partners: list[int]


def check_reference(sampler: Sampler, offsets: Sequence[int]) -> Against:
    """Hold new rows of the next star of many vertices against the reference's, which reads the rows of all partners.

    Those of the first and of the last slots.  Raises :class:`CheckError` where more are wrong than draws may flip.
    """
    for _ in range(_LOOKS):
        vertices = coming(sampler)
        if len(vertices) >= 2 * _EACH:
            break
        sampler.advance(1)
    else:
        raise CheckError(f"none of {_LOOKS} stars has {2 * _EACH} vertices")
    slots = slots_of(sampler)
    vertices = vertices[np.argsort(slots[vertices])][np.r_[:_EACH, -_EACH:0]]
    split, graph = sampler.split, sampler.split.graph
    rule = replace(sampler.rule, iteration=sampler.iteration + 1)
    drawn = []
    for vertex in vertices.tolist():
        near = split.training_adjacency.row(vertex).astype(np.int64)
        held = frozenset(split.held_out_adjacency.row(vertex).tolist())
        drawn.append(equations.sample_partners(vertex, graph.n_vertices, near, held, rule))
    before = Rows(sampler, 0)
    own = before(vertices).astype(np.float64)
    theirs = [before(partners).astype(np.float64) for partners, _ in drawn]
    sums, beta = sampler.row_sums()[vertices], sampler.state.beta()
    sampler.advance(1)
    new, new_sums = Rows(sampler, 0)(vertices).astype(np.float64), sampler.row_sums()[vertices]
    options, real, u = sampler.options, sampler.shape.real.type, 2.0**-24
    half_step, delta = float(real(options.step_sizes(sampler.time) / 2)), float(real(options.crossing))
    prior = float(real(options.prior))
    step = equations.Step(options.step, half_step, prior, options.draws_noise, options.seed, sampler.iteration, delta)
    flipped, expected = 0, 0.0
    for i, (vertex, (_, weights)) in enumerate(zip(vertices.tolist(), drawn, strict=True)):
        drift, error = equations.drift(own[i], beta, theirs[i], weights, delta, u)
        end = equations.end_row(own[i] * sums[i], own[i], drift, error, vertex, step, u)
        total = end.phi.sum()
        phi_error = end.error + 8 * u * end.phi + 1e-20
        total_error = phi_error.sum() + 16 * u * total
        off = np.abs(new[i] - end.phi / total) > (phi_error + end.phi / total * total_error) / total * 1.01
        flipped += bool(off.any() or abs(new_sums[i] - total) > total_error)
        expected += min(1.0, end.flips.sum())
    if flipped > expected + 5 * math.sqrt(expected):
        raise CheckError(
            f"{flipped} of {len(vertices)} rows of a star are not the reference's, of {vertices[0]} and more"
        )
    found = slots[np.concatenate([partners for partners, _ in drawn])]
    return Against(len(vertices), flipped, [int((found >= beyond(sampler, offset)).sum()) for offset in offsets])
