"""Declarations of the kernels over sparse rows."""

from __future__ import annotations

from functools import partial

from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.common_axes import common
from mmsbgen.families.mmsb.axes.small_spaces import row_bytes as dense_bytes
from mmsbgen.families.mmsb.sparse import sparse_pair_workloads, sparse_workloads
from mmsbgen.families.mmsb.sparse.sparse_sizes import FIXED_POINT, degree_of, entries_of
from mmsbgen.families.mmsb.sparse.sparse_sweeps import ALL, KNOWN, PARAMETERS, SPARSE_DRAWS, SPARSE_ROWS, row_bytes
from mmsbgen.kernels.family import Argument, named
from mmsbgen.kernels.kit import teams
from mmsbgen.kernels.problem import Problem

_kernel = partial(
    usual.kernel,
    "sparse",
    variables=lambda problem, config, traits: (
        common(problem, config, traits) | {"R": entries_of(problem), "fixed_point": FIXED_POINT}
    ),
    check_problem=sparse_workloads.small,
    used_with=ALL,
)
_PAIRS = "K N pairs entries dtype"


def _pair_traffic(problem: Problem) -> int:
    return 2 * problem.integer("pairs") * row_bytes(problem)


SPARSE_TOTALS = _kernel(
    sparse_workloads.sparse_totals,
    "theta's counts and the sums of the new columns, after a sweep",
    named(
        KNOWN,
        "fixed_sums beta",
        Argument("counts", "real", "out", "[2, LD] scaled sums of rho: non-links, links"),
        "totals:out non_link_scale link_scale n_total floor_pi",
    ),
    "K N dtype",
    lambda p: 8 * p.integer("K") * 8,
)

SPARSE_PAIRS = _kernel(
    sparse_pair_workloads.sparse_pairs,
    "probability of a link for every held-out pair",
    named(KNOWN, "communities values", *usual.EVALUATED, "floor_pi"),
    _PAIRS,
    _pair_traffic,
)

SPARSE_LINKS = _kernel(
    sparse_pair_workloads.sparse_links,
    "the community that explains each link best, and its share",
    named(KNOWN, "communities values", *usual.BEST, "floor_pi"),
    _PAIRS,
    _pair_traffic,
)

SPARSE_PLACES = _kernel(
    sparse_pair_workloads.sparse_places,
    "how much of each link some communities explain",
    named(KNOWN, "communities values", *usual.PLACES, "floor_pi"),
    _PAIRS,
    _pair_traffic,
)

SPARSE_SHARES = _kernel(
    sparse_pair_workloads.sparse_shares,
    "how many of a vertex's links each entry of its row explains",
    named(
        KNOWN,
        "communities values beta",
        Argument("vertices", "u32", "in", "[N] all vertices"),
        "neighbour_offsets neighbours",
        Argument("members", "u64", "in", "[N] a bit for each entry in whose community the vertex is"),
        Argument("explained_links", "real", "out", "[N, R] sums of the shares of p(y = 1), or numbers of links"),
        "n_vertices",
        Argument("only_members", "u32", "scalar", "whether only links to members of the entry's community count"),
        Argument("only_best", "u32", "scalar", "whether to count the links that an entry explains best"),
        "delta floor_pi",
    ),
    PARAMETERS,
    lambda p: p.integer("N") * (2 + degree_of(p)) * row_bytes(p),
)

SPARSE_GATHER = _kernel(
    sparse_pair_workloads.sparse_gather,
    "copies of the sparse rows of some vertices",
    named(
        KNOWN,
        "communities values",
        Argument("wanted", "u32", "in", "[V] vertices"),
        Argument("found_communities", "u32", "out", "[V, R] their communities"),
        Argument("found_values", "real", "out", "[V, R] their entries"),
        Argument("n_wanted", "u32", "scalar", "V"),
    ),
    _PAIRS,
    _pair_traffic,
    launch=lambda p, config, count, traits: teams.launch_items(p, config, count * entries_of(p), traits),
)

SPARSE_REPLACE = _kernel(
    sparse_pair_workloads.sparse_replace,
    "puts the new rows of some vertices in place of the old ones",
    named(
        KNOWN,
        "communities:inout values:inout",
        Argument("new_communities", "u32", "in", "[N, R] the new rows"),
        Argument("new_values", "real", "in", "[N, R] their entries"),
        Argument("told_communities", "u32", "inout", "[N, R] the rows that neighbours were told of"),
        Argument("told_values", "real", "inout", "[N, R] their entries"),
        Argument("vertices", "u32", "in", "[N] distinct vertices, as many as are to be replaced"),
        "fixed_sums",
        Argument("moved", "real", "out", "[N] L1 distances of the new rows from the old, in the order of vertices"),
        Argument("since_told", "real", "out", "[N] those from the rows that neighbours were told of"),
        "n_vertices floor_pi",
        Argument("tolerance", "real", "scalar", "distance beyond which neighbours are told"),
    ),
    PARAMETERS,
    lambda p: p.integer("N") * 4 * row_bytes(p),
)

SPARSE_MOMENTS = _kernel(
    sparse_pair_workloads.sparse_moments,
    "take the sparse rows of all vertices into the mean and the variance of their samples",
    named(KNOWN, "communities values", *usual.MOMENTS, "floor_pi"),
    PARAMETERS,
    lambda p: p.integer("N") * (row_bytes(p) + 4 * dense_bytes(p)),
)

KERNELS = (
    SPARSE_ROWS,
    SPARSE_DRAWS,
    SPARSE_TOTALS,
    SPARSE_PAIRS,
    SPARSE_LINKS,
    SPARSE_PLACES,
    SPARSE_SHARES,
    SPARSE_GATHER,
    SPARSE_REPLACE,
    SPARSE_MOMENTS,
)
