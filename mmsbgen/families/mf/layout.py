"""How rows and ratings lie in memory: padded rows, rows by user or item, steps of cells that share no row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmsbgen.kernels.kit.reals import real_bytes
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.ratings.orders import counted, items_at, order_by

Array = NDArray[Any]


class Cells(NamedTuple):
    """Ratings ``[E]`` by the numbers of their users and items, uint32 ``[E]``, of ``n_users`` and ``n_items``."""

    users: Array
    items: Array
    ratings: Array
    n_users: int
    n_items: int

    def at(self, places: Array) -> Cells:
        """Some ratings, in the order of ``places``."""
        users, items, ratings = items_at(places, self.users, self.items, self.ratings)
        return Cells(users, items, ratings, self.n_users, self.n_items)


class CellSteps(NamedTuple):
    """Ratings in steps of cells.  Cells of a step share no row; the ratings of a cell are done one after another.

    Attributes:
        order: The places of all ratings, int64 ``[E]``.
        cells: The first rating of each cell, uint32 ``[C + 1]``.
        steps: The first cell of each step, uint32 ``[S + 1]``.
    """

    order: Array
    cells: Array
    steps: Array


#: After the last rating of a list.
NONE = 2**32 - 1
#: Rows have a multiple of so many coordinates.
_PAD = 16


def padded_width(n_factors: int) -> int:
    """Coordinates of a row in memory: ``n_factors`` rounded up to a multiple of 16."""
    return -(-n_factors // _PAD) * _PAD


def stored_bytes(problem: Problem) -> int:
    """Bytes of a stored coordinate."""
    return 2 if problem.get("storage") == "bfloat16" else real_bytes(problem)


def changed_rows(schedule: str, problem: Problem) -> RoofKind:
    """What SGD is compared with: both rows of a rating are read and written back, or added to, if of float32."""
    row = padded_width(problem.integer("K")) * stored_bytes(problem)
    held = row * (problem.integer("users") + problem.integer("items"))
    return RoofKind("adds" if schedule == "adds" and stored_bytes(problem) == 4 else "update", row, held)


def narrowed(rows: Array) -> Array:
    """The nearest bfloat16 of float32 numbers, uint16."""
    return ((rows.astype(np.float32).view(np.uint32) + np.uint32(1 << 15)) >> 16).astype(np.uint16)


def widened(rows: Array) -> Array:
    """The float32 numbers of bfloat16 ones; others as they are."""
    return (rows.astype(np.uint32) << 16).view(np.float32) if rows.dtype == np.uint16 else rows


def padded(rows: Array, dtype: Any) -> Array:
    """Rows ``[R, K]`` as ``[R, LD]``; what is added is 0, and stays 0 under every kernel."""
    found: Array = np.zeros((rows.shape[0], padded_width(rows.shape[1])), dtype)
    found[:, : rows.shape[1]] = rows
    return found


def balanced(degrees: Array, groups: int) -> Array:
    """The group, uint32 ``[R]``, of rows of ``degrees`` ``[R]``: neighbours, so many that groups have equal parts."""
    ends = np.cumsum(degrees, dtype=np.float64)
    found: Array = np.minimum((ends - degrees / 2) * (groups / ends[-1]), groups - 1).astype(np.uint32)
    return found


def tiles(cells: Cells, n_tiles: int) -> CellSteps:
    """Wrapped tiles: users and items are in ``n_tiles`` groups each, of about as many ratings.

    Cell (J, I) has the ratings of user group J and item group I.  Step s has all cells with ``J = (I + s) mod
    n_tiles``, empty ones too.  Groups are of neighbours, or of rows at random where steps are less than half as long
    then: neighbours of one community fill few cells.
    """
    cell, sizes = _tile_of(cells, n_tiles, mixed=False)
    longest = sizes.max(axis=1).sum()
    if longest * n_tiles > 2 * cells.users.size:  # or else no groups would halve it
        other, even = _tile_of(cells, n_tiles, mixed=True)
        if 2 * even.max(axis=1).sum() < longest:
            cell, sizes = other, even
    firsts = np.append(0, np.cumsum(sizes)).astype(np.uint32)
    return CellSteps(order_by(cell), firsts, np.arange(0, n_tiles * n_tiles + 1, n_tiles).astype(np.uint32))


def _tile_of(cells: Cells, n_tiles: int, *, mixed: bool) -> tuple[Array, Array]:
    """The cell of each rating, int64 ``[E]``, and the ratings of the cells of each step ``[n_tiles, n_tiles]``."""
    groups = []
    for rows, count in ((cells.users, cells.n_users), (cells.items, cells.n_items)):
        order = np.random.Generator(np.random.Philox(key=count)).permutation(count) if mixed else np.arange(count)
        of_row = np.empty(count, np.int64)
        of_row[order] = balanced(np.bincount(rows, minlength=count)[order], n_tiles)
        groups.append(of_row[rows])
    cell: Array = (groups[0] - groups[1]) % n_tiles * n_tiles + groups[1]
    return cell, np.bincount(cell, minlength=n_tiles * n_tiles).reshape(n_tiles, n_tiles)


def diagonal_count(cells: Cells, side: int) -> int:
    """The steps that :func:`diagonals` has."""
    return int(np.count_nonzero(np.bincount(_diagonal(cells, side))))


def _diagonal(cells: Cells, side: int) -> Array:
    found: Array = cells.users.astype(np.int64) // side - cells.items.astype(np.int64) // side
    return found + cells.n_items // side


def diagonals(cells: Cells, side: int = 1) -> CellSteps:
    """Blocks of ``side`` users and ``side`` items; a step has those with the same user block less item block."""
    return _in_steps(_diagonal(cells, side), cells.items.astype(np.int64) // side)


def first_fit(users: Array, items: Array) -> Array:
    """The colour of each rating in turn, int64 ``[E]``: the least that no rating before it has at either of its ends.

    These are the maximal matchings that one takes by going over the ratings that are left again and again.
    """
    # Of each row the least free colour, and the colours above it that are taken.
    free_u, free_v = [0] * (int(users.max(initial=0)) + 1), [0] * (int(items.max(initial=0)) + 1)
    taken_u: list[set[int]] = [set() for _ in free_u]
    taken_v: list[set[int]] = [set() for _ in free_v]
    found = np.empty(users.size, np.int64)
    for place, (u, v) in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
        of_u, of_v = taken_u[u], taken_v[v]
        colour = max(free_u[u], free_v[v])
        while colour in of_u or colour in of_v:
            colour += 1
        found[place] = colour
        for free, row, taken in ((free_u, u, of_u), (free_v, v, of_v)):
            taken.add(colour)
            while free[row] in taken:
                taken.remove(free[row])
                free[row] += 1
    return found


def matchings(cells: Cells) -> CellSteps:
    """A step for each colour of all ratings."""
    return _in_steps(first_fit(cells.users, cells.items))


def item_blocks(cells: Cells, block: int, *, by_degree: bool) -> Array:
    """The block of ``block`` items of each rating, int64 ``[E]``: by items, or by their degrees, the largest first."""
    rank = np.arange(cells.n_items)
    if by_degree:
        rank[np.argsort(-np.bincount(cells.items, minlength=cells.n_items), kind="stable")] = np.arange(cells.n_items)
    found: Array = rank[cells.items] // block
    return found


def matchings_of_blocks(cells: Cells, block: int, *, apart: bool) -> CellSteps:
    """Items in blocks; a step for each colour in a block.

    Args:
        cells: The ratings.
        block: Items of a block.
        apart: Whether items are in the order of their degrees, the largest first, and each block is coloured by itself,
            which makes fewer steps.  Otherwise colours are those of all ratings.
    """
    of_block = item_blocks(cells, block, by_degree=apart)
    if apart:
        colours = np.empty(cells.users.size, np.int64)
        order = order_by(of_block)
        for first, end in pairwise([*np.flatnonzero(_begins(of_block[order])).tolist(), order.size]):
            here = order[first:end]
            colours[here] = first_fit(cells.users[here], cells.items[here])
    else:
        colours = first_fit(cells.users, cells.items)
    return _in_steps(_numbered(of_block, colours))


def kept_rows(found: CellSteps, items: Array, of_block: Array) -> dict[str, Array]:
    """How a team finds the ratings of an item whose row it keeps, in the steps of :func:`matchings_of_blocks`.

    Args:
        found: The steps.
        items: The item of each rating ``[E]`` in their order.
        of_block: Its block of items ``[E]``, in the same order.

    Returns:
        The places of the first rating of each item in its block, ``heads`` ``[H]``; of the next rating of the same
        item, ``following`` ``[E]``, 2^32 - 1 after the last; and of each block the first of its heads and of its steps,
        ``first_heads`` and ``first_steps`` ``[B + 1]``; all uint32.
    """
    by_item = order_by(items)
    begins = _begins(items[by_item])
    following = np.full(items.size, NONE, np.uint32)
    following[by_item[:-1][~begins[1:]]] = by_item[1:][~begins[1:]]
    heads, firsts = np.sort(by_item[begins]), found.steps[:-1]
    arrays: dict[str, Array] = {"heads": heads, "following": following}
    for name, places in (("first_heads", heads), ("first_steps", firsts)):
        arrays[name] = np.append(np.flatnonzero(_begins(of_block[places])), places.size)
    return {name: each.astype(np.uint32) for name, each in arrays.items()}


def _numbered(major: Array, minor: Array) -> Array:
    """Pairs by their rank."""
    return np.unique(major.astype(np.int64) * (int(minor.max(initial=0)) + 1) + minor, return_inverse=True)[1]


def _begins(*keys: Array) -> Array:
    """Whether a key differs from the one before, ``[E]``; the first does."""
    found = np.ones(keys[0].size, bool)
    found[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return found


def _in_steps(step: Array, cell: Array | None = None) -> CellSteps:
    """Ratings by their ``step``, in it by ``cell`` (each one's own without), in it as given."""
    order = np.arange(step.size) if cell is None else order_by(cell)
    order = order[order_by(step[order])]
    own = step[order]
    firsts = np.arange(own.size) if cell is None else np.flatnonzero(_begins(own, cell[order]))
    steps = np.flatnonzero(_begins(own[firsts]))
    return CellSteps(
        order, np.append(firsts, own.size).astype(np.uint32), np.append(steps, firsts.size).astype(np.uint32)
    )


def by_stretches(cells: Cells, stretches: int) -> Array:
    """Ratings in so many stretches as long as each other, in each by item, int64 ``[E]``.

    Each stretch begins with another item, and goes on with the first after the last: few have the same at once.
    """
    each = -(-cells.users.size // stretches) if cells.users.size else 1
    of_rating = np.arange(cells.users.size) // each
    shifted: Array = (cells.items - of_rating * cells.n_items // stretches) % cells.n_items
    order = order_by(shifted)
    return order[order_by(of_rating[order])]


def by_row(rows: Array, n_rows: int) -> tuple[Array, Array]:
    """Ratings by their ``rows`` ``[E]``, then as given, int64 ``[E]``; and the first of each, uint32 ``[R + 1]``."""
    offsets = np.zeros(n_rows + 1, np.uint32)
    np.cumsum(counted(rows, n_rows), out=offsets[1:])
    return order_by(rows), offsets
