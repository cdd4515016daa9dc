"""Buffer sizes and group counts of a problem, for kernels, their test inputs and the sampler."""

from __future__ import annotations

from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.kernels.problem import Problem

#: Arrays of shared partners are padded to a multiple of this length, so that kernels may read past the last one.
ROOM = 16
#: Largest number of groups of counts in the workloads' buffers.
MOST_GROUPS = 2048
#: Rows of 16-bit factors and arrays of partners are padded to a multiple of this. Every tile depth divides it.
_MULTIPLE = 64


def room(problem: Problem) -> int:
    """Length of the arrays of shared partners: ``n`` rounded up to a multiple of :data:`ROOM`."""
    return -(-problem.integer("n") // ROOM) * ROOM


def half_row(problem: Problem) -> int:
    """Padded length of a row of 16-bit factors."""
    return -(-row_length(problem.integer("K")) // _MULTIPLE) * _MULTIPLE


def half_room(problem: Problem) -> int:
    """Padded number of shared partners in 16-bit arrays."""
    return -(-problem.integer("n") // _MULTIPLE) * _MULTIPLE


def theta_groups(problem: Problem) -> int:
    """Number of groups over which the pairs of a mini-batch are distributed.

    A team can have four pairs in flight.  512 teams fill a GPU of 132 multiprocessors.  Their counts need an eighth of
    the reads that 4096 pairs need.
    """
    return max(1, min(512, problem.integer("m") // 4))
