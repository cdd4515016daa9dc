"""Checks of kernel outputs against the reference.

A check returns None if all outputs agree within their derived tolerances, else an error message.  Functions that take
``units`` evaluate the reference for these units, and return the check of their outputs
(:class:`mmsbgen.kernels.family.Units`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR, DELTA, FLOOR, Z_FLOOR, Purpose
from mmsbgen.families.mmsb.numbers.storage import Storage, random_bits, storage_named
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.family import Array, Expected, Judge, exact, wrong_of
from mmsbgen.kernels.space import Config

Given = Mapping[str, Any]
Got = Mapping[str, Array]
#: Elements of partners' rows that are gathered at a time, in float64.
_GATHERED = 1 << 21


def others_unchanged(given: Given, got: Got, new: Array) -> str | None:
    """An error message if rows of pi outside the slots ``new`` changed, else None."""
    untouched = np.setdiff1d(np.arange(len(given["pi"])), new)
    if np.array_equal(got["pi"][untouched], given["pi"][untouched]):
        return None
    return "a row outside the mini-batch changed"


def update_phi(
    given: Given, units: Array, turn: int, k: int, step: equations.Step, u: float, storage: Storage
) -> Judge:
    """Check new rows, and in the first launch the count of clipped coordinates, to which later launches add."""
    vertices = given["vertices"][units]
    parts = np.array_split(units, -(-units.size * int(given["n_partners"]) * k // _GATHERED))
    ends = [_phi_rows(given, part, k, step, u, storage) for part in parts]
    phi, error, flips = (np.concatenate([getattr(end, name) for end in ends]) for name in ("phi", "error", "flips"))
    clips = sum(end.clips for end in ends)
    right = ended(equations.RowEnd(phi, error, flips, clips), step, u)

    def judge(got: Got, config: Config) -> str | None:
        if np.any(got["pi"][:, k:] != 0):
            return "the padding of a row is not zero"
        if storage.narrow:
            problem = _stored_rows(got, vertices, config, step, u, storage, right)
        else:
            problem = wrong_phi(got, config, u, right)
        return problem or (wrong_clips(got, clips) if turn == 0 else None)

    return judge


def ended(end: equations.RowEnd, step: equations.Step, u: float) -> Expected:
    """What phi is after a step."""
    return Expected(end.phi, 2 * (end.error + 2 * u * end.phi) + FLOOR, allowed(end.flips, step.name == "split"), "phi")


def wrong_phi(got: Got, config: Config, u: float, phi: Expected) -> str | None:
    """Check new rows, or normalised ones with their sums, against ``phi``."""
    k = phi.value.shape[1]
    rows = got["pi"][:, :k].astype(np.float64)
    if config.get("normalise", True):
        off = np.abs(rows.sum(axis=1) - 1).max()
        if off > summing(k, config, u):
            return f"a row sums to 1 {off:+.3g}"
        rows = rows * got["row_sums"].astype(np.float64)[:, None]
        phi = replace(phi, tolerance=phi.tolerance + u * (16 + 4 * np.sqrt(k)) * phi.value)
    return phi.errors(rows)


def _phi_rows(given: Given, units: Array, k: int, step: equations.Step, u: float, storage: Storage) -> equations.RowEnd:
    """The ends of the rows of ``units``."""
    n, slots, vertices = int(given["n_partners"]), given["slots"], given["vertices"][units]
    pairs = units[:, None] * n + np.arange(n)

    def values(at: Array) -> Array:
        return storage.values(given["pi"][at, :k]).astype(np.float64)

    own, sums = values(slots[vertices]), given["row_sums"][slots[vertices]].astype(np.float64)[:, None]
    rows, weights = values(slots[given["partners"][pairs]]), given["weights"][pairs].astype(np.float64)
    drift, error = equations.drift(
        own, given["beta"][:k].astype(np.float64), rows, weights, step.delta, u, least(storage)
    )
    kept = sums if storage.narrow else None
    return equations.end_row(own * sums, own, drift, error, vertices.astype(np.int64)[:, None], step, u, kept)


def wrong_clips(got: Got, clips: int) -> str | None:
    """An error message if the counts of bounded coordinates do not add up to ``clips``, else None."""
    found = int(got["clip_counts"].sum())
    return f"{found} bounded coordinates instead of {clips}" if abs(found - clips) > 0.01 * clips + 1 else None


def least(storage: Storage) -> float:
    """Lower bound of Z of a non-link."""
    return BETA_FLOOR if storage.narrow else Z_FLOOR


def _stored_rows(
    got: Got, vertices: Array, config: Config, step: equations.Step, u: float, storage: Storage, phi: Expected
) -> str | None:
    """Check stored rows of 16 bits against ``phi``, rounded with the random bits of ``vertices``.

    Rounding with given bits is monotone, so rounding both ends of the tolerance bounds the stored element.  Both ends
    usually round to the same element.
    """
    k = phi.value.shape[1]
    totals = got["row_sums"].astype(np.float64)[:, None]
    # pi is phi times the rounded inverse of the row sum, which is rounded too.
    tolerance = phi.tolerance / totals + 4 * u * phi.value / totals
    bits = random_bits(step.seed, k, vertices, step.iteration)
    problem, wrong = within(got["pi"][:, :k], phi.value / totals, tolerance, bits, storage, phi.allowed)
    if problem is not None:
        return f"pi: {problem}"
    sums = phi.value.sum(axis=1)
    off = ~(np.abs(totals[:, 0] - sums) <= phi.tolerance.sum(axis=1) + summing(k, config, u) * sums)
    # A draw with another integer changes the sum of its row too.
    off &= ~wrong.any(axis=1)
    return f"row sum {totals[off][0, 0]:.9g} instead of {sums[off][0]:.9g}" if off.any() else None


def within(
    stored: Array, value: Array, tolerance: Array, bits: Array, storage: Storage, allowed: float = 0.0
) -> tuple[str | None, Array]:
    """An error message or None, and a mask of wrong elements: those that no value within tolerance rounds to."""
    one = np.finfo(np.float32).eps  # rounding of the bounds to float32
    low = storage.rounded(np.maximum(value * (1 - one) - tolerance, 0.0), bits)
    high = storage.rounded(value * (1 + one) + tolerance, bits)
    wrong = (stored < low) | (stored > high)
    if np.count_nonzero(wrong) <= allowed * wrong.size:
        return None, wrong
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    found, ends = storage.values(stored[at]), [float(storage.values(end[at])) for end in (low, high)]
    text = f"{int(wrong.sum())} of {wrong.size} elements are off; the first at {at}: {float(found):.9g} for the value "
    return f"{text}{float(value[at]):.9g}, whose bits give {ends[0]:.9g} to {ends[1]:.9g}", wrong


#: Size of the smallest sub-groups of any device: OpenCL on CPUs.
SMALLEST_SUB_GROUP = 16


def summing(k: int, config: Config, u: float) -> float:
    """Relative error bound of a sum of ``k`` non-negative terms, from the longest chain of additions.

    The bound is linear in the length of the chain, since all rounding errors may have the same sign (for example in a
    row with one large and many equal small elements).
    """
    team = int(config["block_size"]) if config["team"] == "block" else 1
    lanes = int(config["vector_width"]) * team
    # "shuffle" adds the sums of sub-groups one after another; "local" is a tree over the whole team.
    in_turn = -(-team // SMALLEST_SUB_GROUP) if config.get("reduction") == "shuffle" else 0
    return u * (8 + -(-k // lanes) + lanes.bit_length() + in_turn)


def allowed(flips: Array, has_draws: bool) -> float:
    """Allowed share of draws with another integer: four times the expected share plus five standard deviations."""
    if not has_draws or not np.any(flips):
        return 0.0
    mean = float(flips.mean())
    return 4 * mean + 5 * float(np.sqrt(mean / flips.size)) + 2 / flips.size


def update_pi(given: Given, units: Array, k: int, u: float) -> Judge:
    """Check the normalised rows, their sums, and the exchange of slots and spares."""
    spares, before = given["spares"][units], given["slots"][given["vertices"][units]]
    rows = given["pi"][spares].astype(np.float64)
    sums = rows.sum(axis=1)
    rows /= sums[:, None]

    def judge(got: Got, config: Config) -> str | None:
        chain = summing(k, config, u)
        new = {"pi": Expected(rows, rows * 2 * chain), "row_sums": Expected(sums, sums * chain)}
        return wrong_of(got, new | {"slots": exact(spares), "spares": exact(before)})

    return judge


def theta_partial(given: Given, units: Array, k: int, u: float, storage: Storage) -> Judge:
    """Check the counts of groups over their own pairs."""
    first, groups, delta = (given[name] for name in ("first_pair", "n_groups", "delta"))
    sums = []
    for group in units.tolist():
        pairs = int(first) + np.arange(group, int(given["n_pairs"]), int(groups))
        rows_a, rows_b, beta = _rows_of_pairs(given, pairs, k, storage)
        weights = given["pair_weights"][pairs].astype(np.float64)
        sums.append(equations.theta_counts(rows_a, rows_b, beta, weights, float(delta), u, least(storage)))
    counts, error = (np.stack(values) for values in zip(*sums, strict=True))
    return lambda got, config: Expected(counts, 2 * error).errors(got["counts"][:, :, :k])


def theta_end(given: Given, got: Got, k: int, step: equations.ThetaStep, u: float) -> str | None:
    """Check theta after its step, and the beta of the new theta."""
    before, counts = given["theta"][:, :k].astype(np.float64), given["counts"][:, :, :k].astype(np.float64)
    totals = counts.sum(axis=0)
    value = equations.update_theta(before, totals, step)
    # Upper bound of the change of theta for a relative error of the sums, for all steps.
    lever = step.step * totals.sum(axis=0) * (1 + 1 / before)
    summing = float(np.finfo(np.float64).eps) * len(counts) * lever
    scale = before
    if step.name == "wright-fisher":
        # Both columns move by the same, which may be large next to the smaller one.
        scale = np.broadcast_to(value.sum(axis=0), value.shape)
        summing = summing + 8 * float(np.finfo(np.float64).eps) * scale
    noise = np.sqrt(step.step * scale) * 96 * u * 7
    expected = Expected(value, 8 * u * (value + before + lever) + summing + noise, name="theta")
    if (problem := expected.errors(got["theta"][:, :k])) is not None:
        return problem
    if not np.array_equal(got["theta"][:, k:], given["theta"][:, k:]):
        return "the padding of theta changed"
    return update_beta(got, got, k, u)


def update_beta(given: Given, got: Got, k: int, u: float) -> str | None:
    """Check beta, clipped away from 0 and 1."""
    value = equations.beta_of(given["theta"][:, :k].astype(np.float64))
    return Expected(value, 8 * u * np.maximum(value, 1.0)).errors(got["beta"][:k])


def perplexity_pairs(given: Given, units: Array, k: int, u: float, storage: Storage) -> Judge:
    """Check both probabilities and the running sum."""
    rows_a, rows_b, beta = _rows_of_pairs(given, units, k, storage)
    p, published = equations.held_out(rows_a, rows_b, beta, float(given["delta"]))
    if storage.narrow:
        p = np.minimum(p, 1.0 - BETA_FLOOR)
    error = u * (16 + 2 * np.sqrt(k)) * ((rows_a * rows_b) @ np.abs(beta - DELTA)) + 4 * u * DELTA
    sums = given["sums"][units] + p
    of_published = Expected(published, error + u * DELTA * 64)
    right = {"probabilities": Expected(p, error), "published": of_published, "sums": Expected(sums, error + 1e-15)}
    return lambda got, config: wrong_of(got, right)


def explain_links(given: Given, units: Array, k: int, u: float, storage: Storage) -> Judge:
    """Check the best community exactly, from products in the kernel's precision, and its share within rounding."""
    rows_a, rows_b, beta = _rows_of_pairs(given, units, k, storage)
    real = given["beta"].dtype
    best = (rows_a.astype(real) * rows_b.astype(real) * beta.astype(real)).argmax(axis=1)
    shares = _explained(given, rows_a, rows_b, beta, best[:, None], u)
    return lambda got, config: exact(best, "best").errors(got["best"]) or shares(config).errors(got["shares"][:, None])


