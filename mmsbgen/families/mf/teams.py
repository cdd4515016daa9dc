"""What the kernels share that go over ratings by teams: axes, arguments, template variables."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mf.layout import padded_width
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

BLOCK = Axis("block_size", (1, 4, 8, 16, 32, 64, 128, 256), "work-items of a block")
TEAM = Axis("team", (1, 4, 8, 16, 32), "work-items that share a rating")
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


def common_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """The template variables of all kernels that go over ratings by teams."""
    width, real = int(config["vector_width"]), reals.real_name(problem)
    if config.get("operator") == "witness":  # it has integers
        real = "u32" if traits.dialect == "cuda" else "uint"
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
    if traits.dialect == "opencl" and team > 1 and block != team:
        return "in OpenCL C a team of several work-items is a whole block"
    return teams.meets_alone(team, traits)


def _widths(config: Config, problem: Problem, traits: Traits) -> str | None:
    width, team, row = int(config["vector_width"]), int(config["team"]), padded_width(problem.integer("K"))
    if width * team > row:
        return f"{team} work-items of {width} coordinates are more than a row of {row}"
    narrow = problem.get("storage") == "bfloat16" and config.get("operator") != "witness"
    return wide_load(width * (2 if narrow else reals.real_bytes(problem)), traits)


def wide_load(size: int, traits: Traits) -> str | None:
    """A reason why a load cannot have so many bytes, or None."""
    return "a load has at most 16 bytes" if traits.dialect == "cuda" and size > 16 else None


def kept(config: Config, problem: Problem, traits: Traits) -> str | None:
    """A reason why rows cannot be held in registers as asked, or None."""
    if config["held"] == "none":
        return None
    each = padded_width(problem.integer("K")) // int(config["team"])
    return f"two times {each} coordinates are too many to keep" if each > 128 else None


def space_of(*more: Axis, constraints: tuple[Constraint, ...] = ()) -> Space:
    """The axes of teams with others."""
    found = [teams.BLOCK_FITS, teams.splits("team"), Constraint("team", _teams), Constraint("vector_width", _widths)]
    if HELD in more:
        found.append(Constraint("held", kept))
    return Space((BLOCK, TEAM, teams.VECTOR_WIDTH, *more), (*found, *constraints))


def widest(problem: Problem, traits: Traits) -> int:
    """The widest vectors that a device of this kind likes."""
    if traits.kind == "gpu":
        return 16 // reals.real_bytes(problem)
    return 64 // reals.real_bytes(problem)


def default_team(problem: Problem, traits: Traits, block: int) -> dict[str, Any]:
    """On GPUs the largest team whose work-items all have coordinates, in blocks of ``block`` if teams can share one."""
    width, row, team = widest(problem, traits), padded_width(problem.integer("K")), 1
    if traits.kind == "gpu":
        team = max(size for size in (4, 8, 16, 32) if size * width <= row or size == 4)
    block = block if traits.kind == "gpu" and traits.dialect == "cuda" else team
    return {"block_size": block, "team": team, "vector_width": width}
