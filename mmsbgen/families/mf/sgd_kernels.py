"""The kernels of one sweep of stochastic gradient descent, which differ in their schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mmsbgen.families.mf import sgd_programs as programs
from mmsbgen.families.mf.layout import changed_rows, padded_width, stored_bytes
from mmsbgen.families.mf.reference import ODD
from mmsbgen.families.mf.schedules import BLOCK as ITEMS
from mmsbgen.families.mf.schedules import STRETCHES
from mmsbgen.families.mf.teams import DATA, FACTORS, HELD, common_variables, default_team, kept, space_of
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Traits

_TILES = Axis("tiles", (1, 4, 16, 64, 256, 1024), "groups of users and of items")
_BARRIER = Axis("barrier", ("launch", "grid"), "whether each step is a launch, or one has all, with barriers")
_PER_UNIT = Axis("blocks_per_unit", (1, 4, 16), "blocks of each multiprocessor that meet at barriers")
_PER_TEAM = Axis("per_team", (1, 16, 1024), "ratings in a row that a team takes")
_RETRIES = Axis("retries", (0, 1, 4), "times that a team tries again to get its locks before it defers a rating")
_STRETCHES = Axis(
    "stretches", STRETCHES, "teams' lists of ratings, each by item; 0: as many as teams are resident, ratings at random"
)
_TOGETHER = Axis("together", (1, 4, 8), "users of an item whose rows a team locks at once, while it keeps the item's")
_KEPT = Axis("rows_kept", (0, 1, 4, ITEMS), "items whose rows a team keeps over the steps of a block of items")
_OPERATOR = Axis(
    "operator", ("sgd", "witness"), "the step, or an exact one on integers that shows the order of ratings"
)
_TRACED = Axis(
    "operator", ("sgd", "traced", "witness"), "the step; with tickets that tell the order; an exact one, too"
)
#: Coordinates that a work-item keeps in registers, at most.
_COORDINATES = 256
#: Ratings of the busiest row in a stretch; and teams that want it at once.
_OF_THE_BUSIEST, _WANTING = 64, 3
#: Least share of the ratings in the busiest row for which teams take 8 users at once.
_BUSY = 1e-3
#: Bytes of the rows of a cell of a processor.
_CACHE = 1 << 19
#: Work-items that a multiprocessor holds whatever registers they need: 65,536 of them, at most 255 each.
_SURELY_RESIDENT = 256
#: Ratings of a step that take a processor about as long as a launch.
_WORTH_A_LAUNCH = 8192

_STEP = (
    Argument("mean", "real", "scalar", "of the ratings"),
    Argument("step", "real", "scalar", "of this sweep"),
    Argument("reg_user", "real", "scalar", "penalty of user factors"),
    Argument("reg_item", "real", "scalar", "of item factors"),
    Argument("reg_bias", "real", "scalar", "of biases"),
    Argument("seed", "u32", "scalar", "of roundings in this sweep"),
)
_CELLS = Argument("cells", "u32", "in", "[C + 1] first rating of each cell")
_STEPS = (
    Argument("steps", "u32", "in", "[S + 1] first cell of each step"),
    Argument("arrived", "u32", "inout", "[1] blocks that came to the barriers"),
)
_RANGE = (
    Argument("first", "u32", "scalar", "cell of this launch, or step of it if it has several"),
    Argument("size", "u32", "scalar", "how many of them"),
)
_HEADS = (
    Argument("heads", "u32", "in", "[H] the first rating of each item, by blocks of items"),
    Argument("following", "u32", "in", "[E] the next rating of the same item; 2^32 - 1 after its last"),
)
_ITEM_BLOCKS = (
    Argument("first_heads", "u32", "in", "[B + 1] the first head of each block of items"),
    Argument("first_steps", "u32", "in", "[B + 1] the first step of each block of items"),
)
_N_BLOCKS = Argument("n_blocks", "u32", "scalar", "blocks of items")
_OF_BLOCK = (
    Argument("first", "u32", "scalar", "head of this block of items"),
    Argument("size", "u32", "scalar", "its items"),
    Argument("first_step", "u32", "scalar", ""),
    Argument("n_steps", "u32", "scalar", ""),
)
_N_RATINGS = Argument("n_ratings", "u32", "scalar", "")
_DEFERRED = Argument("deferred", "u32", "inout", "[E] ratings left for passes by locks of both rows")
_LISTS = (
    Argument("waiting", "u32", "inout", "[E] ratings to do"),
    Argument("counts", "u32", "inout", "[2] deferred ratings, tickets given out"),
    Argument("tickets", "u32", "inout", "[E] when a rating was done, drawn under its locks"),
    Argument("user_locks", "u32", "inout", "[m] 1 while a team changes the row"),
)
_ITEM_LOCKS = Argument("item_locks", "u32", "inout", "[n]")
_BY_ITEM = (
    Argument("offsets", "u32", "in", "[n + 1] first rating of each item"),
    Argument("left", "u32", "inout", "[n] ratings to do of each item, at its first place in the list"),
)
_ALL = Argument("all", "u32", "scalar", "whether the pass goes over all ratings, not the list")
_OF_TEAM = Argument("per_team", "u32", "scalar", "ratings in a row that a team takes")
_PASS = (
    Argument("source", "u32", "scalar", "0: all ratings; 1: the list; 2: what each team has left of it"),
    Argument("size", "u32", "scalar", "ratings, or those of the list"),
    _OF_TEAM,
)
_NODE_PASS = (_ALL, Argument("n_items", "u32", "scalar", ""))


def _variables(schedule: str, problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    found = common_variables(problem, config, traits)
    alone = schedule == "steps" and config.get("barrier") != "grid"
    found |= {
        "schedule": schedule,
        "operator": config["operator"],
        "gpu": traits.kind == "gpu",
        "odd": ODD,
        "reads": "plain" if alone else "fresh",
        "writes": {"adds": "add", "hogwild": "lossy"}.get(schedule, "store"),
    }
    return found | {name: int(config[name]) for name in ("retries", "rows_kept", "together") if name in config}


def _one_block(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["barrier"] == "grid" and traits.dialect == "opencl":  # a grid of one block
        return teams.meets_alone(int(config["block_size"]), traits)
    return None


def _alone(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["blocks_per_unit"] != 1 and (config["barrier"] != "grid" or traits.dialect != "cuda"):
        return "several blocks meet at barriers on CUDA only, with barrier=grid"
    return None


def _near_rows(config: Config, problem: Problem, traits: Traits) -> str | None:
    count = int(config["block_size"]) // int(config["team"]) * int(config.get("rows_kept", 1))
    return teams.too_much_local(count * padded_width(problem.integer("K")) * reals.real_bytes(problem) + 1024, traits)


def _keeps(config: Config, problem: Problem, traits: Traits) -> str | None:
    kept, teams = int(config["rows_kept"]), int(config["block_size"]) // int(config["team"])
    if not kept:
        return None
    if config["barrier"] != "grid" or config["blocks_per_unit"] != 1:
        return "rows are kept between barriers of the grid, by as many blocks as have them: barrier=grid, 1 a unit"
    if kept == ITEMS and int(config["block_size"]) > 1:
        return f"one work-item keeps {ITEMS} rows, several have fewer each"
    if traits.dialect == "opencl" and teams * kept < ITEMS:
        return f"the one block keeps {teams * kept} rows of the {ITEMS} of a block of items"
    return _near_rows(config, problem, traits)


def _rows_at_once(config: Config, problem: Problem, traits: Traits) -> str | None:
    together = int(config["together"])
    each = (1 + together) * padded_width(problem.integer("K")) // int(config["team"])
    alone = traits.kind != "gpu" and int(config["block_size"]) == together == 1
    if each > _COORDINATES and not alone:
        return f"{each} coordinates of a work-item are too many to keep"
    return None


def _pairs(config: Config, problem: Problem, traits: Traits) -> str | None:
    if problem.get("storage") == "bfloat16" and config["vector_width"] == 1:
        return "factors in 16 bits are added by pairs"
    return None


def _default(problem: Problem, traits: Traits) -> dict[str, Any]:
    found = default_team(problem, traits, 128) | {"held": "registers", "operator": "sgd"}
    return found | ({"held": "none"} if traits.kind != "gpu" or kept(found, problem, traits) else {})


def _tiles_default(problem: Problem, traits: Traits) -> Config:
    """Tiles as many as keep all teams busy; on a processor also so many that the rows of a cell fit into a cache.

    That is of use where a cell has several ratings of a row.
    """
    tiles = 1024
    if traits.kind != "gpu":
        rows = problem.integer("users") + problem.integer("items")
        size = rows * padded_width(problem.integer("K")) * 4
        wanted = max(2 * traits.compute_units, min(size // _CACHE, problem.integer("ratings") // rows))
        tiles = next((each for each in _TILES.values if isinstance(each, int) and each >= wanted), 1024)
    while tiles > min(problem.integer("users"), problem.integer("items")):
        tiles //= 4
    return _default(problem, traits) | {"tiles": tiles} | _barrier(traits.dialect == "cuda")


def _steps_default(problem: Problem, traits: Traits) -> Config:
    """Barriers of the grid on CUDA; on a processor, whose grid is one block, where launches take longer than steps."""
    few = traits.kind != "gpu" and problem.integer("ratings") < _WORTH_A_LAUNCH * problem.integer("degree")
    return _default(problem, traits) | _barrier(few or traits.dialect == "cuda")


def _item_blocks_default(problem: Problem, traits: Traits) -> Config:
    """Rows are kept on CUDA, by so many teams that all are resident; a processor has them in its caches."""
    found: dict[str, Any] = dict(_steps_default(problem, traits)) | {"rows_kept": 0}
    if traits.dialect != "cuda":
        return found
    teams = traits.compute_units * _SURELY_RESIDENT // found["team"]
    kept = found | {"rows_kept": next((each for each in (1, 4) if each * teams >= ITEMS), 0)}
    # All blocks of a multiprocessor share what one may have.
    return found if _near_rows(kept | {"block_size": _SURELY_RESIDENT}, problem, traits) else kept


def _barrier(grid: bool) -> dict[str, Any]:
    return {"barrier": "grid" if grid else "launch", "blocks_per_unit": 1}


def _nodes_default(problem: Problem, traits: Traits) -> dict[str, Any]:
    found = _default(problem, traits) | {"retries": 1}
    while _near_rows(found, problem, traits) and found["block_size"] > found["team"]:
        found["block_size"] //= 2
    return found


def _together(
    config: dict[str, Any], problem: Problem, traits: Traits, counts: tuple[int, ...] = (8, 4)
) -> dict[str, Any]:
    """The first of ``counts`` users at once that fits, to hide a GPU's memory latency; else one."""
    tried = ({"together": count} for count in (counts if traits.kind == "gpu" else ()))
    return next((each for each in tried if _rows_at_once(config | each, problem, traits) is None), {"together": 1})


