"""The kernels of one sweep of stochastic gradient descent, which differ in their schedule."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mmsbgen.families.mf.layout import padded_width
from mmsbgen.families.mf.reference import ODD
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

__all__ = [
    "DATA",
    "FACTORS",
    "HELD",
    "TEAM",
    "WIDTH",
    "common_variables",
    "one_work_item",
    "real_of",
    "sgd_kernels",
    "space_of",
    "widest",
]

BLOCK = Axis("block_size", (1, 4, 16, 32, 64, 128, 256), "work-items of a block")
TEAM = Axis("team", (1, 4, 8, 16, 32), "work-items that share a rating")
WIDTH = Axis("vector_width", (1, 2, 4, 8, 16), "coordinates that a work-item loads at once")
HELD = Axis("held", ("none", "registers"), "whether rows are read again for the step, or kept and loops unrolled")
_TILES = Axis("tiles", (1, 4, 16, 64, 256, 1024), "groups of users and of items")
_PER_TEAM = Axis("per_team", (1, 16, 1024), "ratings in a row that a team takes")
_RETRIES = Axis("retries", (0, 1, 4), "times that a team tries again to get two locks before it defers a rating")
_TAIL = Axis("tail", (0, 1024, 16384), "a list of so many deferred ratings is left to one team")
_OPERATOR = Axis(
    "operator", ("sgd", "witness"), "the step, or an exact one on integers that shows the order of ratings"
)
_TRACED = Axis(
    "operator", ("sgd", "traced", "witness"), "the step; with tickets that tell the order; an exact one, too"
)

#: Bytes of the rows of a cell of a processor.
_CACHE = 1 << 19

FACTORS = (
    Argument("user_factors", "real", "inout", "[m, LD]"),
    Argument("item_factors", "real", "inout", "[n, LD]"),
    Argument("user_bias", "real", "inout", "[m]"),
    Argument("item_bias", "real", "inout", "[n]"),
)
DATA = (
    Argument("users", "u32", "in", "[E]"),
    Argument("items", "u32", "in", "[E]"),
    Argument("ratings", "real", "in", "[E]"),
)
_STEP = (
    Argument("mean", "real", "scalar", "of the ratings"),
    Argument("step", "real", "scalar", "of this sweep"),
    Argument("reg_user", "real", "scalar", "penalty of user factors"),
    Argument("reg_item", "real", "scalar", "of item factors"),
    Argument("reg_bias", "real", "scalar", "of biases"),
)
_CELLS = Argument("cells", "u32", "in", "[tiles * tiles + 1] first rating of each cell")
_TURN = Argument("turn", "u32", "scalar", "(J - I) mod tiles of the cells of this launch")
_N_RATINGS = Argument("n_ratings", "u32", "scalar", "")
_LISTS = (
    Argument("waiting", "u32", "inout", "[E] ratings to do"),
    Argument("deferred", "u32", "inout", "[E] those for the next pass"),
    Argument("counts", "u32", "inout", "[2] deferred ratings, tickets given out"),
    Argument("user_locks", "u32", "inout", "[m] 1 while a team changes the row"),
    Argument("item_locks", "u32", "inout", "[n]"),
    Argument("tickets", "u32", "inout", "[E] when a rating was done, drawn under both of its locks"),
)
_PASS = (
    Argument("all", "u32", "scalar", "whether the pass goes over all ratings, not the list"),
    Argument("size", "u32", "scalar", "ratings of the pass"),
    Argument("per_team", "u32", "scalar", "ratings in a row that a team takes"),
)


def real_of(problem: Problem, config: Config, traits: Traits) -> str:
    """The C type of factors; witnesses have integers."""
    if config.get("operator") == "witness":
        return "u32" if traits.dialect == "cuda" else "uint"
    return "double" if problem.get("dtype") == "float64" else "float"


def common_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """The template variables of all kernels that go over ratings by teams."""
    real, width = real_of(problem, config, traits), int(config["vector_width"])
    return {
        "real": real,
        "LD": padded_width(problem.integer("K")),
        "W": width,
        "T": int(config["team"]),
        "alignment": width * (8 if real == "double" else 4),
        "held": config.get("held", "none"),
        "bias": problem.get("bias") == "on",
    }


def _variables(schedule: str, problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    found = common_variables(problem, config, traits)
    found |= {"schedule": schedule, "operator": config["operator"], "odd": ODD}
    return found | {name: int(config[name]) for name in ("tiles", "per_team", "retries") if name in config}


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
    """Why so many work-items cannot meet at barriers, if they cannot.

    PoCL 3.1 splits loops with barriers by what depends on the work-item, and takes one part for the whole block.
    """
    if items > 1 and traits.platform == "Portable Computing Language":
        return "PoCL miscompiles barriers in loops with a length that is not known: one work-item has to do"
    return None


def _widths(config: Config, problem: Problem, traits: Traits) -> str | None:
    width, team, row = int(config["vector_width"]), int(config["team"]), padded_width(problem.integer("K"))
    if width * team > row:
        return f"{team} work-items of {width} coordinates are more than a row of {row}"
    size = 8 if problem.get("dtype") == "float64" else 4
    if traits.dialect == "cuda" and width * size > 16:
        return "a load has at most 16 bytes"
    return None


def _kept(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["held"] == "none":
        return None
    each = padded_width(problem.integer("K")) // int(config["team"])
    return f"two times {each} coordinates are too many to keep" if each > 128 else None


def space_of(*more: Axis) -> Space:
    """The axes of teams with others."""
    constraints = [Constraint("block_size", _teams), Constraint("vector_width", _widths)]
    if HELD in more:
        constraints.append(Constraint("held", _kept))
    return Space((BLOCK, TEAM, WIDTH, *more), tuple(constraints))


def widest(problem: Problem, traits: Traits) -> int:
    """The widest vectors that a device of this kind likes."""
    if traits.kind == "gpu":
        return 2 if problem.get("dtype") == "float64" else 4
    return 8 if problem.get("dtype") == "float64" else 16


def _default(problem: Problem, traits: Traits) -> dict[str, Any]:
    width, row = widest(problem, traits), padded_width(problem.integer("K"))
    if traits.kind != "gpu":
        return {"block_size": 1, "team": 1, "vector_width": width, "held": "none", "operator": "sgd"}
    team = max(size for size in (4, 8, 16, 32) if size * width <= row or size == 4)
    block = team if traits.dialect == "opencl" else 128
    return {"block_size": block, "team": team, "vector_width": width, "held": "registers", "operator": "sgd"}


def _kept_default(problem: Problem, traits: Traits) -> dict[str, Any]:
    found = _default(problem, traits)
    return found | ({"held": "none"} if _kept(found, problem, traits) else {})


def _tiles_default(problem: Problem, traits: Traits) -> Config:
    """Tiles as many as keep all teams busy; on a processor also so many that the rows of a cell fit into a cache."""
    tiles = 1024
    if traits.kind != "gpu":
        size = (problem.integer("users") + problem.integer("items")) * padded_width(problem.integer("K")) * 4
        wanted = max(2 * traits.compute_units, size // _CACHE)
        tiles = next((each for each in _TILES.values if isinstance(each, int) and each >= wanted), 1024)
    while tiles > 1 and 2 * tiles > min(problem.integer("users"), problem.integer("items")):
        tiles //= 4
    return _kept_default(problem, traits) | {"tiles": tiles}


def _blocks(config: Config, teams: int) -> int:
    return max(1, -(-teams // (int(config["block_size"]) // int(config["team"]))))


def _tiles(on: Launches) -> None:
    block, tiles = int(on.config["block_size"]), int(on.config["tiles"])
    for turn in range(tiles):
        on.launch("sweep", _blocks(on.config, tiles), block, turn=np.uint32(turn))


def _locks(on: Launches) -> None:
    """Passes over what is left, until nothing is: each does at least one rating, as locks are taken in one order."""
    block, tail, size, first = int(on.config["block_size"]), int(on.config["tail"]), on.count, True
    on.write("counts", np.zeros(2, np.uint32))
    while size:
        alone = not first and size <= tail
        per_team = size if alone else int(on.config["per_team"])
        # A pass of one team needs one team of the block: the others find nothing to do.
        grid = _blocks(on.config, -(-size // per_team))
        given = {"all": np.uint32(first), "size": np.uint32(size), "per_team": np.uint32(per_team)}
        on.launch("pass", grid, block, **given)
        size, first = int(on.read("counts", 1)[0]), False
        on.write("counts", np.zeros(1, np.uint32))
        on.swap("waiting", "deferred")


def _traffic(problem: Problem) -> int:
    size = 8 if problem.get("dtype") == "float64" else 4
    return problem.integer("ratings") * (4 * padded_width(problem.integer("K")) * size + 12)


def sgd_kernels(**given: Any) -> tuple[KernelSpec, ...]:
    """The kernels of a sweep; ``given`` has parameters, ``check_problem`` and, by name, ``workload``."""
    workload = given.pop("workload")
    shared = {
        "template": "mf/sgd.jinja",
        "traffic": _traffic,
        "flops": lambda problem: 10 * problem.integer("K") * problem.integer("ratings"),
        "modes": ("operator",),
        **given,
    }
    tiles = KernelSpec(
        name="sgd_tiles",
        doc="a sweep by tiles that share no row: equal to a sweep in the order of its cells, bit for bit",
        arguments=(*FACTORS, *DATA, _CELLS, *_STEP),
        space=space_of(HELD, _TILES, _OPERATOR),
        default=_tiles_default,
        variables=partial(_variables, "tiles"),
        launch=lambda problem, config, count, traits: Launch(
            _blocks(config, int(config["tiles"])), int(config["block_size"])
        ),
        entries=lambda config: {"sweep": (*FACTORS, *DATA, _CELLS, *_STEP, _TURN)},
        program=_tiles,
        workload=partial(workload, "sgd_tiles"),
        **shared,
    )
    locks = KernelSpec(
        name="sgd_locks",
        doc="a sweep in which rows are locked: equal to a sweep in some order, another one each time",
        arguments=(*FACTORS, *DATA, *_LISTS, *_STEP),
        space=space_of(HELD, _PER_TEAM, _RETRIES, _TAIL, _TRACED),
        default=lambda problem, traits: (
            _kept_default(problem, traits)
            | {"per_team": 16 if traits.kind == "gpu" else 1024, "retries": 1, "tail": 1024}
        ),
        variables=partial(_variables, "locks"),
        launch=lambda problem, config, count, traits: Launch(
            _blocks(config, -(-count // int(config["per_team"]))), int(config["block_size"])
        ),
        entries=lambda config: {"pass": (*FACTORS, *DATA, *_LISTS, *_STEP, *_PASS)},
        program=_locks,
        workload=partial(workload, "sgd_locks"),
        **shared,
    )
    adds = KernelSpec(
        name="sgd_adds",
        doc="a sweep in which changes are added without waiting: nothing is lost, but rows that are read may be old",
        arguments=(*FACTORS, *DATA, *_STEP, _N_RATINGS),
        space=space_of(HELD, _PER_TEAM, _OPERATOR),
        default=lambda problem, traits: (
            _kept_default(problem, traits) | {"per_team": 16 if traits.kind == "gpu" else 1024}
        ),
        variables=partial(_variables, "adds"),
        launch=lambda problem, config, count, traits: Launch(
            _blocks(config, -(-count // int(config["per_team"]))), int(config["block_size"])
        ),
        workload=partial(workload, "sgd_adds"),
        **shared,
    )
    return tiles, locks, adds
