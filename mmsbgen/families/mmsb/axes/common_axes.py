"""Axes, constraints and template variables shared by the kernels over rows of the state."""

from __future__ import annotations

import math
from typing import Any

from mmsbgen.families.mmsb.numbers.row_layout import (
    BETA_FLOOR,
    CLIP,
    FLOOR,
    MAX_DRAWS,
    PHILOX_ROUNDS,
    Z_FLOOR,
    Purpose,
    row_length,
)
from mmsbgen.families.mmsb.numbers.storage import HALF_NORMAL, HALF_SCALE, storage_of
from mmsbgen.kernels.family import Demand
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.source.dialect import dialect
from mmsbgen.kernels.space import Config, Constraint, Traits

GEN = tuple(f"{probs}{grads}{pi}" for probs in "RS" for grads in "RS" for pi in "RS")
PLACEMENTS = ("THREAD", "NAIVE", "GLOBAL", "SHARED", *GEN)


def stored_size(problem: Problem) -> int:
    """Bytes of a stored element of pi."""
    return storage_of(problem).dtype.itemsize


def row_vectors(problem: Problem, config: Config) -> int:
    """Number of vectors in a stored row at the configuration's vector width."""
    return row_length(problem.integer("K")) // int(config["vector_width"])


def block_for(problem: Problem, width: int, each: int) -> int:
    """Smallest block of 32 to 256 with at most ``each`` vectors of a row per work-item, else 512."""
    vectors = row_vectors(problem, {"vector_width": width})
    return next((size for size in (32, 64, 128, 256) if each * size >= vectors), 512)