def _locks_default(problem: Problem, traits: Traits) -> dict[str, Any]:
    """Stretches so long that the busiest item's lock seldom changes hands, or so many that few teams want it at once.

    On a processor some for each core, so that none is left with the longest alone.
    """
    found = {name: value for name, value in _default(problem, traits).items() if name != "held"}
    degree = problem.integer("degree")
    wanted = max(degree // _OF_THE_BUSIEST, _WANTING * problem.integer("ratings") // degree)
    if traits.kind == "gpu":
        found["block_size"] = found["team"]  # a block ends with its team: 6 to 12 % faster on an H200
    else:
        wanted = 16 * traits.compute_units
    stretches = next((each for each in STRETCHES[1:] if each >= wanted), STRETCHES[-1])
    busy = degree >= _BUSY * problem.integer("ratings")
    return found | {"stretches": stretches} | _together(found, problem, traits, (8, 4) if busy else (4,))


def _hybrid_default(problem: Problem, traits: Traits) -> dict[str, Any]:
    found = _nodes_default(problem, traits)
    return found | _together(found, problem, traits)


def _unordered_default(problem: Problem, traits: Traits) -> dict[str, Any]:
    return _default(problem, traits) | {"per_team": 16 if traits.kind == "gpu" else 1024}


def _traffic(problem: Problem) -> int:
    return problem.integer("ratings") * (4 * padded_width(problem.integer("K")) * stored_bytes(problem) + 12)


def sgd_kernels(**given: Any) -> tuple[KernelSpec, ...]:
    """The kernels of a sweep; ``given`` has parameters, ``check_problem`` and, by name, ``workload``."""
    workload = given.pop("workload")

    def kernel(
        schedule: str,
        template: str,
        doc: str,
        arguments: tuple[Argument, ...],
        teams: Callable[[Config, int], int] = lambda config, count: count,
        **more: Any,
    ) -> KernelSpec:
        return KernelSpec(
            name=f"sgd_{schedule}",
            template="mf/sgd.jinja",
            doc=doc,
            arguments=(*FACTORS, *DATA, *arguments, *_STEP),
            variables=partial(_variables, template),
            launch=lambda problem, config, count, traits: Launch(
                programs.blocks_of(config, teams(config, count)), int(config["block_size"])
            ),
            traffic=_traffic,
            roof=partial(changed_rows, schedule),
            modes=("operator",),
            workload=partial(workload, f"sgd_{schedule}"),
            **given | more,
        )

    def entry(*arguments: Argument) -> tuple[Argument, ...]:
        return (*FACTORS, *DATA, *arguments, *_STEP)

    def steps(config: Config) -> dict[str, tuple[Argument, ...]]:
        if config["barrier"] == "grid":
            return {"whole": (*entry(_CELLS, *_STEPS), *_RANGE)}
        return {"sweep": (*entry(_CELLS), *_RANGE)}

    locks = (*_LISTS, _ITEM_LOCKS)
    near = (Constraint("block_size", _near_rows),)
    changed = HELD, _PER_TEAM, _OPERATOR
    unordered: dict[str, Any] = {
        "teams": lambda config, count: -(-count // int(config["per_team"])),
        "default": _unordered_default,
        "entries": lambda config: {"sweep": (*entry(_N_RATINGS), _OF_TEAM)},
        "program": programs.by_all,
    }
    at_once = Constraint("together", _rows_at_once)
    stepping = (_BARRIER, _PER_UNIT, _OPERATOR)
    meeting = (Constraint("barrier", _one_block), Constraint("blocks_per_unit", _alone))
    return (
        kernel(
            "tiles",
            "steps",
            "a sweep by tiles that share no row: equal to a sweep in the order of its cells, bit for bit",
            (_CELLS, *_STEPS),
            teams=lambda config, count: int(config["tiles"]),
            space=space_of(HELD, _TILES, *stepping, constraints=meeting),
            default=_tiles_default,
            entries=steps,
            program=programs.by_tiles,
        ),
        kernel(
            "steps",
            "steps",
            "a sweep by steps of cells that share no row: equal to a sweep in the order of its cells, bit for bit",
            (_CELLS, *_STEPS),
            space=space_of(HELD, *stepping, constraints=meeting),
            default=_steps_default,
            entries=steps,
            program=programs.by_steps,
        ),
        kernel(
            "blocks",
            "steps",
            "a sweep by blocks of items, in each by steps that share no row: equal to one in that order, bit for bit",
            (_CELLS, *_STEPS, *_HEADS, *_ITEM_BLOCKS, _N_BLOCKS),
            space=space_of(HELD, *stepping, _KEPT, constraints=(*meeting, Constraint("rows_kept", _keeps))),
            default=_item_blocks_default,
            entries=lambda config: (
                {"kept": (*entry(*_STEPS, *_HEADS), *_OF_BLOCK)} if config["rows_kept"] else steps(config)
            ),
            program=programs.by_item_blocks,
        ),
        kernel(
            "locks",
            "locks",
            "a sweep in which rows are locked: equal to a sweep in some order, another one each time",
            locks,
            teams=lambda config, count: int(config["stretches"]) or -(-count // programs.A_LIST),
            space=space_of(_STRETCHES, _TOGETHER, _TRACED, constraints=(at_once,)),
            default=_locks_default,
            entries=lambda config: {"pass": (*entry(*locks), *_PASS)},
            program=programs.by_locks,
        ),
        kernel(
            "nodes",
            "nodes",
            "a sweep in which a team has an item and locks rows of users: equal to a sweep in some order",
            (*_LISTS, *_BY_ITEM),
            space=space_of(HELD, _RETRIES, _TRACED, constraints=near),
            default=_nodes_default,
            entries=lambda config: {"node": (*entry(*_LISTS, *_BY_ITEM), *_NODE_PASS)},
            program=programs.by_nodes,
        ),
        kernel(
            "hybrid",
            "hybrid",
            "a sweep by items, and by locks of both rows where the user was taken: equal to a sweep in some order",
            (*locks, _DEFERRED, *_BY_ITEM),
            space=space_of(HELD, _RETRIES, _TOGETHER, _TRACED, constraints=(*near, at_once)),
            default=_hybrid_default,
            entries=lambda config: {
                "node": (*entry(*locks, _DEFERRED, *_BY_ITEM), *_NODE_PASS),
                "pass": (*entry(*locks), *_PASS),
            },
            program=programs.by_hybrid,
        ),
        kernel(
            "adds",
            "adds",
            "a sweep in which changes are added without waiting: nothing is lost, but rows that are read may be old",
            (_N_RATINGS,),
            space=space_of(*changed, constraints=(Constraint("vector_width", _pairs),)),
            **unordered,
        ),
        kernel(
            "hogwild",
            "hogwild",
            "a sweep in which nobody waits and rows are stored as they come: changes may be lost",
            (_N_RATINGS,),
            space=space_of(*changed),
            **unordered,
        ),
    )
