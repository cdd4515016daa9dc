"""Algorithms in rounds by few launches, each of many rounds: entry points, and the program that launches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import NONE, Rounds
from mmsbgen.families.graph.inputs import COUNTS
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.space import Config

#: Limits of one launch, so that the host can stop it: rounds, and vertices of frontiers in thousands.
MOST_ROUNDS, MOST_WORK = 1 << 16, 1 << 17

#: As in the template: the first place that a launch leaves for the next, and what lies there; arrivals at barriers.
_CONTROL, _ARRIVED = 8, 32
_LEFT = ("what", "size", "hubs", "step", "turned", "kept_turned", "kept", "k", "arcs", "left")
_DECIDE, _PUSH, _PULL, _REFILL, _END = range(5)
_DOES = {"rounds": (_PUSH, _PULL, _REFILL), "pushes": (_PUSH,), "pulls": (_PULL,), "refills": (_REFILL,)}
_NAMES = {_PUSH: "PUSH", _PULL: "PULL", _REFILL: "REFILL"}
#: The place of the first round's least number.
_TALLY_LOWEST = 96 + 6
_LOW, _LIMIT = 3, 4

_FIRST = ("what", "size", "hubs", "step", "kept", "k", "arcs", "left")


def fused_entries(a: Rounds, config: Config) -> Mapping[str, tuple[str, ...]]:
    """What the rounds of each entry point do, in the words of the template."""
    able: tuple[int, ...] = (_PUSH,) if config.get("direction") != "pull" else ()
    able += (_PULL,) if config.get("direction", "push") != "push" else ()
    able += (_REFILL,) if a.refill else ()
    names = ("rounds",) if config["loop"] == "whole" else ("pushes", "pulls", "refills")
    does = {name: tuple(_NAMES[one] for one in _DOES[name] if one in able) for name in names}
    return {name: those for name, those in does.items() if those}


def scalars(a: Rounds) -> tuple[Argument, ...]:
    """The scalar arguments of every entry point."""
    found = [(f"first_{name}", "u32") for name in _FIRST]
    found += [("n", "u32"), ("most_rounds", "u32"), ("most_work", "u32")]
    if a.refill == "window":
        found += [("first_low", "real"), ("first_limit", "real"), ("width", "real")]
    return tuple(Argument(name, ctype, "scalar", "") for name, ctype in found)


def launch_fused(on: Launches, a: Rounds, state: dict[str, int], width: np.floating[Any] | None) -> None:
    """Launch rounds until none is left.

    Args:
        on: The call.
        a: The algorithm.
        state: Numbers at the start: ``size``, ``step``, ``kept``, ``arcs`` and ``left``.
        width: The width of a window of distances, if the algorithm has windows.
    """
    entries = fused_entries(a, on.config)
    block = int(on.config["block_size"])
    grid = on.traits.compute_units * int(on.config["blocks_per_unit"]) if on.traits.dialect == "cuda" else 1
    now = dict.fromkeys(_LEFT, 0) | state | {"what": _DECIDE}
    zeroed = np.zeros(COUNTS, np.uint32)
    zeroed[_TALLY_LOWEST] = NONE
    windows: dict[str, Any] = {}
    if width is not None:
        windows = {"first_low": width.dtype.type(0), "first_limit": width, "width": width}
    while now["what"] != _END:
        entry = next(iter(entries))
        if now["what"] != _DECIDE:
            entry = next(name for name in entries if now["what"] in _DOES[name])
        numbers = {f"first_{name}": now[name] for name in _FIRST}
        numbers |= {"n": on.count, "most_rounds": MOST_ROUNDS, "most_work": MOST_WORK}
        on.write("counts", zeroed)
        if width is not None:
            on.write("least", np.full(3, np.inf, width.dtype))
        # Devices differ in how many blocks they hold, and any number of them does.
        blocks = min(grid, on.resident_blocks(entry, block)) if grid > 1 else 1
        on.launch_cooperative(
            entry, blocks, block, **windows, **{key: np.uint32(each) for key, each in numbers.items()}
        )
        counts = on.read("counts", _ARRIVED + 1).tolist()
        on.barriers += counts[_ARRIVED] // blocks * (blocks > 1)
        now = dict(zip(_LEFT, counts[_CONTROL:], strict=False))
        if now["turned"]:
            on.swap("queue", "next")
        if now["kept_turned"]:
            on.swap("kept", "kept_next")
        if width is not None and now["what"] != _END:
            least = on.read("least")
            windows |= {"first_low": least[_LOW], "first_limit": least[_LIMIT]}
