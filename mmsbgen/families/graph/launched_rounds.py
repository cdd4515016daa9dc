"""Algorithms in rounds by a loop of launches, or by few launches, each of many rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import NONE, Rounds
from mmsbgen.families.graph.inputs import COUNTS
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals
from mmsbgen.kernels.space import Config

#: Limits of one launch, so that the host can stop it: rounds, and vertices of frontiers in thousands.
MOST_ROUNDS, _MOST_FUSED = 1 << 16, 1 << 17

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
        numbers |= {"n": on.count, "most_rounds": MOST_ROUNDS, "most_work": _MOST_FUSED}
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


#: Places of ``counts``, as in the template.
NEXT, ARCS, KEPT, STEP, ODD, LEAST_LEFT, TOTAL, OVERFLOW = range(8)
#: A round that pulls becomes one that pushes when fewer than one vertex in so many is in the frontier.
_TO_PUSH = 18
#: Rounds, and thousands of vertices, that one work-item takes in a launch, so that the host can stop it.
MOST_WORK = 1 << 14
#: Most vertices of a work-item's bin.
CAPACITY = 64
#: Most blocks for each compute unit that share arcs.
SHARING = 16


class LaunchedRounds:
    """The loop over rounds on the host: a launch for most of them, one for many small ones."""

    def __init__(self, on: Launches, a: Rounds) -> None:
        self.on, self.a, self.n = on, a, on.count
        self.block = int(on.config["block_size"])
        self.queued, self.bins = on.config["frontier"] != "scan", on.config["frontier"] == "bins"
        self.per_item = int(on.config["per_item"])
        counts = on.read("counts")
        self.size, self.kept, self.step, self.total = (int(counts[at]) for at in (NEXT, KEPT, STEP, TOTAL))
        self.arcs, self.left = int(counts[ARCS]), self.total
        if on.config["frontier"] == "queue" and a.refill == "least" and self.size:
            self.kept = 0  # what is not removed with the given frontier need not be told apart
        if on.config["team"] == "merge":
            on.room("ends", self.n + -(-self.n // (self.block * self.per_item)), np.uint32)
        self.pulling = False
        self.k, self.began = 0, 0
        self.real = reals.real_type(on.problem)
        if a.refill == "window":
            mean, times = float(on.read("mean_weight")[0]), int(on.config["width"])
            self.width = self.real(mean * times if times and mean > 0 else np.inf)
            self.limit = self.width

    def _launch(self, entry: str, count: int, **scalars: np.generic) -> None:
        per_item = 1 if entry in ("walk", "concatenate") else self.per_item
        self.on.launch(entry, -(-count // (self.block * per_item)), self.block, **scalars)

    def _counted(self) -> Any:
        """The sizes that the launches so far leave, after which the frontier is in ``queue``."""
        counts = self.on.read("counts")
        self.size = int(counts[NEXT])
        self.kept = int(counts[KEPT])
        self.arcs = int(counts[ARCS])
        self.left = max(0, self.left - self.arcs)
        return counts

    def _cleared(self, kept: int) -> None:
        self.on.write("counts", np.array([0, 0, kept, 0, 0, NONE, self.total, 0], np.uint32))

    def run(self) -> None:
        """Launch rounds until none is left."""
        if self.on.config["loop"] != "launches":
            sizes = {"size": self.size, "step": self.step, "kept": self.kept, "arcs": self.arcs, "left": self.left}
            launch_fused(self.on, self.a, sizes, self.width if self.a.refill == "window" else None)
            return
        while True:
            most = int(self.on.config["walk"])
            refills = self.a.refill == "least" or (self.a.refill == "window" and self.queued)
            alone = refills and 0 < self.kept <= most
            if self.size == 0 and not alone and not self._refilled():
                return
            if self.size <= most:
                self._walk()
            else:
                self._round()

    def _walk(self) -> None:
        given: dict[str, np.generic] = {}
        if self.a.refill == "window":
            given = {"first_limit": self.limit, "width": self.width}
        elif self.a.refill == "least":
            given = {"first_k": np.uint32(self.k)}
        if self.a.refill:
            given["size_kept"] = np.uint32(self.kept)
        most = int(self.on.config["walk"])
        numbers = {"first_step": self.step, "most": most, "size": self.size}
        numbers["most_work"] = MOST_WORK
        self._launch("walk", 1, **given, **{name: np.uint32(number) for name, number in numbers.items()})
        counts = self._counted()
        self.step = int(counts[STEP])
        if counts[ODD]:
            self.on.swap("queue", "next")
        if self.a.refill == "window":
            self.limit = self.on.read("least")[0]
        elif self.a.refill == "least":
            self.k, self.began = int(counts[LEAST_LEFT]), 1

    def _round(self) -> None:
        self._cleared(self.kept)
        step, n = np.uint32(self.step), np.uint32(self.n)
        direction = self.on.config.get("direction", "push")
        if direction == "auto":
            if self.pulling:
                self.pulling = self.size * _TO_PUSH > self.n
            else:
                self.pulling = self.arcs * int(self.on.config["to_pull"]) > self.left
        pulls = direction == "pull" or self.pulling
        given: dict[str, np.generic] = {}
        if self.a.refill == "window":
            given = {"limit": self.limit}
        elif self.a.refill == "least":
            given = {"k": np.uint32(self.k)}
        given["step"] = step
        blocks = self._blocks_of_arcs() if self.on.config["team"] == "merge" and not pulls else 0
        n_bins = blocks * self.block or -(-(self.n if pulls else self.size) // self.per_item)
        if self.bins:
            given["stride"] = np.uint32(min(CAPACITY + 1, self.n // n_bins))
        if pulls:
            self._launch("pull", self.n, n=n, **given)
        elif blocks:
            size = np.uint32(self.size)
            self._launch("measure", self.size, n=n, size=size)
            self.on.launch("carry", 1, self.block, n=n, size=size)
            self.on.launch("push", blocks, self.block, n=n, size=size, **given)
        else:
            self._launch("push", self.size, size=np.uint32(self.size), **given)
        if self.bins:
            if given["stride"]:
                self._launch("concatenate", n_bins, n_bins=np.uint32(n_bins), **given)
            counts = self.on.read("counts")
            scans = bool(counts[OVERFLOW])
            if scans:
                self._cleared(int(counts[KEPT]))
        else:
            scans = not (self.queued or pulls)
        if scans and self.a.active:
            self._launch("collect", self.n, step=np.uint32(self.step + 1), n=n)
        elif scans:
            self._peel()
        self._counted()
        if scans or not self.bins:
            self.on.swap("queue", "next")
        self.step += 1

    def _blocks_of_arcs(self) -> int:
        """Blocks that share the arcs of the frontier, of which as many are expected as of any vertices."""
        arcs, least = self.size * self.total // self.n, self.block * self.per_item
        return min(self.on.traits.compute_units * SHARING, arcs // least + 1)

    def _refilled(self) -> bool:
        """Whether there is a frontier again."""
        if self.a.refill == "window":
            return self._window()
        return self.a.refill == "least" and self._least()

    def _window(self) -> bool:
        low, size = self.limit, self.kept if self.queued else self.n
        if size == 0 or np.isinf(low):
            return False
        self.limit = low + self.width
        while True:
            if not self.limit > low:
                self.limit = np.nextafter(low, self.real(np.inf))
            self._cleared(0)
            self.on.write("least", np.full(1, np.inf, self.real))
            self._launch("split", size, step=np.uint32(self.step), low=low, limit=self.limit, size=np.uint32(size))
            self._counted()
            if self.queued:
                self.on.swap("kept", "kept_next")
                size = self.kept
            if self.size:
                self.on.swap("queue", "next")
                return True
            low = self.on.read("least")[0]
            if np.isinf(low):
                return False
            self.limit = low + self.width

    def _peel(self) -> None:
        self._cleared(0)
        if self.kept == 0:
            return
        self._launch("peel", self.kept, k=np.uint32(self.k), size=np.uint32(self.kept))
        self.on.swap("kept", "kept_next")

    def _least(self) -> bool:
        self.k += self.began
        self.began = 1
        while self.kept:
            self._peel()
            counts = self._counted()
            if self.size:
                self.on.swap("queue", "next")
                return True
            self.k = int(counts[LEAST_LEFT])
        return False
