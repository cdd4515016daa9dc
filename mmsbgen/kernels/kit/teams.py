"""Axes, launches and constraints of kernels in which teams of work-items share work units, such as rows.

A team is a work-item, a sub-group (warp) or a block.  The templates of ``common/rows`` are written for these axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mmsbgen.backends.opencl.programs import POCL
from mmsbgen.base.errors import ConfigError
from mmsbgen.kernels.family import Launch
from mmsbgen.kernels.kit.reals import real_bytes
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.source.dialect import dialect
from mmsbgen.kernels.space import Axis, Config, Constraint, Traits

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024)
BLOCK_SIZE = Axis("block_size", BLOCK_SIZES, "work-items of a block (work-group)")
VECTOR_WIDTH = Axis("vector_width", (1, 2, 4, 8, 16), "elements of a vector load and of the arithmetic")
TEAM = Axis("team", ("item", "subgroup", "block"), "who shares one row: one work-item, a sub-group (warp), a block")
REDUCTION = Axis("reduction", ("none", "shuffle", "local"), "how a team adds up: alone, by shuffles, in local memory")


def team_size(config: Config, traits: Traits) -> int:
    """Work-items that share a row."""
    team = config["team"]
    return 1 if team == "item" else traits.sub_group_size if team == "subgroup" else int(config["block_size"])


def half_of(size: int) -> int:
    """Half of the smallest power of two that is at least ``size``: the first stride of a tree sum over a block."""
    return 0 if size == 1 else 1 << ((size - 1).bit_length() - 1)


def launch_of(count: int, each: int, block: int) -> Launch:
    """Blocks of ``block`` work-items for ``count`` units, of which a block has ``each``; at least one block."""
    return Launch(max(1, -(-count // each)), block)


def launch_teams(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """Launch with a team for each of ``count`` work units."""
    block = int(config["block_size"])
    return launch_of(count, block // team_size(config, traits), block)


def launch_blocks(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """One block for each unit."""
    return launch_of(count, 1, int(config["block_size"]))


def launch_items(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """Launch with a work-item for each of ``count`` work units."""
    block = int(config["block_size"])
    return launch_of(count, block, block)


def _block(config: Config, problem: Problem, traits: Traits) -> str | None:
    block = int(config["block_size"])
    return f"the device has blocks of up to {traits.max_block_size}" if block > traits.max_block_size else None


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


def _sub_groups(config: Config, problem: Problem, traits: Traits) -> str | None:
    block, lanes = int(config["block_size"]), traits.sub_group_size
    if config["team"] != "subgroup":
        return None
    if not lanes:
        return "the device has no sub-groups"
    return f"a block of {block} is not a whole number of sub-groups of {lanes}" if block % lanes else None


BLOCK_FITS = Constraint("block", _block)
REDUCES = Constraint("reduction", _reduction)
SUB_GROUPS = Constraint("sub-groups", _sub_groups)


def splits(axis: str) -> Constraint:
    """Constraint that a block is a whole number of teams, whose size is the value of ``axis``."""

    def check(config: Config, problem: Problem, traits: Traits) -> str | None:
        block, size = int(config["block_size"]), int(config[axis])
        return f"a block of {block} is not a whole number of teams of {size}" if block % size else None

    return Constraint(axis, check)


def too_wide(width: int, traits: Traits, *, narrow: bool = False) -> str | None:
    """An error message if the device has no vectors of ``width`` elements, or does not gain by them, else None.

    A load of 16 bytes has twice as many elements if they are ``narrow``, of 16 bits.
    """
    more = 2 if narrow else 1
    limit = dialect(traits.dialect).max_vector_width * (more if traits.dialect == "cuda" else 1)
    if width > limit:
        return f"{traits.dialect} has vectors of up to {limit} elements, not {width}"
    return f"width {width} is for CPUs" if width > 4 * more and traits.kind != "cpu" else None


def meets_alone(items: int, traits: Traits) -> str | None:
    """An error message if so many work-items cannot wait at a barrier in a loop, else None.

    PoCL 3.1 splits loops with barriers by what depends on the work-item, and takes one part for the whole block.
    """
    if items > 1 and traits.platform == POCL:
        return "PoCL miscompiles barriers in loops with a length that is not known: one work-item has to do"
    return None


def too_much_local(needed: int, traits: Traits) -> str | None:
    """An error message if a block cannot have ``needed`` bytes of local memory, else None."""
    if needed > traits.local_memory:
        return f"needs {needed} bytes of local memory a block, the device has {traits.local_memory}"
    return None


def local_memory(needed: Callable[[Problem, Config, Traits], int]) -> Constraint:
    """Constraint that a block needs at most the device's local memory; ``needed`` returns bytes."""
    return Constraint("local memory", lambda c, p, t: too_much_local(needed(p, c, t), t))


#: Limit of thread-local arrays of work-items that Intel's runtime combines into a vector: 391168 bytes ran, 489472 did
#: not.
_PRIVATE_BYTES_VECTOR = 384 << 10


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


def sum_bytes(problem: Problem, config: Config, traits: Traits, values: int) -> int:
    """Local memory in bytes per block for team sums of ``values`` numbers (``team_of.declare`` of the templates)."""
    size, sums = team_size(config, traits), 0
    if config["reduction"] == "local":
        sums = size
    elif config["reduction"] == "shuffle" and size > traits.sub_group_size:
        sums = size // traits.sub_group_size
    return 2 * values * sums * real_bytes(problem)


def barriers(config: Config, traits: Traits, sums: int) -> int:
    """Number of barriers for ``sums`` team sums in sequence; sub-groups need none."""
    together = config["team"] == "block" and team_size(config, traits) > max(1, traits.sub_group_size)
    if not together and config["reduction"] != "local":
        return 0
    steps = max(1, (team_size(config, traits) - 1).bit_length()) if config["reduction"] == "local" else 2
    return sums * steps


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
