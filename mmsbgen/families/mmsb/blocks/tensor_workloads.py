"""Test inputs and output checks of the kernels for a block's products on tensor cores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.blocks import block_workloads
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR, DELTA, half_room, half_row
from mmsbgen.families.mmsb.reference.workloads import roundoff
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Relative error bounds of rounding to float16 toward zero and to nearest bfloat16; the smallest positive float16.
_FLOAT16, BFLOAT16, _LEAST = 2.0**-10, 2.0**-8, 2.0**-24


def small(problem: Problem) -> Problem:
    """As :func:`block_workloads.small`, with more vertices than one tile of 128 rows or two of 64."""
    n_vertices = min(problem.integer("N"), 307)
    m, n = min(problem.integer("m"), 150, n_vertices), min(problem.integer("n"), 1025)
    return problem.replace(N=n_vertices, m=m, n=n)


def as_words(numbers: Array) -> Array:
    """Numbers of 16 bits as 32-bit words of two."""
    return np.ascontiguousarray(numbers).view(np.uint32)


def float16(words: Array) -> Array:
    """Values of 32-bit words of two float16."""
    return np.ascontiguousarray(words).view(np.float16).astype(np.float64)


def bfloat16(words: Array) -> Array:
    """Values of 32-bit words of two bfloat16."""
    return (np.ascontiguousarray(words).view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_bfloat16(numbers: Array) -> Array:
    """Upper halves of the numbers as float32, uint16 (truncation to bfloat16)."""
    return (np.ascontiguousarray(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def own_factors(problem: Problem, given: Mapping[str, Any], units: Array) -> Judge:
    """Check the factors of vertices of the mini-batch."""
    k, u, delta = problem.integer("K"), roundoff(problem), float(given["delta"])
    vertices = given["vertices"][int(given["first_vertex"]) :][units]
    right = np.zeros((units.size, half_row(problem)))
    right[:, :k] = given["pi"][given["slots"][vertices], :k].astype(np.float64) * (
        given["beta"][:k].astype(np.float64) - delta
    )
    # beta - delta is rounded before the multiplication.
    expected = Expected(right, (_FLOAT16 + 4 * u) * np.abs(right) + _LEAST + 4 * u * delta, name="own_factors")

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        found = float16(got["own_factors"]).reshape(right.shape)
        return _beyond("own_factors", found, right, 4 * u, 4 * u * delta) or expected.errors(found)

    return judge


def partners_factors(problem: Problem, given: Mapping[str, Any], distinct: Array) -> Units:
    """The factors of the ``distinct`` partners, and zeros after them."""
    k, u, delta = problem.integer("K"), roundoff(problem), float(given["delta"])

    def reference(units: Array, turn: int) -> Judge:
        right, some = np.zeros((units.size, half_row(problem))), units < distinct.size
        right[some, :k] = given["pi"][given["slots"][distinct[units[some]]], :k]
        factors = Expected(right, _FLOAT16 * right + _LEAST, name="shared_factors")
        rows = Expected(right, BFLOAT16 * right, name="shared_rows")

        def judge(got: Mapping[str, Array], config: Config) -> str | None:
            found = float16(got["shared_factors"]).reshape(right.shape)
            return (
                _beyond("shared_factors", found, right, 4 * u, 4 * u * delta)
                or factors.errors(found)
                or rows.errors(bfloat16(got["shared_rows"]).reshape(right.shape))
            )

        return judge

    return Units(half_room(problem), lambda units: {"shared_factors": units, "shared_rows": units}, reference)


def _beyond(name: str, found: Array, right: Array, relative: float, absolute: float) -> str | None:
    further = np.abs(found) > np.abs(right) * (1 + relative) + absolute
    return f"{name}: a number is rounded away from zero" if np.any(further) else None


def block_factors(problem: Problem, seed: int) -> Workload:
    """Rows of a block and of its partners; the output arrays have old values."""
    given, distinct, _ = block_workloads.with_partners(problem, np.random.default_rng(seed))
    m, width, room = problem.integer("m"), half_row(problem), half_room(problem)
    given |= {
        name: np.full((rows, width // 2), 0x3C003C00, np.uint32)
        for name, rows in (("own_factors", m), ("shared_factors", room), ("shared_rows", room))
    }
    own = Units(m, lambda units: {"own_factors": units}, lambda units, turn: own_factors(problem, given, units))
    units = own, partners_factors(problem, given, distinct)
    return Workload(given, m, all_units(units), units=units)


def rounded_factors(problem: Problem, given: Mapping[str, Any], distinct: Array) -> tuple[Array, Array]:
    """float16 factors of rows that are nearly one-hot, so that dots reach 1: ``[m, row]`` and ``[room, row]``."""
    k, width = problem.integer("K"), half_row(problem)
    own = np.zeros((problem.integer("m"), width), np.float16)
    partners = np.zeros((half_room(problem), width), np.float16)
    vertices = given["vertices"][int(given["first_vertex"]) :]
    own[:, :k] = (given["pi"] * given["beta"])[given["slots"][vertices], :k]
    partners[: distinct.size, :k] = given["pi"][given["slots"][distinct], :k]
    return own, partners


def scales(
    problem: Problem, own: Array, partners: Array, weights: Array, judged: Array
) -> Callable[[Array], str | None]:
    """A check of scales ``[m, room]`` where ``judged``; ``weights`` are ``[room]``."""
    u, width = roundoff(problem), half_row(problem)
    a, b = own.astype(np.float64), partners.astype(np.float64)
    dots, size = a @ b.T, np.abs(a) @ np.abs(b).T
    z = np.maximum((1.0 - DELTA) - dots, BETA_FLOOR)
    right = -weights / z
    # Tensor cores add groups of products exactly and truncate relative to the largest. The bound counts every addition.
    error = np.abs(right) * ((u * (8 + width / 2) * size + 4 * u) / z + BFLOAT16 + 8 * u)
    # If rounding dominates Z, any finite scale that is not positive is accepted.
    lost = (u * (8 + width / 2) * size + 4 * u) > 0.25 * z
    certain = judged & ~lost
    expected = Expected(np.where(certain, right, 0.0), error)

    def check(found: Array) -> str | None:
        if np.any(judged & lost & ((found > 0) | ~np.isfinite(found))):
            return "a scale of a pair with Z near 0 is not a number below 0"
        return expected.errors(np.where(certain, found, 0.0))

    return check


def block_scales(problem: Problem, seed: int) -> Workload:
    """Factors of rows that are nearly one-hot, so that dots reach 1, and weights padded with zeros."""
    given, distinct, _ = block_workloads.with_partners(problem, np.random.default_rng(seed))
    m, room = problem.integer("m"), half_room(problem)
    own, partners = rounded_factors(problem, given, distinct)
    given |= {"own_factors": as_words(own), "shared_factors": as_words(partners)}
    given["scales"] = np.full((m, room // 2), 0x3F803F80, np.uint32)
    weights = np.zeros(room)
    weights[: given["shared_weights"].size] = given["shared_weights"]

    def reference(units: Array, turn: int) -> Judge:
        check = scales(problem, own[units], partners, weights, np.ones((units.size, room), bool))
        return lambda got, config: check(bfloat16(got["scales"]).reshape(units.size, room))

    units = (Units(m, lambda units: {"scales": units}, reference),)
    return Workload(given, m, all_units(units), units=units)


def block_strike(problem: Problem, seed: int) -> Workload:
    """Scales of 1, for a block with a hub, isolated vertices and held-out pairs."""
    given, distinct, out = block_workloads.with_partners(problem, np.random.default_rng(seed))
    m, room = problem.integer("m"), half_room(problem)
    given["scales"] = np.full((m, room // 2), 0x3F803F80, np.uint32)

    @functools.cache
    def informing() -> Array:
        right = np.ones((m, room), bool)
        for i in range(m):
            right[i, : distinct.size][np.isin(distinct, out(i))] = False
        return right

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        found = bfloat16(got["scales"]).reshape(m, room)
        wrong = np.argwhere(found != informing())
        return f"the scale of {tuple(map(int, wrong[0]))} is {found[tuple(wrong[0])]}" if wrong.size else None

    return Workload(given, m, judge, repeats="continued")


def block_sums(problem: Problem, seed: int) -> Workload:
    """Scales of all magnitudes, 0 in the padding; the spare rows have old values."""
    rng = np.random.default_rng(seed)
    given, distinct, _ = block_workloads.with_partners(problem, rng)
    return sums_of(problem, rng, given, distinct)


def sums_of(problem: Problem, rng: np.random.Generator, given: Mapping[str, Any], distinct: Array) -> Workload:
    """Random scales and the rows of the ``distinct`` partners, for a kernel that sums the scaled rows."""
    k, m, width, room = problem.integer("K"), problem.integer("m"), half_row(problem), half_room(problem)
    scales, rows = np.zeros((m, room)), np.zeros((room, width))
    scales[:, : distinct.size] = -rng.gamma(0.3, 1000.0, (m, distinct.size))
    rows[: distinct.size, :k] = given["pi"][given["slots"][distinct], :k]
    here = {**given, "scales": as_words(to_bfloat16(scales)), "shared_rows": as_words(to_bfloat16(rows))}

    def reference(units: Array, turn: int) -> Judge:
        a = bfloat16(here["scales"][units]).reshape(units.size, room)
        right = (a @ bfloat16(here["shared_rows"]).reshape(room, width))[:, :k]
        expected = Expected(right, roundoff(problem) * (8 + room / 2) * np.abs(right) + 1e-30)
        return lambda got, config: (
            block_workloads.padded(got["pi"], k) or expected.errors(got["pi"][:, :k].astype(np.float64))
        )

    units = Units(m, lambda units: {"pi": here["spares"][units]}, reference)
    return Workload(here, m, block_workloads.of_all(here, k, [units]), units=(units,), repeats="same")
