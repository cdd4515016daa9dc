"""Sizes of buffers and counts of groups that follow from a problem, for kernels, their test inputs and the sampler."""

from __future__ import annotations

from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.kernels.problem import Problem

#: Shared partners are stored in arrays of a multiple of this length, so that a few can be read past the last.
ROOM = 16
#: Groups of counts that the workloads have room for.
MOST_GROUPS = 2048
#: Rows of half-wide numbers, and rooms for partners, are multiples of this: every depth of a tile divides it.
_MULTIPLE = 64


def room(problem: Problem) -> int:
    """Elements of the arrays of shared partners: ``n`` rounded up to :data:`ROOM`."""
    return -(-problem.integer("n") // ROOM) * ROOM


def half_row(problem: Problem) -> int:
    """Numbers of a row of half-wide factors."""
    return -(-row_length(problem.integer("K")) // _MULTIPLE) * _MULTIPLE


def half_room(problem: Problem) -> int:
    """Shared partners that half-wide arrays have room for."""
    return -(-problem.integer("n") // _MULTIPLE) * _MULTIPLE


def theta_groups(problem: Problem) -> int:
    """Groups among which the pairs of a mini-batch are dealt out: enough to fill a device, few enough to add up.

    Four pairs are what a team can have in flight; 512 teams fill a GPU of 132 multiprocessors, and their counts take
    an eighth of the reads that 4096 pairs take.
    """
    return max(1, min(512, problem.integer("m") // 4))
