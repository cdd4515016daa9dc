"""Sizes and constants that the reference, the templates and the sampler share."""

from __future__ import annotations

from enum import IntEnum

from mmsbgen.kernels.problem import Problem

#: Rows are padded with zeros to a multiple of this many elements: every vector width divides it, and a row of
#: 32-bit elements begins on a cache line of 64 bytes.
ROW_MULTIPLE = 16
#: Probability of a link between vertices that act in different communities.
DELTA = 1e-7
#: Lower bound of phi, theta and their draws (docs/statistics.md, Steps), far below the size of the noise.
FLOOR = 1e-20
#: Distance of beta from 0 and 1. It keeps 1 - sum pi pi beta accurate in single precision.
BETA_FLOOR = 1e-6
#: Lower bound of Z in divisions, since rounding errors of a row can make Z 0.
Z_FLOOR = 1e-12
#: The exponent of the split step's data flow is bounded on both sides; one-sided bounds would bias.
CLIP = 3.0
#: Rounds of Philox4x32: the fewest that pass all of BigCrush (Salmon, Moraes, Dror, Shaw 2011, table 2).
#: The authors' default of 10 adds a margin, at the cost of 30 % of the random words of the row steps.
PHILOX_ROUNDS = 7
#: Attempts of a rejection sampler; after the last one (chance below 1e-30) it returns the mode.
MAX_DRAWS = 64
#: Largest number of chunks per work-item in an unrolled loop. Longer loops would be unreadable and spill registers.
MAX_UNROLLED = 64
#: Coordinates of an initial row that one work-item writes.
PLACED = 4


class Purpose(IntEnum):
    """Stream of random words for a kind of draw: the upper byte of the last counter word."""

    init = 1
    partner = 2
    link_partner = 3
    shared_partner = 4
    phi_uniform = 5
    phi_poisson = 6
    phi_gamma = 7
    theta_normal = 8
    check_words = 9
    mini_batch = 10
    mini_batch_pair = 11
    storage = 12
    entrant = 13
    hidden = 14


def row_length(k: int) -> int:
    """Elements of a stored row for ``k`` communities: ``k`` rounded up to :data:`ROW_MULTIPLE`."""
    return -(-k // ROW_MULTIPLE) * ROW_MULTIPLE


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
