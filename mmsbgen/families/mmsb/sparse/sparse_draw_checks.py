"""Checks of rows of a sweep over sparse rows with noise.

pi times the row sum is phi, so that each coordinate of a row is checked by itself.  Rounding may change a draw, rarely:
then one coordinate of the row differs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mmsbgen.families.mmsb.numbers import sparse_rows as rows_format
from mmsbgen.families.mmsb.reference import sparse_draws as noisy
from mmsbgen.families.mmsb.reference.sparse_equations import SparseRow, SparseStep
from mmsbgen.kernels.family import Array

#: Chance of a changed draw below which coordinates are counted apart: nearly all, which hardly ever differ.
_RARE = 1e-5


def judge_row(
    row: noisy.DrawnRow,
    new: Array,
    pi: Array,
    row_sum: float,
    k: int,
    step: SparseStep,
    noise: noisy.SparseNoise,
    u: float,
    flipped: list[float],
) -> str | None:
    """Check a new row; the chance of a coordinate that differs is added to ``flipped``.

    Args:
        row: what the reference has before the cut.
        new: communities ``[R]`` of the new row.
        pi: its values ``[R]``.
        row_sum: its sum of phi.
        k: number of communities.
        step: scalars of the step.
        noise: what the draws depend on.
        u: unit roundoff of the kernel.
        flipped: chances of the coordinates that differed so far.
    """
    count = int((new != rows_format.NONE).sum())
    entries = new[:count].astype(np.int64)
    if not count or np.any(new[count:] != rows_format.NONE) or np.any(pi[count:] != 0):
        return f"{count} entries, or unused ones before them"
    if np.unique(entries).size != count or np.any(entries >= k) or np.any(np.diff(pi[:count]) > 0):
        return "entries are not distinct and descending"
    excess, raised = pi.sum() + (k - count) * step.floor - 1.0, count * step.floor
    if not -(count + 16) * u <= excess <= (count + 16) * u + raised:
        return f"pi adds up to 1 {excess:+.3g}"
    if row.entrant_flips >= 1.0:
        return None
    phi = pi[:count] * row_sum
    at = np.searchsorted(row.candidates, entries)
    there = row.candidates[np.minimum(at, row.candidates.size - 1)] == entries
    wrong = [row.entrant_flips] * int((~there).sum())
    at, phi = at[there], phi[there]
    right = np.maximum(row.phi[at], noise.threshold) if count == 1 else row.phi[at]
    # pi is rounded, and divided by a rounded sum; what is below the floor is raised to it.
    off = np.abs(phi - right) > 2 * row.error[at] + (count + 32) * u * right
    off &= ~((pi[:count][there] <= step.floor) & (right <= phi))
    off |= (right < noise.threshold * (1 - 4 * u) - row.error[at]) & (count > 1)
    wrong += row.flips[at[off]].tolist()
    # What is left out is below the threshold, or below all of R entries.
    least = max(noise.threshold, phi.min(initial=np.inf) if count == new.size else 0.0)
    left_out = np.ones(row.candidates.size, bool)
    left_out[at] = False
    missing = left_out & (row.phi - 2 * row.error > least * (1 + 8 * u))
    wrong += row.flips[missing].tolist()
    if len(wrong) > 1:
        return f"{len(wrong)} of {row.candidates.size} coordinates differ"
    flipped += wrong
    return None


def judge_flips(rows: Sequence[SparseRow], flipped: list[float]) -> str | None:
    """Check that few coordinates differ: four times as many as expected and five standard deviations, rounded down."""
    drawn = [row for row in rows if isinstance(row, noisy.DrawnRow) and row.entrant_flips < 1.0]
    if not drawn:
        return None
    chances = np.concatenate([*(row.flips for row in drawn), [row.entrant_flips for row in drawn]])
    found = np.array(flipped)
    for rare in (True, False):
        mean = chances[(chances < _RARE) == rare].sum()
        count, most = int(((found < _RARE) == rare).sum()), int(4 * mean + 5 * np.sqrt(mean))
        if count > most:
            return f"{count} draws differ where rounding may change {most}"
    return None
