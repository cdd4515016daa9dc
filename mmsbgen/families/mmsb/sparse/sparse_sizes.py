"""Sizes of the arrays of kernels over sparse rows."""

from __future__ import annotations

from mmsbgen.kernels.problem import Problem

#: Sums over all vertices are integers in this unit: the same bits whatever the order of the additions.
FIXED_POINT = float(1 << 30)
#: Most tables of candidates in global memory, and most bytes of all of them.
MOST_TABLES, _TABLE_BYTES = 512, 1 << 28


def table_groups(problem: Problem) -> int:
    """Teams that have a table of candidates in global memory: one place of 20 or 36 bytes for every community."""
    each = problem.integer("K") * (36 if problem["dtype"] == "float64" else 20)
    return max(1, min(MOST_TABLES, _TABLE_BYTES // each))
