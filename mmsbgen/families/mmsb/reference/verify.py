"""Checks of kernel outputs against the reference.

Each returns None if all outputs agree within their derived tolerances, else an error message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR, DELTA, FLOOR, Z_FLOOR, Purpose
from mmsbgen.families.mmsb.numbers.storage import Storage, random_bits, storage_named
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.family import Array, Expected
from mmsbgen.kernels.space import Config

Given = Mapping[str, Any]
Got = Mapping[str, Array]


def update_phi(
    given: Given, got: Got, config: Config, k: int, step: equations.Step, u: float, storage: Storage
) -> str | None:
    """Check the new rows and the count of clipped coordinates; all other rows must be unchanged."""
    pi = storage.values(given["pi"]).astype(np.float64)
    sums, beta = (np.asarray(given[name], np.float64) for name in ("row_sums", "beta"))
    phi, error, flips, clips = [], [], [], []
    for i, vertex in enumerate(given["vertices"]):
        span = slice(i * int(given["n_partners"]), (i + 1) * int(given["n_partners"]))
        slot = given["slots"][vertex]
        own = pi[slot, :k]
        rows, weights = pi[given["slots"][given["partners"][span]], :k], given["weights"][span].astype(np.float64)
        drift, drift_error = equations.drift(own, beta[:k], rows, weights, step.delta, u, least(storage))
        kept = float(sums[slot]) if storage.narrow else None
        end = equations.end_row(own * sums[slot], own, drift, drift_error, int(vertex), step, u, kept)
        phi.append(end.phi)
        error.append(end.error + 2 * u * end.phi)
        flips.append(end.flips)
        clips.append(end.clips)
    expected = Expected(np.array(phi), np.array(error) * 2 + FLOOR, allowed(np.array(flips), step.name == "split"))
    spares = given["spares"]
    rows = storage.values(got["pi"][spares]).astype(np.float64)
    if np.any(rows[:, k:] != 0):
        return "the padding of a row is not zero"
    untouched = np.setdiff1d(np.arange(pi.shape[0]), spares)
    if not np.array_equal(got["pi"][untouched], given["pi"][untouched]):
        return "a row outside the mini-batch changed"
    if storage.narrow:
        problem = _stored_rows(given, got, config, k, step, u, storage, expected)
        if problem is not None:
            return problem
    elif config["normalise"]:
        off = np.abs(rows.sum(axis=1) - 1).max()
        if off > summing(k, config, u):
            return f"a row sums to 1 {off:+.3g}"
        rows = rows[:, :k] * got["row_sums"][spares].astype(np.float64)[:, None]
        rounding = u * (16 + 4 * np.sqrt(k)) * expected.value
        expected = Expected(expected.value, expected.tolerance + rounding, expected.allowed)
    problem = None if storage.narrow else expected.errors(rows[:, :k])
    if problem is not None:
        return f"phi: {problem}"
    if abs(int(got["clip_counts"].sum()) - sum(clips)) > 0.01 * sum(clips) + 1:
        return f"{int(got['clip_counts'].sum())} bounded coordinates instead of {sum(clips)}"
    return None


def least(storage: Storage) -> float:
    """Lower bound of Z of a non-link."""
    return BETA_FLOOR if storage.narrow else Z_FLOOR


def _stored_rows(
    given: Given,
    got: Got,
    config: Config,
    k: int,
    step: equations.Step,
    u: float,
    storage: Storage,
    phi: Expected,
) -> str | None:
    """Check stored rows of 16 bits against ``phi``, rounded with their random bits.

    Rounding with given bits is monotone, so rounding both ends of the tolerance bounds the stored element.  Both ends
    usually round to the same element.
    """
    spares, vertices = given["spares"], given["vertices"]
    totals = got["row_sums"][spares].astype(np.float64)[:, None]
    # pi is phi times the rounded inverse of the row sum, which is rounded too.
    tolerance = phi.tolerance / totals + 4 * u * phi.value / totals
    bits = random_bits(step.seed, k, vertices, step.iteration)
    problem, wrong = within(got["pi"][spares, :k], phi.value / totals, tolerance, bits, storage, phi.allowed)
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


def update_pi(given: Given, got: Got, config: Config, k: int, u: float) -> str | None:
    """Check the normalised rows, their sums, and the exchange of slots and spares."""
    rows = given["pi"][given["spares"]].astype(np.float64)
    sums = rows.sum(axis=1)
    chain = summing(k, config, u)
    spares = given["spares"]
    return (
        Expected(rows / sums[:, None], rows / sums[:, None] * 2 * chain).errors(got["pi"][spares])
        or Expected(sums, sums * chain).errors(got["row_sums"][spares])
        or (
            None
            if np.array_equal(got["slots"][given["vertices"]], spares)
            and np.array_equal(got["spares"], given["slots"][given["vertices"]])
            else "slots and spares were not exchanged"
        )
    )


def theta_partial(given: Given, got: Got, k: int, u: float, storage: Storage) -> str | None:
    """Check the counts of every group over its own pairs."""
    span = slice(int(given["first_pair"]), int(given["first_pair"]) + int(given["n_pairs"]))
    rows_a, rows_b, beta = _rows_of_pairs(given, k, storage, span)
    floor = least(storage)
    w = given["pair_weights"][span].astype(np.float64)
    groups, delta, of = int(given["n_groups"]), float(given["delta"]), np.arange(w.size)
    each = [of % groups == group for group in range(groups)]
    sums = [equations.theta_counts(rows_a[of_it], rows_b[of_it], beta, w[of_it], delta, u, floor) for of_it in each]
    counts, error = (np.stack(values) for values in zip(*sums, strict=True))
    return Expected(counts, 2 * error).errors(got["counts"][:, :, :k])


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
    problem = Expected(value, 8 * u * (value + before + lever) + summing + noise).errors(got["theta"][:, :k])
    if problem is not None:
        return f"theta: {problem}"
    if not np.array_equal(got["theta"][:, k:], given["theta"][:, k:]):
        return "the padding of theta changed"
    return update_beta(got, got, k, u)


def update_beta(given: Given, got: Got, k: int, u: float) -> str | None:
    """Check beta, clipped away from 0 and 1."""
    value = equations.beta_of(given["theta"][:, :k].astype(np.float64))
    return Expected(value, 8 * u * np.maximum(value, 1.0)).errors(got["beta"][:k])


def perplexity_pairs(given: Given, got: Got, k: int, u: float, storage: Storage) -> str | None:
    """Check both probabilities and the running sum."""
    rows_a, rows_b, beta = _rows_of_pairs(given, k, storage)
    p, published = equations.held_out(rows_a, rows_b, beta, float(given["delta"]))
    if storage.narrow:
        p = np.minimum(p, 1.0 - BETA_FLOOR)
    error = u * (16 + 2 * np.sqrt(k)) * ((rows_a * rows_b) @ np.abs(beta - DELTA)) + 4 * u * DELTA
    return (
        Expected(p, error).errors(got["probabilities"])
        or Expected(published, error + u * DELTA * 64).errors(got["published"])
        or Expected(given["sums"] + p, error + 1e-15).errors(got["sums"])
    )


def explain_links(given: Given, got: Got, config: Config, k: int, u: float, storage: Storage) -> str | None:
    """Check the best community exactly, from products in the kernel's precision, and its share within rounding."""
    rows_a, rows_b, beta = _rows_of_pairs(given, k, storage)
    real = given["beta"].dtype
    best = (rows_a.astype(real) * rows_b.astype(real) * beta.astype(real)).argmax(axis=1)
    wrong = np.flatnonzero(got["best"] != best)
    if wrong.size:
        at = int(wrong[0])
        return (
            f"{wrong.size} of {best.size} links: link {at} has community {int(got['best'][at])} instead of {best[at]}"
        )
    at = best[:, None]
    return _expected_at(at, *_explained(given, rows_a, rows_b, beta, config, u)).errors(got["shares"][:, None])


