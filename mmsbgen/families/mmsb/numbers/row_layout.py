"""Sizes and constants that the reference, the templates and the sampler share."""

from __future__ import annotations

from enum import IntEnum

#: Rows are padded with zeros to a multiple of this many elements: every vector width divides it, and a row of
#: 32-bit elements begins on a cache line of 64 bytes.
ROW_MULTIPLE = 16
#: Probability of a link between vertices that act in different communities.
DELTA = 1e-7
#: The one floor of phi, theta and their draws (docs/statistics.md, Steps): far below what the noise can resolve.
FLOOR = 1e-20
#: beta stays this far from 0 and 1, so that 1 - sum pi pi beta keeps digits in single precision.
BETA_FLOOR = 1e-6
#: Guards the division by Z against a row whose rounding errors add up to a Z of 0.
Z_FLOOR = 1e-12
#: The exponent of the split step's data flow is bounded on both sides; one-sided bounds would bias.
CLIP = 3.0
#: Rounds of Philox4x32: the fewest that pass all of BigCrush; 10, the authors' default, adds a margin that costs the
#: rows' ends 30 % of their random words (Salmon, Moraes, Dror, Shaw 2011, table 2).
PHILOX_ROUNDS = 7
#: Draws by acceptance and rejection give up after this many attempts (chance below 1e-30) and take the mode.
MAX_DRAWS = 64
#: Loops longer than this many chunks a work-item are not unrolled: the source would be unreadable and spill.
MAX_UNROLLED = 64
#: Coordinates of a row of a start that one work-item writes.
PLACED = 4


class Purpose(IntEnum):
    """Which stream of random words a draw takes: the upper byte of the last counter word."""

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


def row_length(k: int) -> int:
    """Elements of a stored row for ``k`` communities: ``k`` rounded up to :data:`ROW_MULTIPLE`."""
    return -(-k // ROW_MULTIPLE) * ROW_MULTIPLE
