"""Sizes of the arrays of kernels over sparse rows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mmsbgen.kernels.problem import Problem

#: Entries of a sparse row, and links of a vertex, by default.
ENTRIES, DEGREE = 16, 6
#: Sums over all vertices are integers in this unit: the same bits whatever the order of the additions.
FIXED_POINT = float(1 << 30)
#: Most tables of candidates in global memory, and most bytes of all of them.
MOST_TABLES, _TABLE_BYTES = 512, 1 << 28


#: Mass of a row outside its entries, if it has few: every other community has this over K.
FLOOR_SHARE = 1e-2
#: Least pi that is read of neighbours' rows in large graphs, and the ends of links up to which all is read.
LEAST, _READ_ALL = 0.004, 2 * 10**7


def floor_of(k: int, dtype: npt.DTypeLike) -> float:
    """pi of the communities without an entry in a sparse row, as numbers of ``dtype`` have it."""
    return float(np.asarray(FLOOR_SHARE / k, dtype))


def least_of(problem: Problem) -> float:
    """Least pi that a sweep without noise reads of neighbours' rows; less counts as the floor.

    It is 0 for graphs of up to some ten million links: small entries improve the fit a little (docs/statistics.md,
    Sparse rows), but take up to half of a sweep's time.  In larger graphs every row's largest entry is read, as R is
    at most 64.
    """
    return LEAST if problem.integer("N") * degree_of(problem) > _READ_ALL else 0.0


def entries_of(problem: Problem) -> int:
    """Entries R that a sparse row keeps."""
    value = problem.get("entries", 0)
    return int(value) or ENTRIES


def degree_of(problem: Problem) -> int:
    """Links of a vertex on average."""
    return int(problem.get("degree", DEGREE))


def nearest_degree(mean: float) -> int:
    """The value of ``degree`` for a graph: the default times a power of two."""
    return max(1, round(DEGREE * 2.0 ** round(math.log2(max(mean, 1.0) / DEGREE))))


def table_groups(k: int, real_bytes: int) -> int:
    """Teams that have a table of candidates in global memory: two reals and an index for each of ``k`` communities."""
    return max(1, min(MOST_TABLES, _TABLE_BYTES // (k * (4 + 2 * real_bytes))))