def explain_at(given: Given, units: Array, k: int, u: float) -> Judge:
    """Check the shares of the requested communities."""
    rows_a, rows_b, beta = _rows_of_pairs(given, units, k, storage_named("float32", given["pi"].dtype.name))
    shares = _explained(given, rows_a, rows_b, beta, given["places"][units].astype(np.int64), u)
    return lambda got, config: shares(config).errors(got["explained"])


def _explained(
    given: Given, rows_a: Array, rows_b: Array, beta: Array, at: Array, u: float
) -> Callable[[Config], Expected]:
    """The shares of the communities ``at`` ``[P, .]`` in the probabilities of links, by the configuration."""
    delta, both = float(given["delta"]), rows_a * rows_b
    value, sums = equations.explained(rows_a, rows_b, beta, delta), both.sum(axis=1)
    value = np.take_along_axis(value, at, axis=1)
    z = np.maximum(both @ beta + delta * np.maximum(1.0 - sums, 0.0), Z_FLOOR)

    def expected(config: Config) -> Expected:
        chain = summing(beta.size, config, u)
        # All terms of both sums are positive; 1 minus the second sum may have cancellation.
        return Expected(value, value * (chain + 8 * u + delta * sums * chain / z)[:, None])

    return expected


def perplexity_sum(given: Given, got: Got) -> str | None:
    """Check the six log-likelihoods, summed over blocks."""
    mean, labels = given["sums"] / given["n_samples"], given["labels"].astype(np.int64)
    value = equations.log_likelihoods(given["probabilities"], mean, given["published"], labels)
    return Expected(value, np.abs(value) * 1e-12 + 1e-12).errors(got["partial"].sum(axis=0))