def explain_at(given: Given, got: Got, config: Config, k: int, u: float) -> str | None:
    """Check the shares of the requested communities."""
    rows_a, rows_b, beta = _rows_of_pairs(given, k, storage_named("float32", given["pi"].dtype.name))
    at = given["places"].astype(np.int64)
    return _expected_at(at, *_explained(given, rows_a, rows_b, beta, config, u)).errors(got["explained"])


def _expected_at(at: Array, value: Array, tolerance: Array) -> Expected:
    return Expected(np.take_along_axis(value, at, axis=1), np.take_along_axis(tolerance, at, axis=1))


def _explained(
    given: Given, rows_a: Array, rows_b: Array, beta: Array, config: Config, u: float
) -> tuple[Array, Array]:
    """Shares ``[P, K]`` and their rounding error bounds."""
    delta, chain = float(given["delta"]), summing(beta.size, config, u)
    shares, both = equations.explained(rows_a, rows_b, beta, delta), rows_a * rows_b
    z = np.maximum(both @ beta + delta * np.maximum(1.0 - both.sum(axis=1), 0.0), Z_FLOOR)
    # All terms of both sums are positive; 1 minus the second sum may have cancellation.
    relative = chain + 8 * u + delta * both.sum(axis=1) * chain / z
    return shares, shares * relative[:, None]


