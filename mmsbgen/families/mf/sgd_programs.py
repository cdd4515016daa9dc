"""The launches of a sweep of stochastic gradient descent, by schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.space import Config

#: Ratings of a row under way at once, at most, and these times the step.  They add up changes from one old value: from
#: 2 on, the bias of the row overshoots by more than it was off.
_OF_A_ROW, _OVERSHOOT = 32, 0.64
#: Ratings of a list at random of a work-item of a processor, and at least of a team of a GPU.
A_LIST, A_FEW = 1024, 4
#: Steps of a launch: the barrier of the grid counts arrivals in 32 bits.
_AT_ONCE = 1 << 16


def blocks_of(config: Config, teams: int) -> int:
    """The blocks that have so many teams."""
    return max(1, -(-teams // (int(config["block_size"]) // int(config["team"]))))


def ratings_of_team(least: int, count: int, degree: int, teams: int, step: float) -> int:
    """Ratings that a team takes one after another, so that few of a row are under way at once.

    Args:
        least: What the configuration asks for.
        count: All ratings.
        degree: Those of the row that has most.
        teams: So many are under way at once otherwise.
        step: Of the sweep.
    """
    together = max(1, int(min(_OF_A_ROW, _OVERSHOOT / step))) if step > 0 else _OF_A_ROW
    return max(least, -(-degree // together)) if teams * degree > together * count else least


def by_all(on: Launches) -> None:
    """A launch for all ratings."""
    block, per_team = int(on.config["block_size"]), int(on.config["per_team"])
    teams = -(-on.count // per_team)
    if on.traits.dialect == "cuda":
        teams = min(teams, on.resident_blocks("sweep", block) * (block // int(on.config["team"])))
    per_team = ratings_of_team(per_team, on.count, on.problem.integer("degree"), teams, float(on.scalar("step")))
    on.launch("sweep", blocks_of(on.config, -(-on.count // per_team)), block, per_team=np.uint32(per_team))


def by_tiles(on: Launches) -> None:
    """The steps of tiles."""
    tiles = int(on.config["tiles"])
    _stepped(on, np.arange(0, tiles * tiles + 1, tiles))


def by_steps(on: Launches) -> None:
    """The steps that are given."""
    _stepped(on, on.read("steps", on.count + 1).astype(np.int64))


def by_item_blocks(on: Launches) -> None:
    """The steps that are given; or launches for each block of items, whose rows teams keep over steps of it."""
    kept, block = int(on.config["rows_kept"]), int(on.config["block_size"])
    if not kept:
        by_steps(on)
        return
    ends = int(on.scalar("n_blocks")) + 1
    heads, steps = (on.read(name, ends).tolist() for name in ("first_heads", "first_steps"))
    for first, last, step, end in zip(heads[:-1], heads[1:], steps[:-1], steps[1:], strict=True):
        grid = blocks_of(on.config, -(-(last - first) // kept)) if on.traits.dialect == "cuda" else 1
        for begin in range(step, end, _AT_ONCE):
            given = {"first": first, "size": last - first, "first_step": begin, "n_steps": min(_AT_ONCE, end - begin)}
            on.write("arrived", np.zeros(1, np.uint32))
            on.launch_cooperative("kept", grid, block, **{name: np.uint32(value) for name, value in given.items()})
            on.barriers += given["n_steps"] * (grid > 1)


def _stepped(on: Launches, steps: NDArray[np.int64]) -> None:
    block, sizes = int(on.config["block_size"]), np.diff(steps)
    if on.config["barrier"] == "launch":
        for first, size in zip(steps[:-1].tolist(), sizes.tolist(), strict=True):
            on.launch("sweep", blocks_of(on.config, size), block, first=np.uint32(first), size=np.uint32(size))
        return
    grid = 1
    if on.traits.dialect == "cuda":
        wanted = min(
            blocks_of(on.config, int(sizes.max())), on.traits.compute_units * int(on.config["blocks_per_unit"])
        )
        grid = max(1, min(wanted, on.resident_blocks("whole", block)))
    for first in range(0, sizes.size, _AT_ONCE):
        on.write("arrived", np.zeros(1, np.uint32))
        size = min(_AT_ONCE, sizes.size - first)
        on.launch_cooperative("whole", grid, block, first=np.uint32(first), size=np.uint32(size))
        on.barriers += size * (grid > 1)


def _left(on: Launches) -> int:
    """The ratings that the launches so far have left; they are counted anew then."""
    size = int(on.read("counts", 1)[0])
    on.write("counts", np.zeros(1, np.uint32))
    return size


def _locked(on: Launches, size: int, teams: int, *, listed: bool) -> None:
    """Launches in which teams go over lists of their own until nothing is left: on a GPU, the first does all."""
    per_team, source, left = -(-size // teams), int(listed), size
    while left:
        given = {"source": np.uint32(source), "size": np.uint32(size), "per_team": np.uint32(per_team)}
        on.launch("pass", blocks_of(on.config, -(-size // per_team)), int(on.config["block_size"]), **given)
        left, source = 0 if on.traits.kind == "gpu" else _left(on), 2


def _teams(on: Launches, size: int) -> int:
    """As many as are resident, or fewer that have some ratings each."""
    if on.traits.dialect != "cuda":
        return -(-size // A_LIST)
    block = int(on.config["block_size"])
    return max(1, min(on.resident_blocks("pass", block) * (block // int(on.config["team"])), -(-size // A_FEW)))


def by_locks(on: Launches) -> None:
    """A launch for all ratings."""
    on.write("counts", np.zeros(2, np.uint32))
    _locked(on, on.count, int(on.config["stretches"]) or _teams(on, on.count), listed=False)


def _node_pass(on: Launches, *, first: bool) -> int:
    given = {"all": np.uint32(first), "n_items": np.uint32(on.count)}
    on.launch("node", blocks_of(on.config, on.count), int(on.config["block_size"]), **given)
    return _left(on)


def by_nodes(on: Launches) -> None:
    """Passes over items until no rating is left."""
    on.write("counts", np.zeros(2, np.uint32))
    left = _node_pass(on, first=True)
    while left:
        left = _node_pass(on, first=False)


def by_hybrid(on: Launches) -> None:
    """A pass over items, then a launch for the ratings whose users were taken."""
    on.write("counts", np.zeros(2, np.uint32))
    left = _node_pass(on, first=True)
    on.swap("waiting", "deferred")
    if left:
        _locked(on, left, _teams(on, left), listed=True)
