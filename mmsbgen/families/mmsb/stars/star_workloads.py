"""Test inputs and output checks of the kernels for stars whose vertices share their partners."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.blocks import block_workloads, tensor_workloads
from mmsbgen.families.mmsb.blocks.block_workloads import FIRST, ends_of, others_untouched
from mmsbgen.families.mmsb.blocks.tensor_workloads import BFLOAT16, as_words, bfloat16, to_bfloat16
from mmsbgen.families.mmsb.numbers.row_layout import Z_FLOOR, half_room, half_row
from mmsbgen.families.mmsb.reference.workloads import ROTATIONS, roundoff
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units, at_turn
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Iterations whose partners one launch draws in advance.
ROUNDS = 8
_ROUND = 1


@dataclass(frozen=True)
class _Case:
    """Arguments, distinct partners ``[d]`` and their weights; masks ``[m, d]`` of excluded pairs and of links."""

    given: dict[str, Any]
    distinct: Array
    weights: Array
    struck: Array
    linked: Array


def _others(problem: Problem, given: Mapping[str, Any], seed: int) -> list[dict[str, Array]]:
    """Other mini-batches for timing loops, since the rows of a single one would stay in a GPU's cache."""
    rng, n_total = np.random.default_rng([seed, 1]), problem.integer("N")
    front, m = given["vertices"][:FIRST], problem.integer("m")
    drawn = [rng.choice(n_total, m, replace=False).astype(np.uint32) for _ in range(ROTATIONS - 1)]
    return [{"vertices": np.concatenate([front, vertices])} for vertices in drawn]


def _labels(problem: Problem) -> bool:
    return problem.get("partners") == "shared-uniform"


def draw_shared(problem: Problem, seed: int) -> Workload:
    """Counters of the draws of several iterations ahead."""
    arguments, judge = block_workloads.drawn_partners(problem, np.random.default_rng(seed), ROUNDS)
    return Workload(arguments | {"n_rounds": np.uint32(ROUNDS)}, ROUNDS, judge, repeats="continued")


def _case(problem: Problem, rng: np.random.Generator) -> _Case:
    """A star of a graph with hub, isolated vertices and held-out pairs, with partners of two iterations."""
    given, distinct, _ = block_workloads.with_partners(problem, rng)
    weights = given["shared_weights"][: distinct.size].astype(np.float64)
    del given["shared"]
    for name in ("drawn", "places", "shared_weights"):
        # Those of another iteration come first.
        given[name] = np.stack([rng.permutation(given[name]), given[name]])
    given |= {
        "n_shared": np.array([1, distinct.size], np.uint32),
        "shared_round": np.uint32(_ROUND),
        "n_total": np.uint32(problem.integer("N")),
    }
    vertices = given["vertices"][FIRST:].tolist()
    linked = np.array([np.isin(distinct, ends_of(given, "link", vertex)) for vertex in vertices])
    held = np.array([np.isin(distinct, ends_of(given, "held", vertex)) for vertex in vertices])
    struck = held | (distinct == np.array(vertices)[:, None])
    if not _labels(problem):
        struck, linked = struck | linked, np.zeros_like(linked)
    return _Case(given, distinct, weights, struck, linked)


def star_shared(problem: Problem, seed: int) -> Workload:
    """A star and its partners; the spare rows have old values."""
    case = _case(problem, np.random.default_rng(seed))
    partners = case.given["slots"][case.distinct]

    def weights(units: Array) -> Array:
        return np.where(case.struck[units], 0.0, case.weights)

    return block_workloads.sums_over_partners(problem, case.given, partners, weights, lambda units: case.linked[units])


def star_rows(problem: Problem, seed: int) -> Workload:
    """Rows to update, with sums over partners in the spare rows, with links or without."""
    given, step = block_workloads.rows_to_end(problem, seed)
    k, u, links = problem.integer("K"), roundoff(problem), not _labels(problem)
    into = given["spares"] if links else given["slots"][given["vertices"][FIRST:]]
    units = Units(
        problem.integer("m"),
        lambda units: {"pi": into[units], "row_sums": into[units], "clip_counts": units},
        lambda units, turn: block_workloads.rows_ended(given, units, k, step, u, links),
    )

    every = all_units([units])

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        before = given["pi"].copy()
        if not links:  # the spare slots may hold anything
            before[given["spares"]] = got["pi"][given["spares"]]
        return others_untouched(given | {"pi": before}, got, k, into) or every(got, config)

    return Workload(given, problem.integer("m"), judge, _others(problem, given, seed), (units,), repeats="continued")


def _words(marks: Array) -> Array:
    """Marks ``[m, room]`` as bits in words ``[m, room / 32]``."""
    parts: Array = marks.reshape(len(marks), -1, 32).astype(np.uint32) << np.arange(32, dtype=np.uint32)
    words: Array = parts.sum(axis=2, dtype=np.uint32)
    return words


def _ahead(words: Array) -> Array:
    """Words ``[m, ..]`` of the mini-batch, after :data:`FIRST` rows of other mini-batches with all bits set."""
    return np.concatenate([np.full((FIRST, words.shape[1]), 0xFFFFFFFF, np.uint32), words])


