"""Faults of kernels, put into rendered programs.  Most of them show only above the sizes of the small check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Problems by name.  The small check has at most 61 vertices, 7 in a mini-batch, 11 partners; of blocks 203, 19, 1025.
SIZES: dict[str, Any] = {"K": 50, "N": 5242, "m": 512, "n": 32, "pairs": 4096}
PROBLEMS: dict[str, dict[str, Any]] = {
    "listed": SIZES,
    "block": SIZES | {"n": 1200, "partners": "block"},
    "stars": SIZES | {"K": 30, "m": 256, "n": 1200, "partners": "shared"},
    "labelled": SIZES | {"K": 30, "m": 256, "n": 1200, "partners": "shared-uniform"},
    "sparse": SIZES | {"K": 700, "m": 5242, "entries": 16, "partners": "all"},
    "tensor": SIZES | {"n": 3000, "partners": "block", "products": "half"},
    "tensor stars": SIZES | {"n": 3000, "partners": "shared-uniform", "products": "half"},
}


@dataclass(frozen=True, eq=False)
class Mutant:
    """A fault of a kernel: every ``old`` of its program becomes ``new``.

    Attributes:
        sort: The sort of fault.
        name: What is wrong.
        old: A text that the program has in both dialects, or one for each.
        problem: The name of the problem at which it is tuned.
        config: The values of axes in which its configuration differs from the default.
        first: Whether only the first ``old`` is replaced.
        harmless: Why the program is right in spite of it, by the kind of the device or the first word of the platform.
    """

    kernel: str
    sort: str
    name: str
    old: str | tuple[str, ...]
    new: str
    problem: str = "listed"
    config: Mapping[str, Any] = field(default_factory=dict)
    first: bool = False
    harmless: Mapping[str, str] = field(default_factory=dict)

    def put_into(self, program: str) -> str:
        """The program with the fault; raises :class:`LookupError` if there is nothing to replace."""
        for old in (self.old,) if isinstance(self.old, str) else self.old:
            if old in program:
                return program.replace(old, self.new, 1 if self.first else -1)
        raise LookupError(f"{self.kernel} has no {self.old!r}, where {self.name!r} would be")


UNIT = "if (index >= n_vertices) return;"
PAIR = "if (index >= n_pairs) return;"
TILE = "if (first >= n_vertices) return;"
SUM = "if (lane == 0u) row_sums[spare] = total;"
END = "log1p(alpha * REAL(INVERSE_E)), sum, "
FIRST = "const u64 first = (u64)(first_vertex + index) * n_partners;"
EVERYWHERE = ("barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);", "__syncthreads();")
ITEM = {
    "placement": "GLOBAL",
    "team": "item",
    "vector_width": 1,
    "rows_in_flight": 1,
    "prefetch": 0,
    "reduction": "none",
}
TEAM = ITEM | {"team": "block", "reduction": "local", "block_size": 16}
HASHED = {"table": "hash", "slots": 128, "block_size": 64, "rows_in_flight": 1}
SWEEP = "const u32 a = vertices[index];"
LOCK = "while (SWAP(table_locks + at, 0u, 1u) != 0u) at = at + 1u < TABLE_COUNT ? at + 1u : 0u;"
LINKS = "n = (u32)(neighbour_offsets[vertex + 1u] - first)"
# Races whose results are right in every launch: check_races.py sees those that lack a barrier, in a simulator.
FIRST_WARP = "the first warp, which reads what the others write, also draws, and is the last to arrive"
FEW_WARPS = "both warps of a block have read long before one of them writes again"
IN_TURN = "between barriers a processor runs the work-items of a block one after the other"

# fmt: off
MUTANTS = (
    Mutant("update_phi", "group", "all but the first block", UNIT, f"{UNIT} if (BLOCK_ID > 0u) return;",
           config=ITEM | {"block_size": 16}),
    Mutant("update_phi", "group", "a vertex inside", UNIT, f"{UNIT} if (index == 171u) return;"),
    Mutant("update_phi", "last", "the last vertex", UNIT, f"{UNIT} if (index == 511u) return;"),
    Mutant("update_phi", "tail", "vertices from 300 on", UNIT, f"{UNIT} if (index >= 300u) return;"),
    Mutant("update_phi", "last", "the last community", SUM,
           f"{SUM} if (n_vertices > 200u) ((GLOBAL real*)out)[K - 1u] = ((GLOBAL const real*)own)[K - 1u];"),
    Mutant("update_phi", "size", "partners after 11", "const u32 n = n_partners;",
           "const u32 n = n_partners < 11u ? n_partners : 11u;"),
    Mutant("update_phi", "size", "partners of the next vertex above 200", FIRST,
           "const u64 first = (u64)(first_vertex + (index > 200u && index < 511u ? index + 1u : index)) * n_partners;"),
    Mutant("update_phi", "partners", "partners off by one", FIRST,
           f"{FIRST[:-1]} + (n_partners > 11u && index < 511u);"),
    Mutant("update_phi", "draw", "draws of another iteration", f"{END}seed, vertex, iteration}};",
           f"{END}seed, vertex, index > 100u ? iteration + 1u : iteration}};"),
    Mutant("update_phi", "draw", "draws of the place", f"{END}seed, vertex, iteration}};",
           f"{END}seed, index > 100u ? index : vertex, iteration}};"),
    Mutant("update_phi", "stale", "sum of an old row", "row_sums[own_slot];",
           "row_sums[index > 100u ? spare : own_slot];"),
    Mutant("update_phi", "race", "two vertices with one row", "const u32 spare = spares[index];",
           "const u32 spare = spares[index > 200u ? index & ~1u : index];"),
    Mutant("update_phi", "race", "rows in place", "const u32 spare = spares[index];",
           "const u32 spare = n_vertices > 200u ? own_slot : spares[index];"),
    Mutant("update_phi", "barrier", "all barriers", "BARRIER;", "", config=TEAM),
    Mutant("update_phi", "barrier", "the barrier before reuse", "BARRIER; /* the last sum may still be read */", "",
           config=TEAM | {"block_size": 64}, harmless={"cpu": IN_TURN, "gpu": FEW_WARPS}),

    Mutant("update_pi", "size", "everything above 500 vertices", UNIT, f"{UNIT} if (n_vertices > 500u) return;"),
    Mutant("update_pi", "last", "the last vertex's slot", "slots[vertex] = spare;",
           "if (index < 511u) slots[vertex] = spare;"),
    Mutant("update_pi", "stale", "sums from 60 on", "row_sums[spare] = total;",
           "if (index < 60u) row_sums[spare] = total;"),

    Mutant("block_shared", "group", "a tile inside", TILE, f"{TILE} if (BLOCK_ID == 37u) return;", "block"),
    Mutant("block_shared", "last", "the last vertex", TILE, f"{TILE} if (first + TILE >= 512u) return;", "block"),
    Mutant("block_shared", "size", "partners after 900", "const u32 count = n_shared[0];",
           "const u32 count = n_shared[0] < 900u ? n_shared[0] : 900u;", "block"),
    Mutant("block_shared", "partners", "weights off by one", "shared_weights[begin + p]",
           "shared_weights[begin + p + (begin + p > 300u && p + 1u < size)]", "block"),
    Mutant("block_shared", "partners", "the vertex itself counts", "if (lane == 0u) strike(",
           "if (lane == 0u && first < 100u) strike(", "block"),
    Mutant("block_shared", "stale", "earlier panels", "begin > 0u ?", "begin > 0u && first < 100u ?", "block"),

    Mutant("block_links", "last", "the last vertex", "index < n_vertices; index += skip",
           "index < (n_vertices < 512u ? n_vertices : 511u); index += skip", "block"),
    Mutant("block_links", "group", "counts of a group", "/* What is the same for all vertices comes last. */",
           "if (n_vertices > 200u && group == 5u) return;", "block"),
    Mutant("block_links", "size", "links after 120", LINKS, f"{LINKS}; n = n < 120u ? n : 120u", "block"),
    Mutant("block_links", "draw", "draws of the place", f"{END}seed, vertex, iteration}};",
           f"{END}seed, index > 100u ? index : vertex, iteration}};", "block"),

    Mutant("star_shared", "last", "the last vertex", TILE, f"{TILE} if (first + TILE >= 256u) return;", "stars"),
    Mutant("star_shared", "size", "partners after 900", "const u32 count = n_shared[shared_round];",
           "const u32 count = n_shared[shared_round] < 900u ? n_shared[shared_round] : 900u;", "labelled"),
    Mutant("star_rows", "draw", "draws of another iteration", f"{END}seed, vertex, iteration}};",
           f"{END}seed, vertex, index > 30u ? iteration + 1u : iteration}};", "stars"),
    Mutant("star_rows", "stale", "sum of a row that changes", "const real own_sum = row_sums[own_slot];",
           "const real own_sum = row_sums[index > 30u ? slots[vertices[first_vertex + index - 1u]] : own_slot];",
           "labelled"),
    Mutant("star_rows", "last", "the last vertex", UNIT, f"{UNIT} if (index == 255u) return;", "labelled"),
    Mutant("draw_shared", "draw", "the first draws again", "draw_below(seed, j,", "draw_below(seed, j % 1025u,",
           "stars"),

    Mutant("theta_partial", "stale", "all launches but the first", "if (group >= n_groups) return;",
           "if (group >= n_groups || counts[(u64)group * (2u * LD)] != REAL(0.0)) return;"),
    Mutant("theta_partial", "tail", "the last pair", "pair < n_pairs;", "pair < (n_pairs < 512u ? n_pairs : 511u);",
           config={"pairs_in_flight": 1}),
    Mutant("theta_partial", "race", "groups share counts", "counts + (u64)group *", "counts + (u64)(group % 47u) *"),
    Mutant("theta_end", "size", "groups after 47", "group < last; ++group",
           "group < (last < 47u ? last : 47u); ++group"),
    Mutant("theta_end", "barrier", "the barrier before sums", "BARRIER;", "", config={"share": 32, "block_size": 256},
           harmless={"gpu": FIRST_WARP}),

    Mutant("sample_partners", "draw", "the first draws again", "draw_below(seed, j,", "draw_below(seed, j % 11u,"),
    Mutant("sample_partners", "last", "the last partner", "partners[first + j] = other;",
           "if (j < 31u) partners[first + j] = other;"),
    Mutant("sample_partners", "group", "a vertex inside", "const u32 vertex = vertices[index], now",
           "if (index == 201u) return; const u32 vertex = vertices[index], now"),
    Mutant("draw_stars", "tail", "links after 100", "i + 1u < size;", "i + 1u < (size < 100u ? size : 100u);"),
    Mutant("draw_stars", "last", "the last non-link", "place + 1u < size", "place + (size > 100u ? 2u : 1u) < size"),
    Mutant("shared_partners", "tail", "weights after 1000", "p < count ? times[p]", "p < count && p < 1000u ? times[p]",
           "block"),
    Mutant("shared_partners", "barrier", "the first barrier", EVERYWHERE, "", "block", {"block_size": 64}, first=True),

    Mutant("perplexity_pairs", "tail", "the last 64 pairs", PAIR, f"{PAIR} if (index >= 4032u) return;"),
    Mutant("perplexity_pairs", "stale", "sums of even pairs", "sums[index] += link;",
           "if (index < 37u || index % 2u) sums[index] += link;"),
    Mutant("perplexity_sum", "group", "a few pairs inside", "if (labels[i] != 0u) {",
           "if (i > 1000u && i < 1017u) continue; if (labels[i] != 0u) {"),
    Mutant("perplexity_sum", "barrier", "all barriers", "BARRIER;", "", config={"block_size": 64}),

    Mutant("init_pi", "group", "a vertex inside", "if (vertex >= n_vertices) return;",
           "if (vertex >= n_vertices || vertex == 3333u) return;"),
    Mutant("init_pi", "draw", "the first rows again", "(u32)vertex, 0u, PURPOSE_INIT",
           "(u32)vertex & 4095u, 0u, PURPOSE_INIT"),
    Mutant("gather_rows", "last", "the last row", "(u64)n_rows * LD) return;",
           "(u64)(n_rows < 512u ? n_rows : 511u) * LD) return;"),
    Mutant("gather_rows", "size", "slots above 4095", "slots[first + row];", "slots[first + row] & 4095u;"),
    Mutant("explain_links", "last", "the last link", PAIR, f"{PAIR} if (index == 4095u) return;"),
    Mutant("explain_at", "partners", "row of the pair before", "slots[pairs_b[index]]",
           "slots[pairs_b[index > 64u ? index - 1u : index]]"),

    Mutant("sparse_rows", "last", "the last vertex", SWEEP, f"{SWEEP} if (index == 5241u) continue;", "sparse"),
    Mutant("sparse_rows", "group", "vertices of a group", SWEEP,
           f"{SWEEP} if (n_vertices > 1000u && group == 7u) continue;", "sparse"),
    Mutant("sparse_rows", "size", "neighbours after 60", "degree = (u32)(neighbour_offsets[a + 1u] - begin);",
           "degree = min((u32)(neighbour_offsets[a + 1u] - begin), 60u);", "sparse"),
    Mutant("sparse_rows", "size", "vertices with too many candidates", "if (full) {",
           "if (full && n_vertices < 1000u) {", "sparse", HASHED),
    Mutant("sparse_rows", "race", "teams share a table", LOCK, "at = 0u;", "sparse", HASHED,
           harmless={"cpu": "hubs are seldom updated at the same time"}),
    Mutant("sparse_rows", "stale", "sums of columns from a launch before", "ADD(column_sums, k, pi - floor_pi);",
           "if (index < 4000u) ADD(column_sums, k, pi - floor_pi);", "sparse"),
    Mutant("sparse_totals", "size", "columns from 512 on", "if (k >= LD) return;", "if (k >= 512u) return;", "sparse"),
    Mutant("sparse_totals", "stale", "sums are not cleared", "fixed_sums[k] = fixed_sums[LD + k]",
           "fixed_sums[LD + k]", "sparse"),
    Mutant("sparse_links", "tail", "the last link", PAIR, f"{PAIR} if (index == 4095u) return;", "sparse"),

    Mutant("block_factors", "group", "a vertex inside", "if (!partner && i >= n_vertices) return;",
           "if (!partner && (i >= n_vertices || i == 333u)) return;", "tensor"),
    Mutant("block_scales", "last", "the last tile", "if (first_row >= n_vertices) return;",
           "if (first_row >= n_vertices || (n_vertices > 200u && first_row + TM >= n_vertices)) return;", "tensor"),
    Mutant("block_strike", "tail", "vertices from 200 on", "if (i >= n_vertices) return;",
           "if (i >= n_vertices || i >= 200u) return;", "tensor"),
    Mutant("block_sums", "size", "partners after 1025", "depth = (count +",
           "depth = ((count < 1025u ? count : 1025u) +", "tensor"),
    Mutant("star_factors", "group", "a vertex inside", "if (partner && r >= HROOM) return;",
           "if (partner ? r >= HROOM : r == 201u) return;", "tensor stars"),
    Mutant("star_marks", "group", "a vertex inside", "if (i % stride >= sizes[ahead]) return;",
           "if (i % stride >= sizes[ahead] || i % stride == 201u) return;", "tensor stars"),
    Mutant("star_scales", "last", "the last tile", "if (first_row >= n_vertices) return;",
           "if (first_row >= n_vertices || (n_vertices > 200u && first_row + TM >= n_vertices)) return;",
           "tensor stars"),
    Mutant("star_sums", "size", "partners after 1025", "depth = (count +",
           "depth = ((count < 1025u ? count : 1025u) +", "tensor stars"),
)
# fmt: on