def chunks(problem: Problem, config: Config, traits: Traits) -> int:
    """Vectors of a row per work-item of its team."""
    return -(-row_vectors(problem, config) // max(1, teams.team_size(config, traits)))


def common(problem: Problem, config: Config, traits: Traits, **more: Any) -> dict[str, Any]:
    """Template variables of every kernel; ``vector_width`` is 1 if the configuration has no such axis."""
    width = int(config.get("vector_width", 1))
    words = dialect(traits.dialect)
    k = problem.integer("K")
    storage = storage_of(problem)
    lanes = width if traits.dialect == "opencl" else 1
    lanewise = lanes > 1 and traits.kind == "cpu"
    return {
        "real": reals.real_name(problem),
        "uses_double": True,
        "uses_sub_groups": False,
        "alignment": min(16, width * reals.real_bytes(problem)),
        "W": width,
        "K": k,
        "LD": row_length(k),
        "row_vectors": row_length(k) // width,
        "literal": reals.literal_of(problem),
        "lane": lambda vector, index: words.lane(vector, index, width),
        "purpose": Purpose,
        "philox_rounds": PHILOX_ROUNDS,
        "max_draws": MAX_DRAWS,
        "floor_value": FLOOR,
        "beta_floor": BETA_FLOOR,
        "beta_ceiling": 1 - BETA_FLOOR,
        "z_floor": Z_FLOOR,
        "clip": CLIP,
        "inverse_e": math.exp(-1.0),
        "X": lanes,
        "lanewise": lanewise,
        "noise": problem.get("noise", "on") == "on",
        "half": teams.half_of(int(config["block_size"])),
        "narrow": storage.narrow,
        "storage": storage.name,
        "half_scale": HALF_SCALE,
        "half_unscale": 1 / HALF_SCALE,
        "half_normal": HALF_NORMAL,
        "types": {"stored": "u16" if storage.narrow else "real"},
    } | more


def row_team(problem: Problem, config: Config, traits: Traits, unrolled: bool, **more: Any) -> dict[str, Any]:
    """Template variables of kernels in which a team processes a row."""
    size = teams.team_size(config, traits)
    # To a processor, a block of teams that share nothing is a loop over them: one program serves all block sizes.
    placed = {value for name, value in more.items() if name.startswith("place")}
    any_block = traits.kind == "cpu" and size == 1 and "S" not in placed
    return common(
        problem,
        config,
        traits,
        T=size,
        teams=1 if any_block else int(config["block_size"]) // size,
        any_block=any_block,
        half=0 if any_block else teams.half_of(int(config["block_size"])),
        chunks=chunks(problem, config, traits),
        reduction=config["reduction"],
        uses_sub_groups=config["reduction"] == "shuffle",
        unrolled=unrolled,
        **more,
    )


def _vector_width(config: Config, problem: Problem, traits: Traits) -> str | None:
    return teams.too_wide(int(config["vector_width"]), traits, narrow=storage_of(problem).narrow)


def _team(config: Config, problem: Problem, traits: Traits) -> str | None:
    team, block = config["team"], int(config["block_size"])
    if team == "subgroup":
        return teams.SUB_GROUPS.check(config, problem, traits)
    if team == "block":
        vectors = row_vectors(problem, config)
        if block > max(vectors, 32):
            return f"{block} work-items for a row of {vectors} vectors: most would idle"
    return None


def of_row(config: Config, before: Problem, problem: Problem, traits: Traits) -> Config:
    """Scale the block size of a team of type ``block`` with the row length, from the problem ``before``.

    The number of row elements per work-item stays about the same.  Other teams do not depend on the row length.
    """
    if config["team"] != "block":
        return config
    ratio = row_length(problem.integer("K")) / row_length(before.integer("K"))
    lanes = traits.sub_group_size if config["reduction"] == "shuffle" else 1
    sizes = [block for block in teams.BLOCK_SIZES if lanes and block % lanes == 0] or list(teams.BLOCK_SIZES)
    wanted = int(config["block_size"]) * ratio
    return {**config, "block_size": min(sizes, key=lambda block: abs(math.log(block / wanted)))}


_SINGLE = "the device has no double precision, which sums and held-out metrics need"
COMMON = (teams.BLOCK_FITS, Constraint("precision", lambda c, p, t: None if t.fp64 else _SINGLE))
ROW_TEAM = (
    *COMMON,
    Constraint("vector width", _vector_width),
    Constraint("team", _team),
    teams.REDUCES,
)


#: Limit of a block's thread-local arrays on a CPU. They share a stack of a few megabytes; overflow kills the process.
_PRIVATE_BYTES_CPU = 1 << 21
#: Limit of thread-local arrays per work-item on a GPU.
_PRIVATE_BYTES_GPU = 64 << 10


def private_memory(vectors: int, config: Config, problem: Problem, traits: Traits, beside: int = 0) -> str | None:
    """An error message if thread-local arrays are too large, else None.

    Each work-item has ``vectors`` arrays, as long as its share of a row, and ``beside`` bytes.
    """
    a_chunk = int(config["vector_width"]) * reals.real_bytes(problem)
    each = vectors * chunks(problem, config, traits) * a_chunk + beside
    if traits.kind != "cpu":
        needed, limit = each, _PRIVATE_BYTES_GPU
    else:
        if reason := teams.vectorised_memory(each, config):
            return reason
        needed, limit = int(config["block_size"]) * each, _PRIVATE_BYTES_CPU
    return f"{needed} bytes of thread-local arrays; at most {limit}" if needed > limit else None


def busy(problem: Problem, config: Config, traits: Traits) -> float:
    """Average share of a team's work-items that have a vector of the row."""
    return row_vectors(problem, config) / (chunks(problem, config, traits) * teams.team_size(config, traits))


def rows_of_team(
    problem: Problem,
    config: Config,
    traits: Traits,
    *,
    moved: int,
    units: int,
    sums: int,
    near: int = 0,
    private: int = 0,
    rows: int = 1,
) -> Demand:
    """Demand of a kernel in which a team processes rows, ``rows`` at a time, and makes ``sums`` sums."""
    return Demand(
        moved=moved,
        units=units,
        near=near,
        local=teams.sum_bytes(problem, config, traits, rows),
        private=private,
        wanted=rows * int(config["vector_width"]) * stored_size(problem),
        barriers=teams.barriers(config, traits, sums),
        busy=busy(problem, config, traits),
    )