def perplexity_sum(given: Given, got: Got) -> str | None:
    """Check the six log-likelihoods, summed over blocks."""
    mean, labels = given["sums"] / given["n_samples"], given["labels"].astype(np.int64)
    value = equations.log_likelihoods(given["probabilities"], mean, given["published"], labels)
    return Expected(value, np.abs(value) * 1e-12 + 1e-12).errors(got["partial"].sum(axis=0))


def init_pi(got: Got, n: int, k: int, seed: int, u: float, storage: Storage) -> str | None:
    """Check some initial rows, and the padding and slots of all."""
    some = np.unique(np.linspace(0, n - 1, 64).astype(np.int64))
    rows, sums = equations.initial_rows(seed, some, k)
    chain = u * (16 + 2 * np.sqrt(k))
    if np.any(got["pi"][:, k:] != 0):
        return "the padding of a row is not zero"
    stored, error = got["pi"][some, :k], chain * rows + 4 * u / k
    if storage.narrow:
        problem = within(stored, rows, error, random_bits(seed, k, some, 0), storage)[0]
    else:
        problem = Expected(rows, error).errors(stored)
    return (
        problem
        or Expected(sums, chain * sums).errors(got["row_sums"][some])
        or (None if np.array_equal(got["slots"], np.arange(n)) else "slots are not 0, 1, 2, ...")
    )


def gather_rows(given: Given, got: Got, accumulate: bool, storage: Storage) -> str | None:
    """Check copied or accumulated rows, and copied sums, bit for bit."""
    first = int(given["first"])
    slots = given["slots"][first : first + int(given["n_rows"])]
    rows = storage.values(given["pi"][slots])
    if accumulate:
        return None if np.array_equal(got["rows"], rows + given["rows"]) else "rows were not added"
    if not np.array_equal(got["rows"], rows):
        return "rows are not those of the vertices"
    return None if np.array_equal(got["sums"], given["row_sums"][slots]) else "sums are not those of the vertices"


def draws(given: Given, got: Got, seed: int, u: float) -> str | None:
    """Check words bit for bit, and draws within rounding except for a small share of other integers."""
    rates, shapes = given["rates"].astype(np.float64), given["shapes"].astype(np.float64)
    vertex, iteration, i = int(given["vertex"]), int(given["iteration"]), np.arange(rates.size)
    words = np.stack(counter_random.philox(seed, i, vertex, iteration, Purpose.check_words << 24), axis=1)
    if not np.array_equal(got["words"], words.astype(np.uint32)):
        return "words differ from Philox4x32-7"
    xi = counter_random.pair_normals(seed, i, vertex, iteration, Purpose.phi_uniform)
    u1, u2 = counter_random.uniforms(seed, i, vertex, iteration, Purpose.phi_uniform)
    n = counter_random.poisson(rates, u1, seed, i, vertex, iteration)
    g = np.maximum(counter_random.gamma(shapes, u2, u1, seed, i, vertex, iteration), FLOOR)
    flips = np.minimum(1.0, 16 * u * (1 + rates))
    return (
        Expected(xi, 96 * u * (1 + np.abs(xi))).errors(got["normals"])
        or Expected(n, np.full(n.size, 0.5), allowed(flips, True)).errors(got["poissons"])
        or Expected(g, g * u * (256 + 16 / np.minimum(shapes, 1.0)), 2 / g.size + 1e-4).errors(got["gammas"])
    )


def _rows_of_pairs(given: Given, k: int, storage: Storage, span: slice = slice(None)) -> tuple[Array, Array, Array]:
    pi, beta = given["pi"], given["beta"].astype(np.float64)
    rows_a, rows_b = (
        storage.values(pi[given["slots"][given[name][span]], :k]).astype(np.float64) for name in ("pairs_a", "pairs_b")
    )
    return rows_a, rows_b, beta[:k]
