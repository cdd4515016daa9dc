"""Matrix factorisation in NumPy, float64, by which kernels are judged.

A sweep is done in a stated order.  Ratings that share no row are done together where no rating between them shares one
with either, which changes nothing: that is what makes the reference fast enough for millions of ratings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: The constants of the witness, which finds every change of order of ratings that share a row.
ODD = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)


@dataclass(frozen=True)
class Factors:
    """A state: user factors ``[m, K]``, item factors ``[n, K]``, biases ``[m]`` and ``[n]``."""

    p: Array
    q: Array
    b: Array
    c: Array

    def copied(self) -> Factors:
        """A copy with arrays of its own."""
        return Factors(self.p.copy(), self.q.copy(), self.b.copy(), self.c.copy())


@dataclass(frozen=True)
class Steps:
    """Constants of a sweep: step, penalties of user rows, item rows and biases, and the mean rating."""

    step: float
    reg_user: float
    reg_item: float
    reg_bias: float
    mean: float
    bias: bool = True


def steps(users: Array, items: Array) -> Iterator[Array]:
    """Places of ratings, in groups that share no row, such that groups in order give what ratings in order give."""
    last_u, last_v = [0] * (int(users.max(initial=0)) + 1), [0] * (int(items.max(initial=0)) + 1)
    depth = []
    for u, v in zip(users.tolist(), items.tolist(), strict=True):
        own = max(last_u[u], last_v[v]) + 1
        last_u[u] = last_v[v] = own
        depth.append(own)
    found = np.array(depth, np.int64)
    order = np.argsort(found, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(found[order])) + 1) if order.size else ()


def errors(x: Factors, users: Array, items: Array, ratings: Array, mean: float) -> Array:
    """Ratings less their predictions ``mean + b + c + <p, q>``, ``[E]``."""
    return ratings - (mean + x.b[users] + x.c[items] + np.einsum("ek,ek->e", x.p[users], x.q[items]))  # type: ignore[no-any-return]


def sweep(
    start: Factors, users: Array, items: Array, ratings: Array, how: Steps, eps: float = 0.0, lost: float = 0.0
) -> tuple[Factors, Factors]:
    """One sweep over ratings ``[E]`` in their order, each moving both rows along the gradient from their old values.

    ``e = r - (mean + b + c + <p, q>)``; ``p' = p + step (e q - reg_user p)``, ``q' = q + step (e p - reg_item q)``, and
    biases alike.

    Returns:
        The state after it, and a bound of what arithmetic with unit round-off ``eps`` may be off, if rows lose the part
        ``lost`` when they are stored: one number a row.
        It follows from the sweep itself: every update passes on the errors of both rows and adds those of its own
        operations.
    """
    x, k = start.copied(), start.p.shape[1]
    off = Factors(eps * _norm(x.p), eps * _norm(x.q), eps * np.abs(x.b), eps * np.abs(x.c))
    g = how.step
    for at in steps(users, items):
        u, v, r = users[at], items[at], ratings[at]
        p, q, b, c = x.p[u], x.q[v], x.b[u], x.c[v]
        e = r - (how.mean + b + c + np.einsum("ek,ek->e", p, q))
        x.p[u] = p + g * (e[:, None] * q - how.reg_user * p)
        x.q[v] = q + g * (e[:, None] * p - how.reg_item * q)
        if how.bias:
            x.b[u], x.c[v] = b + g * (e - how.reg_bias * b), c + g * (e - how.reg_bias * c)
        if not eps:
            continue
        size, length_p, length_q, dp, dq = np.abs(e), _norm(p), _norm(q), off.p[u], off.q[v]
        sum_of_parts = np.abs(r) + abs(how.mean) + np.abs(b) + np.abs(c)
        de = off.b[u] + off.c[v] + length_p * dq + length_q * dp + dp * dq
        de += eps * (4 * sum_of_parts + (k + 4) * length_p * length_q)
        off.p[u] = abs(1 - g * how.reg_user) * dp + g * (size * dq + length_q * de + de * dq)
        off.p[u] += 4 * eps * (length_p + g * size * length_q)
        off.q[v] = abs(1 - g * how.reg_item) * dq + g * (size * dp + length_p * de + de * dp)
        off.q[v] += 4 * eps * (length_q + g * size * length_p)
        if lost:
            off.p[u] += lost * (_norm(x.p[u]) + off.p[u])
            off.q[v] += lost * (_norm(x.q[v]) + off.q[v])
        off.b[u] += g * de + 4 * eps * (np.abs(b) + g * size)
        off.c[v] += g * de + 4 * eps * (np.abs(c) + g * size)
    return x, off


def _norm(rows: Array) -> Array:
    return np.sqrt(np.einsum("ek,ek->e", rows, rows))  # type: ignore[no-any-return]


def _changes(x: Factors, users: Array, items: Array, ratings: Array, how: Steps) -> Iterator[tuple[str, Array, Array]]:
    """What each rating changes in a state: the name of the rows, the row, and the change."""
    p, q, g = x.p[users], x.q[items], how.step
    e = errors(x, users, items, ratings, how.mean)
    yield "p", users, g * (e[:, None] * q - how.reg_user * p)
    yield "q", items, g * (e[:, None] * p - how.reg_item * q)
    if how.bias:
        yield "b", users, g * (e - how.reg_bias * x.b[users])
        yield "c", items, g * (e - how.reg_bias * x.c[items])


def some_changes(start: Factors, users: Array, items: Array, ratings: Array, how: Steps) -> tuple[Factors, Factors]:
    """What one sweep can give, to first order, if it loses changes: the middle of the range, and half of its length.

    Each coordinate keeps at least one of its changes, as the last one to be stored is not lost.
    """
    middle, half = start.copied(), Factors(*(np.zeros_like(each) for each in (start.p, start.q, start.b, start.c)))
    for rows, of_row, changes in _changes(start, users, items, ratings, how):
        value: Array = getattr(start, rows)
        ends = []
        for least in (np.minimum, np.maximum):
            sums, one = np.zeros_like(value), np.full_like(value, np.inf if least is np.minimum else -np.inf)
            np.add.at(sums, of_row, least(changes, 0))
            least.at(one, of_row, changes)
            ends.append(np.where(sums == 0, np.where(np.isfinite(one), one, 0), sums))
        getattr(middle, rows)[:] += (ends[0] + ends[1]) / 2
        getattr(half, rows)[:] = (ends[1] - ends[0]) / 2
    return middle, half


def change_bound(
    start: Factors, users: Array, items: Array, ratings: Array, how: Steps, eps: float, lost: float = 0.0
) -> tuple[Factors, Factors]:
    """What one sweep gives in any order and with any old values read, to first order in the step, and a bound.

    While the sweep goes on, a row is within ``r = 2 step sum(|e| |q| + reg |p|)`` of its start (sum over its ratings),
    so that each gradient is as near to that at the start as the radii of its two rows allow.  That holds if changes
    stay below their double, which the caller's small step sees to.
    """
    m, n, g, k = start.p.shape[0], start.q.shape[0], how.step, start.p.shape[1]
    p, q = start.p[users], start.q[items]
    e = errors(start, users, items, ratings, how.mean)
    length_p, length_q, size = _norm(p), _norm(q), np.abs(e)

    def by_user(x: Array) -> Array:
        return np.bincount(users, x, m)

    def by_item(x: Array) -> Array:
        return np.bincount(items, x, n)

    x = start.copied()
    for rows, of_row, changes in _changes(start, users, items, ratings, how):
        np.add.at(getattr(x, rows), of_row, changes)
    lost_p, lost_q = 2 * lost * length_p, 2 * lost * length_q
    radius_p = by_user(2 * g * (size * length_q + how.reg_user * length_p) + lost_p)[users]
    radius_q = by_item(2 * g * (size * length_p + how.reg_item * length_q) + lost_q)[items]
    radius_b = radius_c = np.zeros(users.size)
    if how.bias:
        radius_b = 2 * g * by_user(size + how.reg_bias * np.abs(start.b[users]))[users]
        radius_c = 2 * g * by_item(size + how.reg_bias * np.abs(start.c[items]))[items]
    de = radius_b + radius_c + length_p * radius_q + length_q * radius_p + radius_p * radius_q
    de += eps * (4 * (np.abs(ratings) + abs(how.mean) + 1) + (k + 4) * length_p * length_q)
    off_p = g * (size * radius_q + de * (length_q + radius_q) + how.reg_user * radius_p) + 4 * eps * length_p + lost_p
    off_q = g * (size * radius_p + de * (length_p + radius_p) + how.reg_item * radius_q) + 4 * eps * length_q + lost_q
    off_b = g * (de + how.reg_bias * radius_b) + 4 * eps * (np.abs(start.b[users]) + radius_b + g * size)
    off_c = g * (de + how.reg_bias * radius_c) + 4 * eps * (np.abs(start.c[items]) + radius_c + g * size)
    first = Factors(eps * _norm(start.p), eps * _norm(start.q), eps * np.abs(start.b), eps * np.abs(start.c))
    off = Factors(by_user(off_p), by_item(off_q), by_user(off_b), by_item(off_c))
    return x, Factors(*(getattr(off, name) + getattr(first, name) for name in "pqbc"))


def witness(start: Factors, users: Array, items: Array, ratings: Array, *, bias: bool) -> Factors:
    """The exact operator on numbers of 32 bits: ``p' = A p + B q + r``, ``q' = C q + D p + r``, biases alike."""
    x = start.copied()
    a, b_, c_, d = (np.uint32(number) for number in ODD)
    for at in steps(users, items):
        u, v, r = users[at], items[at], ratings[at]
        p, q, b, c = x.p[u], x.q[v], x.b[u], x.c[v]
        x.p[u], x.q[v] = a * p + b_ * q + r[:, None], c_ * q + d * p + r[:, None]
        if bias:
            x.b[u], x.c[v] = a * b + b_ * c + r, c_ * c + d * b + r
    return x


def add_witness(start: Factors, users: Array, items: Array, ratings: Array, *, bias: bool) -> Factors:
    """The exact operator of sums, which no order changes: ``p' = p + r + 1``, ``q' = q + C r``, biases alike."""
    x = start.copied()
    np.add.at(x.p, users, (ratings + np.uint32(1))[:, None])
    np.add.at(x.q, items, (ratings * np.uint32(ODD[2]))[:, None])
    if bias:
        np.add.at(x.b, users, ratings + np.uint32(1))
        np.add.at(x.c, items, ratings * np.uint32(ODD[2]))
    return replace(x)


def _systems(
    rows: Array, offsets: Array, others: Array, ratings: Array, q: Array, reg: float, implicit: bool, weighted: bool
) -> Iterator[tuple[int, Array, Array, Array, float]]:
    """Of each row with ratings, in :func:`solved_rows`: its place, and what its matrix and right side are made of.

    These are the factors ``[d, K]`` of its ratings, their weights and right sides ``[d]``, and the penalty.
    """
    for place, row in enumerate(rows.tolist()):
        at = slice(int(offsets[row]), int(offsets[row + 1]))
        count = at.stop - at.start
        if count:
            r = ratings[at]
            weight, right = (r, 1 + r) if implicit else (np.ones(count), r)
            yield place, q[others[at]], weight, right, reg * (count if weighted else 1)


def solved_rows(
    rows: Array, offsets: Array, others: Array, ratings: Array, q: Array, reg: float, *, implicit: bool, weighted: bool
) -> tuple[Array, Array]:
    """The least-squares rows of one side, the other side's factors ``q`` ``[n, K]`` given.

    Explicit: ``(sum q q^T + reg I) x = sum r q``.  Implicit (Hu, Koren, Volinsky 2008), with excess confidence r:
    ``(Q^T Q + sum r q q^T + reg I) x = sum (1 + r) q``.  ``weighted`` multiplies ``reg`` by the row's number of ratings
    (Zhou et al. 2008).

    Returns:
        The rows ``[s, K]``, 0 for those without ratings, and bounds of the condition numbers of their matrices ``[s]``.
    """
    k = q.shape[1]
    found, condition = np.zeros((rows.size, k)), np.ones(rows.size)
    base = q.T @ q if implicit else np.zeros((k, k))
    for place, own, weight, right, penalty in _systems(rows, offsets, others, ratings, q, reg, implicit, weighted):
        matrix = base + (own * weight[:, None]).T @ own + np.eye(k) * penalty
        found[place] = np.linalg.solve(matrix, own.T @ right)
        condition[place] = np.linalg.norm(matrix) / penalty  # no eigenvalue is below the penalty
    return found, condition


def stepped_rows(
    rows: Array,
    offsets: Array,
    others: Array,
    ratings: Array,
    q: Array,
    start: Array,
    reg: float,
    steps: int,
    *,
    implicit: bool,
    weighted: bool,
    eps: float,
) -> tuple[Array, Array]:
    """``steps`` steps of conjugate gradients from ``start`` ``[R, K]`` on the systems of :func:`solved_rows`.

    Hestenes, Stiefel 1952: ``r = b - A x``, ``d = r``; then ``a = r r / d A d``, ``x += a d``, ``r -= a A d``, and
    ``d = r + (r r / before) d``.

    Returns:
        The rows ``[s, K]``, 0 for those without ratings, and bounds of what arithmetic with unit round-off ``eps`` may
        be off ``[s]``.  A bound follows the errors of each vector and each scalar product through the steps.  Once the
        errors may be as large as what is left, directions are no longer known.  Steps then still lessen the error in
        the norm of A, so that both solutions stay as near to the exact one as they were, but for the root of the
        condition number.
    """
    k = q.shape[1]
    found, off, unit = np.zeros((rows.size, k)), np.zeros(rows.size), eps / 2
    base, sizes = (each.T @ each if implicit else np.zeros((k, k)) for each in (q, np.abs(q)))
    for place, own, weight, right, penalty in _systems(rows, offsets, others, ratings, q, reg, implicit, weighted):
        count, row = len(own), rows[place]
        matrix = base + (own * weight[:, None]).T @ own + np.eye(k) * penalty
        sums = sizes + (np.abs(own) * weight[:, None]).T @ np.abs(own) + np.eye(k) * penalty
        values, terms = np.linalg.eigvalsh(matrix), unit * (count + len(q) * implicit + k + 8)
        x = start[row].copy()
        left = own.T @ right - matrix @ x
        d, dx = left.copy(), 0.0
        dl = dd = terms * _length(sums @ np.abs(x) + np.abs(own).T @ np.abs(right))
        now, dn = _product(left, left, dl, dl, terms)
        for _ in range(steps):
            image = matrix @ d
            di = values[-1] * dd + terms * (_length(sums @ np.abs(d)) + _length(sums) * dd)
            along, da = _product(d, image, dd, di, terms)
            if 2 * dn >= now or 2 * da >= along:
                dx += 2 * np.sqrt(values[-1] / values[0]) * (_length(left) + dl) / values[0]
                break
            far = now / along
            df = (dn + far * da) / (along - da) + 2 * unit * far
            x = x + far * d
            dx += df * (_length(d) + dd) + far * dd + unit * (_length(x) + far * _length(d))
            left = left - far * image
            dl += df * (_length(image) + di) + far * di + unit * (_length(left) + far * _length(image))
            before, db = now, dn
            now, dn = _product(left, left, dl, dl, terms)
            share = now / before
            ds = (dn + share * db) / (before - db) + 2 * unit * share
            dd = dl + ds * (_length(d) + dd) + share * dd
            d = left + share * d
            dd += unit * _length(d)
        found[place], off[place] = x, dx
    return found, off


def _length(x: Array) -> float:
    return float(np.linalg.norm(x))


def _product(x: Array, y: Array, dx: float, dy: float, terms: float) -> tuple[float, float]:
    """A scalar product, and a bound of its error by those of the vectors and of as many ``terms``."""
    return float(x @ y), dx * _length(y) + dy * _length(x) + dx * dy + terms * (_length(x) + dx) * (_length(y) + dy)
