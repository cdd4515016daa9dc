"""Graphs of Lancichinetti and Fortunato (2009) with overlapping communities: links across them are a share mu."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: Attempts to match the stubs that are left after loops and repetitions.
_ROUNDS = 20


def lfr(
    n: int,
    degree: float,
    max_degree: int,
    sizes: tuple[int, int],
    mixing: float,
    overlapping: float,
    memberships: int,
    seed: int,
) -> tuple[Ints, list[Ints]]:
    """Links ``[E, 2]`` and the communities' members.

    Degrees follow a power law of exponent 2 with mean ``degree``, sizes of communities one of exponent 1 within
    ``sizes``.  A share ``overlapping`` of the vertices is in ``memberships`` communities, the others in one.
    """
    rng = np.random.default_rng(seed)
    degrees = _degrees(n, degree, max_degree, rng)
    counts = np.ones(n, np.int64)
    counts[rng.choice(n, round(overlapping * n), replace=False)] = memberships
    inner = np.rint((1 - mixing) * degrees).astype(np.int64)
    members = _members(counts, np.ceil(inner / counts), _sizes(int(counts.sum()), sizes, rng), rng)
    links: set[tuple[int, int]] = set()
    left = degrees.copy()
    for group in members:
        stubs = np.floor(inner[group] / counts[group] + rng.random(group.size)).astype(np.int64)
        _match(group, np.minimum(stubs, group.size - 1), links, left, rng)
    own: list[set[int]] = [set() for _ in range(n)]
    for community, group in enumerate(members):
        for vertex in group.tolist():
            own[vertex].add(community)
    _match(np.arange(n), left.clip(min=0), links, left, rng, own)
    return np.array(sorted(links), np.int64), members


def _power_law(values: Ints, exponent: float, size: int, rng: np.random.Generator) -> Ints:
    weights = values.astype(np.float64) ** -exponent
    return rng.choice(values, size, p=weights / weights.sum())


def _degrees(n: int, mean: float, largest: int, rng: np.random.Generator) -> Ints:
    """Degrees ``[n]`` from the least value on whose mean is nearest to ``mean``."""

    def of(least: int) -> float:
        values = np.arange(least, largest + 1, dtype=np.float64)
        return float((1 / values).sum() / (values**-2).sum())

    least = min(range(1, round(mean) + 1), key=lambda one: abs(of(one) - mean))
    return _power_law(np.arange(least, largest + 1), 2.0, n, rng)


def _sizes(total: int, bounds: tuple[int, int], rng: np.random.Generator) -> Ints:
    """Sizes of communities with the sum ``total``; what is left over goes one each to the first."""
    found: list[int] = []
    values = np.arange(bounds[0], bounds[1] + 1)
    while total - sum(found) >= bounds[0]:
        found.append(min(int(_power_law(values, 1.0, 1, rng)[0]), total - sum(found)))
    sizes = np.array(found)
    for i in range(total - sum(found)):
        sizes[i % len(sizes)] += 1
    return sizes


def _members(counts: Ints, needs: Ints, sizes: Ints, rng: np.random.Generator) -> list[Ints]:
    """Members of communities of ``sizes``; a vertex goes into larger ones than it ``needs`` neighbours in, if any."""
    left, found = sizes.copy(), [[] for _ in sizes]  # type: list[list[int]]
    for vertex in np.lexsort((-needs, -counts)).tolist():
        fits = np.flatnonzero((left > 0) & (sizes > needs[vertex]))
        if fits.size < counts[vertex]:
            fits = np.argsort(-left, kind="stable")[: max(int(counts[vertex]), int((left > 0).sum()))]
        weights = np.maximum(left[fits], 0.01)
        for community in rng.choice(fits, counts[vertex], replace=False, p=weights / weights.sum()).tolist():
            found[community].append(vertex)
            left[community] -= 1
    return [np.array(sorted(one), np.int64) for one in found]


def _match(
    group: Ints,
    stubs: Ints,
    links: set[tuple[int, int]],
    left: Ints,
    rng: np.random.Generator,
    own: list[set[int]] | None = None,
) -> None:
    """Link vertices of ``group`` at random, each as often as it has ``stubs``; with ``own``, across communities."""
    for _ in range(_ROUNDS):
        ends = group[np.repeat(np.arange(group.size), stubs)]
        rng.shuffle(ends)
        again: list[int] = ends[-1:].tolist() if ends.size % 2 else []
        for a, b in ends[: ends.size // 2 * 2].reshape(-1, 2).tolist():
            pair = (min(a, b), max(a, b))
            if a == b or pair in links or (own is not None and own[a] & own[b]):
                again += [a, b]
            else:
                links.add(pair)
                left[[a, b]] -= 1
        if len(again) < 2:
            return
        stubs = np.bincount(np.searchsorted(group, again), minlength=group.size)
