"""The kernels of SG-MCMC on the assortative mixed-membership stochastic blockmodel."""

from __future__ import annotations

from mmsbgen.families.mmsb.axes.common_axes import stored_size
from mmsbgen.families.mmsb.blocks import block_kernels, link_kernels, tensor_kernels
from mmsbgen.families.mmsb.numbers import storage
from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.families.mmsb.sparse import sparse_kernels, sparse_workloads
from mmsbgen.families.mmsb.sparse.sparse_sizes import DEGREE
from mmsbgen.families.mmsb.stages import partner_kernels, state_kernels, theta_kernels
from mmsbgen.families.mmsb.stages.update_phi import UPDATE_PHI
from mmsbgen.families.mmsb.stars import star_kernels
from mmsbgen.families.mmsb.starts import label_kernels
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.problem import Parameter

PARAMETERS = (
    Parameter("K", 1024, "communities", minimum=1, maximum=2**24),
    # Rows are gathered at random for every N. Once the state exceeds the caches, N has little effect.
    Parameter("N", 317080, "vertices", minimum=2, maximum=2**32 - 2, weight=0.25),
    Parameter("m", 4096, "vertices of a mini-batch", minimum=1, maximum=2**31),
    Parameter("n", 32, "partners of a vertex", minimum=1, maximum=2**31),
    Parameter("pairs", 16384, "held-out pairs", minimum=1, maximum=2**32 - 1),
    Parameter("dtype", "float32", "type of the state and of the arithmetic", choices=("float32", "float64")),
    Parameter(
        "storage",
        storage.STORAGES[0],
        "type in which rows of pi are stored; float32 stands for that of dtype",
        choices=storage.STORAGES,
        implicit=True,
    ),
    Parameter("step", "split", "how a row ends", choices=("split", "reflected", "published"), soft=True),
    Parameter(
        "theta_step",
        "reflected",
        "how theta moves",
        choices=("reflected", "published", "gain", "wright-fisher"),
        soft=True,
    ),
    Parameter("noise", "on", "whether steps draw", choices=("on", "off"), soft=True),
    Parameter("products", "single", "factors of products with shared partners", choices=("single", "half"), soft=True),
    Parameter(
        "partners",
        "uniform",
        "how partners are drawn: for each vertex (uniform, stratified), for a star, for a block; or all are",
        choices=("uniform", "stratified", "shared", "shared-uniform", "block", "all"),
        soft=True,
    ),
    Parameter("entries", 0, "entries that a sparse row keeps; 0 for dense rows", maximum=64, implicit=True),
    Parameter(
        "degree",
        DEGREE,
        "links of a vertex on average, with sparse rows",
        minimum=1,
        maximum=2**31,
        soft=True,
        implicit=True,
    ),
)

MMSB: KernelFamily = KernelFamily(
    name="mmsb",
    doc="SG-MCMC on the assortative mixed-membership stochastic blockmodel",
    parameters=PARAMETERS,
    kernels={
        spec.name: spec
        for spec in (
            *(star_kernels.DRAW_STARS, partner_kernels.SAMPLE_PARTNERS, UPDATE_PHI),
            *(block_kernels.SHARED_PARTNERS, block_kernels.BLOCK_SHARED, *tensor_kernels.KERNELS),
            *(link_kernels.BLOCK_LINKS, star_kernels.DRAW_SHARED, star_kernels.STAR_SHARED),
            *(star_kernels.AHEAD, *star_kernels.KERNELS, star_kernels.STAR_ROWS, partner_kernels.UPDATE_PI),
            *(theta_kernels.THETA_PARTIAL, theta_kernels.THETA_END, theta_kernels.UPDATE_BETA),
            *(partner_kernels.PERPLEXITY_PAIRS, partner_kernels.PERPLEXITY_SUM),
            *(partner_kernels.EXPLAIN_LINKS, partner_kernels.EXPLAIN_AT),
            *(state_kernels.EXCHANGE_SLOTS, state_kernels.INIT_PI, state_kernels.PLACE_ROWS, *label_kernels.KERNELS),
            *(state_kernels.GATHER_ROWS, state_kernels.ADD_MOMENTS, state_kernels.EDGE_LOOKUP, state_kernels.DRAWS),
            *sparse_kernels.KERNELS,
        )
    },
    tuned=(
        "sparse_rows",
        "update_phi",
        "block_shared",
        *(spec.name for spec in tensor_kernels.KERNELS),
        "block_links",
        "star_shared",
        *(spec.name for spec in star_kernels.KERNELS),
        "star_rows",
        "sample_partners",
        "shared_partners",
        "draw_shared",
        star_kernels.AHEAD.name,
        "draw_stars",
        "update_pi",
        "theta_partial",
        "theta_end",
        "update_beta",
        "perplexity_pairs",
        "sparse_shares",
        "sparse_links",
        "sparse_pairs",
        "sparse_places",
        "init_pi",
        "gather_rows",
    ),
    launches=dict.fromkeys(("perplexity_pairs", "sparse_pairs"), 0.01)  # at evaluations
    | dict.fromkeys(["sparse_shares", "sparse_links", "sparse_places", "init_pi", "gather_rows"], 0.001),
    row_bytes=lambda problem: row_length(problem.integer("K")) * stored_size(problem),
    refusal=storage.refusal,
    inputs_refusal=workloads.inputs_refusal,
    read=lambda file: sparse_workloads.read_state(file, MMSB.kernel),
)

__all__ = ["MMSB", "PARAMETERS"]