def init_pi(units: Array, k: int, seed: int, u: float, storage: Storage) -> Judge:
    """Check initial rows, their padding, sums and slots."""
    rows, sums = equations.initial_rows(seed, units, k)
    chain = u * (16 + 2 * np.sqrt(k))
    error, bits = chain * rows + 4 * u / k, random_bits(seed, k, units, 0) if storage.narrow else np.zeros(0)

    def judge(got: Got, config: Config) -> str | None:
        stored = got["pi"][:, :k]
        if np.any(got["pi"][:, k:] != 0):
            return "the padding of a row is not zero"
        problem = (
            within(stored, rows, error, bits, storage)[0] if storage.narrow else Expected(rows, error).errors(stored)
        )
        return problem or wrong_of(got, {"row_sums": Expected(sums, chain * sums), "slots": exact(units)})

    return judge


def gather_rows(given: Given, units: Array, storage: Storage) -> Judge:
    """Check copied or accumulated rows, and copied sums, bit for bit."""
    slots = given["slots"][int(given["first"]) + units]
    rows, sums = storage.values(given["pi"][slots]), given["row_sums"][slots]

    def judge(got: Got, config: Config) -> str | None:
        if config["accumulate"]:
            return exact(rows + given["rows"][units], "rows").errors(got["rows"])
        return wrong_of(got, {"rows": exact(rows), "sums": exact(sums)})

    return judge


