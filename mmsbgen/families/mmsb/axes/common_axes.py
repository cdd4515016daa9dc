"""Axes, constraints and template variables shared by the kernels over rows of the state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mmsbgen.base.errors import ConfigError
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
from mmsbgen.kernels.family import Demand, Launch
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.source.dialect import dialect
from mmsbgen.kernels.space import Axis, Config, Constraint, Traits

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024)
GEN = tuple(f"{probs}{grads}{pi}" for probs in "RS" for grads in "RS" for pi in "RS")
PLACEMENTS = ("THREAD", "NAIVE", "GLOBAL", "SHARED", *GEN)

BLOCK_SIZE = Axis("block_size", BLOCK_SIZES, "work-items of a block (work-group)")
VECTOR_WIDTH = Axis("vector_width", (1, 2, 4, 8, 16), "elements of a vector load and of the arithmetic")
TEAM = Axis("team", ("item", "subgroup", "block"), "who shares one row: one work-item, a sub-group (warp), a block")
REDUCTION = Axis("reduction", ("none", "shuffle", "local"), "how a team adds up: alone, by shuffles, in local memory")


def element_size(problem: Problem) -> int:
    """Bytes of the problem's real type."""
    return 8 if problem["dtype"] == "float64" else 4


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


def team_size(config: Config, traits: Traits) -> int:
    """Work-items that share a row."""
    team = config["team"]
    return 1 if team == "item" else traits.sub_group_size if team == "subgroup" else int(config["block_size"])


def chunks(problem: Problem, config: Config, traits: Traits) -> int:
    """Vectors of a row per work-item of its team."""
    return -(-row_vectors(problem, config) // max(1, team_size(config, traits)))


def literal_of(problem: Problem) -> Callable[[float], str]:
    """A function that formats a number as a literal of the problem's real type."""
    if problem["dtype"] == "float64":
        return lambda x: repr(float(x))

    def single(x: float) -> str:
        text = str(np.float32(x))
        return (text if any(c in text for c in ".en") else text + ".0") + "f"

    return single


def common(problem: Problem, config: Config, traits: Traits, **more: Any) -> dict[str, Any]:
    """Template variables of every kernel; ``vector_width`` is 1 if the configuration has no such axis."""
    width = int(config.get("vector_width", 1))
    words = dialect(traits.dialect)
    k = problem.integer("K")
    storage = storage_of(problem)
    lanes = width if traits.dialect == "opencl" else 1
    lanewise = lanes > 1 and traits.kind == "cpu"
    return {
        "real": "double" if problem["dtype"] == "float64" else "float",
        "uses_double": True,
        "uses_sub_groups": False,
        "alignment": min(16, width * element_size(problem)),
        "W": width,
        "K": k,
        "LD": row_length(k),
        "row_vectors": row_length(k) // width,
        "literal": literal_of(problem),
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
        "half": _half(int(config["block_size"])),
        "narrow": storage.narrow,
        "storage": storage.name,
        "half_scale": HALF_SCALE,
        "half_unscale": 1 / HALF_SCALE,
        "half_normal": HALF_NORMAL,
        "types": {"stored": "u16" if storage.narrow else "real"},
    } | more


def row_team(problem: Problem, config: Config, traits: Traits, unrolled: bool, **more: Any) -> dict[str, Any]:
    """Template variables of kernels in which a team processes a row."""
    size = team_size(config, traits)
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
        half=0 if any_block else _half(int(config["block_size"])),
        chunks=chunks(problem, config, traits),
        reduction=config["reduction"],
        uses_sub_groups=config["reduction"] == "shuffle",
        unrolled=unrolled,
        **more,
    )


def _half(size: int) -> int:
    """Half of the smallest power of two that is at least ``size``: the first stride of a tree sum over a block."""
    return 0 if size == 1 else 1 << ((size - 1).bit_length() - 1)