def star_marks(problem: Problem, seed: int) -> Workload:
    """Stars of two iterations: the first is empty; old vertices follow the second."""
    rng = np.random.default_rng(seed)
    case, m, length = _case(problem, rng), problem.integer("m"), half_room(problem)
    given, stride, n_total = case.given, problem.integer("m") + 3, problem.integer("N")
    others = rng.integers(0, n_total, stride + 3).astype(np.uint32)

    def stars(vertices: Array) -> Array:
        return np.concatenate([others[:stride], vertices, others[stride:]])

    rotations = [{"vertices": stars(other["vertices"][FIRST:])} for other in _others(problem, given, seed)]
    given |= {"vertices": stars(given["vertices"][FIRST:]), "sizes": np.array([0, m], np.uint32)}
    given |= {"n_vertices": np.uint32(2 * stride), "stride": np.uint32(stride)}
    for name in ("marked", "labelled"):
        given[name] = np.full((2 * stride, length // 32), 0x12345678, np.uint32)

    @functools.cache
    def right() -> dict[str, Array]:
        found = {}
        for name, bits in {"marked": case.struck | case.linked, "labelled": case.linked}.items():
            marks = np.zeros((m, length), bool)
            marks[:, : case.distinct.size] = bits
            found[name] = given[name].copy()
            found[name][stride : stride + m] = _words(marks)
        return found

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        for name, expected in right().items():
            if not np.array_equal(got[name], expected):
                return f"{name} differs from the vertices themselves, their links and their held-out pairs"
        return None

    return Workload(given, 2 * stride, judge, rotations)


def star_factors(problem: Problem, seed: int) -> Workload:
    """Rows of a star and of its partners, bits of links, and old values in ``scales``."""
    case = _case(problem, np.random.default_rng(seed))
    m, width, length, given = problem.integer("m"), half_row(problem), half_room(problem), case.given
    k, u, delta = problem.integer("K"), roundoff(problem), float(case.given["delta"])
    for name, rows in (("own_factors", m), ("shared_factors", length), ("shared_rows", length)):
        given[name] = np.full((rows, width // 2), 0x3C003C00, np.uint32)
    given["scales"] = np.full((m, length // 2), 0x3F803F80, np.uint32)
    linked = np.zeros((m, length), bool)
    linked[:, : case.distinct.size] = case.linked
    given["labelled"] = _ahead(_words(linked))

    rotations = _others(problem, given, seed)

    def reference(units: Array, turn: int) -> Judge:
        now, count = at_turn(given, rotations, turn), case.distinct.size
        pi, strength = now["pi"], now["beta"][:k].astype(np.float64) - delta
        own, rows = (
            pi[now["slots"][at], :k].astype(np.float64) for at in (now["vertices"][FIRST:][units], case.distinct)
        )
        labels = case.linked[units]
        scales = case.weights / np.maximum(delta + (own * strength) @ rows.T, Z_FLOOR)
        right, error = np.ones((units.size, length)), np.zeros((units.size, length))
        right[:, :count] = np.where(labels, scales, 1.0)
        error[:, :count] = np.where(labels, (BFLOAT16 + u * (16 + 4 * np.sqrt(k))) * scales, 0.0)
        factors, expected = tensor_workloads.own_factors(problem, now, units), Expected(right, error)

        def judge(got: Mapping[str, Array], config: Config) -> str | None:
            return factors(got, config) or expected.errors(bfloat16(got["scales"]).reshape(right.shape))

        return judge

    own = Units(m, lambda units: {"own_factors": units, "scales": units}, reference)
    units = own, tensor_workloads.partners_factors(problem, given, case.distinct)
    return Workload(given, m, all_units(units), rotations, units, repeats="same")


def star_scales(problem: Problem, seed: int) -> Workload:
    """Factors of nearly one-hot rows, excluded pairs, and labelled links, which have scales of their own."""
    rng = np.random.default_rng(seed)
    case = _case(problem, rng)
    m, length, given = problem.integer("m"), half_room(problem), case.given
    own, partners = tensor_workloads.rounded_factors(problem, given, case.distinct)
    marks, labelled = np.zeros((m, length), bool), np.zeros((m, length), bool)
    marks[:, : case.distinct.size] = case.struck | case.linked | (rng.random(case.struck.shape) < 0.1)
    labelled[:, : case.distinct.size] = case.linked | (rng.random(case.struck.shape) < 0.05)
    labelled &= marks
    before = rng.gamma(0.3, 1000.0, (m, length))
    given |= {"own_factors": as_words(own), "shared_factors": as_words(partners)}
    given |= {"marked": _ahead(_words(marks)), "labelled": _ahead(_words(labelled))}
    given["scales"] = as_words(to_bfloat16(before))
    kept = bfloat16(given["scales"]).reshape(m, length) * (labelled & _labels(problem))
    weights = np.zeros(length)
    weights[: case.distinct.size] = case.weights

    def reference(units: Array, turn: int) -> Judge:
        struck, before = marks[units], kept[units]
        scales = tensor_workloads.scales(problem, own[units], partners, weights, ~struck)

        def judge(got: Mapping[str, Array], config: Config) -> str | None:
            found = bfloat16(got["scales"]).reshape(struck.shape)
            if not np.array_equal(found[struck], before[struck]):
                return "the scale of a pair that is struck is not 0, or that of a labelled link has changed"
            return scales(np.where(struck, 0.0, found))

        return judge

    units = (Units(m, lambda units: {"scales": units}, reference),)
    return Workload(given, m, all_units(units), units=units, repeats="same")


def star_sums(problem: Problem, seed: int) -> Workload:
    """Scales of all magnitudes, with the partner count of the second of two iterations."""
    rng = np.random.default_rng(seed)
    case = _case(problem, rng)
    return tensor_workloads.sums_of(problem, rng, case.given, case.distinct)