def draws(given: Given, got: Got, seed: int, u: float) -> str | None:
    """Check words bit for bit, and draws within rounding except for a small share of other integers."""
    rates, shapes = given["rates"].astype(np.float64), given["shapes"].astype(np.float64)
    vertex, iteration, i = int(given["vertex"]), int(given["iteration"]), np.arange(rates.size)
    words = np.stack(counter_random.philox(seed, i, vertex, iteration, Purpose.check_words << 24), axis=1)
    xi = counter_random.pair_normals(seed, i, vertex, iteration, Purpose.phi_uniform)
    u1, u2 = counter_random.uniforms(seed, i, vertex, iteration, Purpose.phi_uniform)
    n = counter_random.poisson(rates, u1, seed, i, vertex, iteration)
    g = np.maximum(counter_random.gamma(shapes, u2, u1, seed, i, vertex, iteration), FLOOR)
    flips = np.minimum(1.0, 16 * u * (1 + rates))
    right = {
        "words": exact(words),
        "normals": Expected(xi, 96 * u * (1 + np.abs(xi))),
        "poissons": Expected(n, np.full(n.size, 0.5), allowed(flips, True)),
        "gammas": Expected(g, g * u * (256 + 16 / np.minimum(shapes, 1.0)), 2 / g.size + 1e-4),
    }
    return wrong_of(got, right)


def _rows_of_pairs(given: Given, pairs: Array, k: int, storage: Storage) -> tuple[Array, Array, Array]:
    pi, beta = given["pi"], given["beta"].astype(np.float64)
    rows_a, rows_b = (
        storage.values(pi[given["slots"][given[name][pairs]], :k]).astype(np.float64) for name in ("pairs_a", "pairs_b")
    )
    return rows_a, rows_b, beta[:k]