def launch_teams(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """Launch with a team for each of ``count`` work units."""
    block = int(config["block_size"])
    return Launch(max(1, -(-count // (block // team_size(config, traits)))), block)


def launch_blocks(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """One block for each unit."""
    return Launch(max(1, count), int(config["block_size"]))


def launch_items(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """Launch with a work-item for each of ``count`` work units."""
    block = int(config["block_size"])
    return Launch(max(1, -(-count // block)), block)


def _vector_width(config: Config, problem: Problem, traits: Traits) -> str | None:
    width = int(config["vector_width"])
    # A load of 16 bytes has twice as many elements of 16 bits.
    more = 2 if storage_of(problem).narrow else 1
    limit = dialect(traits.dialect).max_vector_width * (more if traits.dialect == "cuda" else 1)
    if width > limit:
        return f"{traits.dialect} has vectors of up to {limit} elements, not {width}"
    if width > 4 * more and traits.kind != "cpu":
        return f"width {width} is for CPUs"
    return None


def _block(config: Config, problem: Problem, traits: Traits) -> str | None:
    block = int(config["block_size"])
    return f"the device has blocks of up to {traits.max_block_size}" if block > traits.max_block_size else None


def _team(config: Config, problem: Problem, traits: Traits) -> str | None:
    team, block, lanes = config["team"], int(config["block_size"]), traits.sub_group_size
    if team == "subgroup":
        if not lanes:
            return "the device has no sub-groups"
        if block % lanes:
            return f"a block of {block} is not a whole number of sub-groups of {lanes}"
    if team == "block":
        vectors = row_vectors(problem, config)
        if block > max(vectors, 32):
            return f"{block} work-items for a row of {vectors} vectors: most would idle"
    return None


def _reduction(config: Config, problem: Problem, traits: Traits) -> str | None:
    team, reduction = config["team"], config["reduction"]
    size, lanes = team_size(config, traits), traits.sub_group_size
    if size == 1:
        return None if reduction == "none" else "a single work-item has nothing to add up"
    if reduction == "none":
        return f"a team of {size} must add up by shuffles or in local memory"
    if reduction == "shuffle" and (not lanes or size % lanes):
        return f"shuffles need a team that is a whole number of sub-groups ({lanes or 'none here'}), not {size}"
    if reduction == "local" and team == "subgroup":
        return "sub-groups add up by shuffles"
    return None


def of_row(config: Config, before: Problem, problem: Problem, traits: Traits) -> Config:
    """Scale the block size of a team of type ``block`` with the row length, from the problem ``before``.

    The number of row elements per work-item stays about the same.  Other teams do not depend on the row length.
    """
    if config["team"] != "block":
        return config
    ratio = row_length(problem.integer("K")) / row_length(before.integer("K"))
    lanes = traits.sub_group_size if config["reduction"] == "shuffle" else 1
    sizes = [block for block in BLOCK_SIZES if lanes and block % lanes == 0] or list(BLOCK_SIZES)
    wanted = int(config["block_size"]) * ratio
    return {**config, "block_size": min(sizes, key=lambda block: abs(math.log(block / wanted)))}


_SINGLE = "the device has no double precision, which sums and held-out metrics need"
COMMON = (Constraint("block", _block), Constraint("precision", lambda c, p, t: None if t.fp64 else _SINGLE))
ROW_TEAM = (
    *COMMON,
    Constraint("vector width", _vector_width),
    Constraint("team", _team),
    Constraint("reduction", _reduction),
)


#: Limit of a block's thread-local arrays on a CPU. They share a stack of a few megabytes; overflow kills the process.
_PRIVATE_BYTES_CPU = 1 << 21
#: The same limit for work-items that Intel's runtime combines into a vector: 391168 bytes ran, 489472 did not.
_PRIVATE_BYTES_VECTOR = 384 << 10
#: Limit of thread-local arrays per work-item on a GPU.
_PRIVATE_BYTES_GPU = 64 << 10


def work_items_at_once(config: Config) -> int:
    """Number of work-items whose thread-local arrays a CPU compiler allocates together.

    Intel's compiler combines 16 scalar work-items into a vector and adds one for the remainder.
    """
    return 17 if int(config["vector_width"]) == 1 and int(config["block_size"]) > 1 else 1


def vectorised_memory(needed: int, config: Config) -> str | None:
    """An error message if ``needed`` bytes per work-item are too many for vectors of work-items, else None."""
    together = work_items_at_once(config) * needed
    if work_items_at_once(config) > 1 and together > _PRIVATE_BYTES_VECTOR:
        return f"{together} bytes of thread-local arrays a vector of work-items; at most {_PRIVATE_BYTES_VECTOR}"
    return None


def private_memory(vectors: int, config: Config, problem: Problem, traits: Traits, beside: int = 0) -> str | None:
    """An error message if thread-local arrays are too large, else None.

    Each work-item has ``vectors`` arrays, as long as its share of a row, and ``beside`` bytes.
    """
    a_chunk = int(config["vector_width"]) * element_size(problem)
    each = vectors * chunks(problem, config, traits) * a_chunk + beside
    if traits.kind != "cpu":
        needed, limit = each, _PRIVATE_BYTES_GPU
    else:
        if reason := vectorised_memory(each, config):
            return reason
        needed, limit = int(config["block_size"]) * each, _PRIVATE_BYTES_CPU
    return f"{needed} bytes of thread-local arrays; at most {limit}" if needed > limit else None


def sum_bytes(problem: Problem, config: Config, traits: Traits, values: int) -> int:
    """Local memory in bytes per block for team sums of ``values`` numbers (``team_of.declare`` of the templates)."""
    size, sums = team_size(config, traits), 0
    if config["reduction"] == "local":
        sums = size
    elif config["reduction"] == "shuffle" and size > traits.sub_group_size:
        sums = size // traits.sub_group_size
    return 2 * values * sums * element_size(problem)


def local_memory(needed: Callable[[Problem, Config, Traits], int]) -> Constraint:
    """Constraint that a block needs at most the device's local memory; ``needed`` returns bytes."""

    def check(config: Config, problem: Problem, traits: Traits) -> str | None:
        count = needed(problem, config, traits)
        if count > traits.local_memory:
            return f"needs {count} bytes of local memory a block, the device has {traits.local_memory}"
        return None

    return Constraint("local memory", check)


def first_valid(
    candidates: Iterable[dict[str, Any]], refusal: Callable[[Config, Problem, Traits], str | None]
) -> Callable[[Problem, Traits], Config]:
    """A default chooser: it returns the first of ``candidates`` that the device and the problem allow.

    If a device has no sub-groups, as with NVIDIA's OpenCL, reductions by shuffles use local memory instead.  The last
    candidate should suit every device that can run the kernel.

    Raises:
        ConfigError: From the chooser, if no candidate is valid, with the reason for the last one.
    """
    ordered = list(candidates)

    def choose(problem: Problem, traits: Traits) -> Config:
        reason = None
        for candidate in ordered:
            alone = not traits.sub_group_size and candidate.get("reduction") == "shuffle"
            config = candidate | {"reduction": "local"} if alone else candidate
            if (reason := refusal(config, problem, traits)) is None:
                return config
        raise ConfigError(f"no configuration suits this device: {reason}")

    return choose


def busy(problem: Problem, config: Config, traits: Traits) -> float:
    """Average share of a team's work-items that have a vector of the row."""
    return row_vectors(problem, config) / (chunks(problem, config, traits) * team_size(config, traits))


def barriers(config: Config, traits: Traits, sums: int) -> int:
    """Number of barriers for ``sums`` team sums in sequence; sub-groups need none."""
    together = config["team"] == "block" and team_size(config, traits) > max(1, traits.sub_group_size)
    if not together and config["reduction"] != "local":
        return 0
    steps = max(1, (team_size(config, traits) - 1).bit_length()) if config["reduction"] == "local" else 2
    return sums * steps


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
        local=sum_bytes(problem, config, traits, rows),
        private=private,
        wanted=rows * int(config["vector_width"]) * stored_size(problem),
        barriers=barriers(config, traits, sums),
        busy=busy(problem, config, traits),
    )
