"""What the kernels share that go over ratings by teams: axes, arguments, template variables."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mf.layout import padded_width
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

BLOCK = Axis("block_size", (1, 4, 16, 32, 64, 128, 256), "work-items of a block")
TEAM = Axis("team", (1, 4, 8, 16, 32), "work-items that share a rating")
WIDTH = Axis("vector_width", (1, 2, 4, 8, 16), "coordinates that a work-item loads at once")
HELD = Axis("held", ("none", "registers"), "whether rows are read again for the step, or kept and loops unrolled")
FACTORS = (
    Argument("user_factors", "stored", "inout", "[m, LD]"),
    Argument("item_factors", "stored", "inout", "[n, LD]"),
    Argument("user_bias", "real", "inout", "[m]"),
    Argument("item_bias", "real", "inout", "[n]"),
)
DATA = (
    Argument("users", "u32", "in", "[E]"),
    Argument("items", "u32", "in", "[E]"),
    Argument("ratings", "real", "in", "[E]"),
)


def real_of(problem: Problem, config: Config, traits: Traits) -> str:
    """The C type of factors; witnesses have integers."""
    if config.get("operator") == "witness":
        return "u32" if traits.dialect == "cuda" else "uint"
    return "double" if problem.get("dtype") == "float64" else "float"


def common_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """The template variables of all kernels that go over ratings by teams."""
    real, width = real_of(problem, config, traits), int(config["vector_width"])
    narrow = problem.get("storage") == "bfloat16" and config.get("operator") != "witness"
    return {
        "narrow": narrow,
        "types": {"stored": "u16" if narrow else "real"},
        "real": real,
        "LD": padded_width(problem.integer("K")),
        "W": width,
        "T": int(config["team"]),
        "alignment": width * (8 if real == "double" else 4),
        "held": config.get("held", "none"),
        "bias": problem.get("bias") == "on",
    }


def _teams(config: Config, problem: Problem, traits: Traits) -> str | None:
    block, team = int(config["block_size"]), int(config["team"])
    if block > traits.max_block_size:
        return f"the device's blocks have at most {traits.max_block_size} work-items"
    if block % team:
        return f"a block of {block} has no whole number of teams of {team}"
    if traits.dialect == "opencl" and team > 1 and block != team:
        return "in OpenCL C a team of several work-items is a whole block"
    return one_work_item(team, traits)


def one_work_item(items: int, traits: Traits) -> str | None:
    """A reason why so many work-items cannot wait at a barrier, or None.

    PoCL 3.1 splits loops with barriers by what depends on the work-item, and takes one part for the whole block.
    """
    if items > 1 and traits.platform == "Portable Computing Language":
        return "PoCL miscompiles barriers in loops with a length that is not known: one work-item has to do"
    return None


def _widths(config: Config, problem: Problem, traits: Traits) -> str | None:
    width, team, row = int(config["vector_width"]), int(config["team"]), padded_width(problem.integer("K"))
    if width * team > row:
        return f"{team} work-items of {width} coordinates are more than a row of {row}"
    narrow = problem.get("storage") == "bfloat16" and config.get("operator") != "witness"
    size = 2 if narrow else 8 if problem.get("dtype") == "float64" else 4
    if traits.dialect == "cuda" and width * size > 16:
        return "a load has at most 16 bytes"
    return None


def kept(config: Config, problem: Problem, traits: Traits) -> str | None:
    """A reason why rows cannot be held in registers as asked, or None."""
    if config["held"] == "none":
        return None
    each = padded_width(problem.integer("K")) // int(config["team"])
    return f"two times {each} coordinates are too many to keep" if each > 128 else None


def space_of(*more: Axis, constraints: tuple[Constraint, ...] = ()) -> Space:
    """The axes of teams with others."""
    found = [Constraint("block_size", _teams), Constraint("vector_width", _widths)]
    if HELD in more:
        found.append(Constraint("held", kept))
    return Space((BLOCK, TEAM, WIDTH, *more), (*found, *constraints))


def widest(problem: Problem, traits: Traits) -> int:
    """The widest vectors that a device of this kind likes."""
    if traits.kind == "gpu":
        return 2 if problem.get("dtype") == "float64" else 4
    return 8 if problem.get("dtype") == "float64" else 16


def default_team(problem: Problem, traits: Traits, block: int) -> dict[str, Any]:
    """On GPUs the largest team whose work-items all have coordinates, in blocks of ``block`` if teams can share one."""
    width, row, team = widest(problem, traits), padded_width(problem.integer("K")), 1
    if traits.kind == "gpu":
        team = max(size for size in (4, 8, 16, 32) if size * width <= row or size == 4)
    block = block if traits.kind == "gpu" and traits.dialect == "cuda" else team
    return {"block_size": block, "team": team, "vector_width": width}
