"""Declarations of the kernels for initial state, export, and checks of look-up and draws."""

from __future__ import annotations

from functools import partial

from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.common_axes import COMMON, common
from mmsbgen.families.mmsb.numbers.row_layout import PLACED
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.space import Axis, Space

_kernel = partial(usual.kernel, "state", check_problem=workloads.small, used_with=usual.DENSE)

INIT_PI = _kernel(
    workloads.init_pi,
    "rows from Dirichlet(1, ..., 1), made on the device",
    usual.arguments(
        Argument("pi", "stored", "out", "[N + m, LD] rows by slot"),
        "row_sums:out slots:out",
        Argument("n_vertices", "u64", "scalar", "N"),
        Argument("row_sum", "real", "scalar", "size of the start; 0 for the sum of the exponentials, about K"),
        "seed",
    ),
    "K N dtype storage",
    lambda p: p.integer("N") * usual.stored_row_bytes(p),
    default=usual.defaults(usual.SCALAR_SPACE, usual.ITEMS_GPU, {"block_size": 1}),
)

PLACE_ROWS = _kernel(
    stage_workloads.place_rows,
    "rows of the vertices in sets that a chain starts from",
    (
        Argument("pi", "real", "inout", "[N + m, LD] rows by vertex"),
        Argument("set_offsets", "u32", "in", "[N + 1] begin of each vertex's communities"),
        Argument("set_communities", "u32", "in", "[S] the communities"),
        Argument("set_shares", "real", "in", "[N] pi in each of them"),
        Argument("rest", "real", "scalar", "pi in the others"),
        Argument("n_vertices", "u64", "scalar", "N"),
    ),
    "K N dtype",
    lambda p: p.integer("N") * usual.row_bytes(p),
    variables=lambda problem, config, traits: common(problem, config, traits, chunk=PLACED),
)

EXCHANGE_SLOTS = _kernel(
    workloads.exchange_slots,
    "make the new rows the vertices' rows",
    usual.arguments(*usual.EXCHANGED, "vertices n_vertices first_vertex"),
    "N m",
    lambda p: p.integer("m") * (4 + 4 * 4),
)

ACCUMULATE = Axis("accumulate", (False, True), "add to the rows (posterior mean) instead of copying them")
GATHER_SPACE = Space((teams.BLOCK_SIZE, ACCUMULATE), COMMON)

GATHER_ROWS = _kernel(
    workloads.gather_rows,
    "copy, or add up, some vertices' rows in their order",
    usual.arguments(
        usual.PI,
        "row_sums:in slots",
        Argument("rows", "real", "inout", "[R, LD] rows of the vertices first, first + 1, ..."),
        Argument("sums", "real", "out", "[R] their sums"),
        Argument("first", "u32", "scalar", "first vertex"),
        Argument("n_rows", "u32", "scalar", "R"),
    ),
    "K N m dtype storage",
    lambda p: p.integer("m") * (usual.stored_row_bytes(p) + usual.row_bytes(p)),
    space=GATHER_SPACE,
    default=usual.defaults(GATHER_SPACE, usual.ITEMS_GPU | {"block_size": 256}, usual.ITEMS_CPU),
    variables=lambda problem, config, traits: common(problem, config, traits, accumulate=config["accumulate"]),
    modes=("accumulate",),
)

ADD_MOMENTS = _kernel(
    stage_workloads.add_moments,
    "take the rows of all vertices into the mean and the variance of their samples",
    usual.arguments(usual.PI, "slots", *usual.MOMENTS),
    "K N m dtype storage",
    lambda p: p.integer("N") * (usual.stored_row_bytes(p) + 4 * usual.row_bytes(p)),
)

EDGE_LOOKUP = _kernel(
    stage_workloads.edge_lookup,
    "look pairs up in the edge set",
    usual.arguments(
        *usual.edge_set("link", "links"),
        "pairs_a pairs_b",
        Argument("found", "u32", "out", "[P] 1 where the pair is a link"),
        "n_pairs",
    ),
    "N pairs",
    lambda p: p.integer("pairs") * (12 + 64),
)

DRAWS = _kernel(
    workloads.draws,
    "Philox words, normals, Poisson and Gamma draws",
    usual.arguments(
        Argument("rates", "real", "in", "[P] Poisson rates"),
        Argument("shapes", "real", "in", "[P] Gamma shapes"),
        Argument("words", "u32", "out", "[P, 4] Philox words"),
        Argument("normals", "real", "out", "[P]"),
        Argument("poissons", "real", "out", "[P]"),
        Argument("gammas", "real", "out", "[P]"),
        Argument("n_draws", "u32", "scalar", "P"),
        Argument("vertex", "u32", "scalar", ""),
        "iteration seed",
    ),
    "pairs dtype",
    lambda p: p.integer("pairs") * (16 + 5 * reals.real_bytes(p)),
)
