"""The kernels of algorithms in rounds: entry points, axes, and the program that launches them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import BFS, CORES, NONE, SSSP, Rounds
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

__all__ = ["BLOCK", "PER_ITEM", "real_of", "rounds_entries", "rounds_kernel", "shape"]

#: Places of ``counts``, as in the template.
NEXT, ARCS, KEPT, STEP, ODD, LEAST_LEFT, TOTAL = range(7)
#: A round that pulls becomes one that pushes when fewer than one vertex in so many is in the frontier.
_TO_PUSH = 18
#: Up to so many cores, one work-item without atomics is faster than all with them.
_FEW_UNITS = 4

BLOCK = Axis("block_size", (1, 8, 64, 256), "work-items of a block")
PER_ITEM = Axis("per_item", (1, 4, 16, 64, 256, 1024), "vertices in a row that a work-item takes")
_WALK = Axis("walk", (0, 64, 1024, 16384, 1 << 30), "largest frontier that one work-item handles alone")
_FRONTIER = Axis("frontier", ("queue", "scan"), "whether rounds list the next frontier, or a scan finds it")
_DIRECTION = Axis("direction", ("push", "auto", "pull"), "arcs out of the frontier, or arcs into what is left")
_TO_PULL = Axis("to_pull", (4, 15, 60), "a round pulls if its arcs are more than this fraction of those left")
_WIDTH = Axis("width", (0, 1, 4, 16), "width of a window of distances in mean weights; 0: one window has all")

_GRAPH = (
    Argument("offsets", "u32", "in", "[n + 1] first arc of each vertex"),
    Argument("targets", "u32", "in", "[A] vertex that each arc leads to"),
)
_WEIGHTS = Argument("weights", "real", "in", "[A] weight of each arc")
_GRAPH_IN = (
    Argument("in_offsets", "u32", "in", "[n + 1] first arc into each vertex"),
    Argument("sources", "u32", "in", "[A] vertex that each of them comes from"),
)
_QUEUE = Argument("queue", "u32", "inout", "[n] the frontier")
_NEXT = Argument("next", "u32", "inout", "[n] the next frontier")
_COUNTS = Argument("counts", "u32", "inout", "[8] sizes of lists")
_KEPT = Argument("kept", "u32", "inout", "[n] vertices that later frontiers come from")
_KEPT_NEXT = Argument("kept_next", "u32", "inout", "[n] those that stay")
_PENDING = Argument("pending", "u32", "inout", "[n] whether a vertex is in kept")
_LEAST = Argument("least", "real", "inout", "[1] least distance in kept")
_MEAN = Argument("mean_weight", "real", "in", "[1]")


def _scalar(name: str, ctype: str, doc: str) -> Argument:
    return Argument(name, ctype, "scalar", doc)


_SIZE, _N, _STEP = (
    _scalar("size", "u32", "vertices of the list"),
    _scalar("n", "u32", "vertices"),
    _scalar("step", "u32", "this round"),
)
_LIMIT = _scalar("limit", "real", "end of the window of distances")
_K = _scalar("k", "u32", "core number of the vertices of this round")


def real_of(problem: Problem) -> str:
    """The C type of real numbers."""
    return "double" if problem.get("dtype") == "float64" else "float"


def shape(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """Blocks for ``count`` vertices."""
    block = int(config["block_size"])
    return Launch(max(1, -(-count // (block * int(config["per_item"])))), block)


def _lists(a: Rounds) -> tuple[Argument, ...]:
    """The list that an empty frontier is refilled from."""
    return {"": (), "window": (_KEPT, _PENDING), "least": (_KEPT,)}[a.refill]


def _arguments(a: Rounds) -> tuple[Argument, ...]:
    more = {"": (), "window": (_KEPT, _KEPT_NEXT, _PENDING, _LEAST, _MEAN), "least": (_KEPT, _KEPT_NEXT)}[a.refill]
    weights = (_WEIGHTS,) if a.weighted else ()
    return (*_GRAPH, *weights, *(_GRAPH_IN if a.pulls else ()), *a.state, _QUEUE, _NEXT, _COUNTS, *more)


def rounds_entries(a: Rounds, config: Config) -> Mapping[str, tuple[Argument, ...]]:
    """The entry points of a configuration with their arguments."""
    graph = (*_GRAPH, _WEIGHTS) if a.weighted else _GRAPH
    base = (*graph, *a.state, _QUEUE, _NEXT, _COUNTS)
    given = {"": (_STEP,), "window": (_STEP, _LIMIT), "least": (_STEP, _K)}[a.refill]
    first = {"": (), "window": (_scalar("first_limit", "real", "end of the window"), _scalar("width", "real", "")),
             "least": (_scalar("first_k", "u32", "core number to begin with"),)}[a.refill]  # fmt: skip
    kept = (*_lists(a), _scalar("size_kept", "u32", "vertices in kept")) if a.refill else ()
    found: dict[str, tuple[Argument, ...]] = {}
    if config.get("direction") != "pull":
        found["push"] = (*base, *_lists(a), *given, _SIZE)
    if config.get("direction") in ("auto", "pull"):
        found["pull"] = (*_GRAPH[:1], *_GRAPH_IN, *a.state, _NEXT, _COUNTS, _STEP, _N)
    if config["frontier"] == "scan" and a.active and "push" in found:
        found["collect"] = (*_GRAPH[:1], *a.state, _NEXT, _COUNTS, _STEP, _N)
    if a.refill == "window":
        lists = (_KEPT, _KEPT_NEXT, _PENDING) if config["frontier"] == "queue" else ()
        low = _scalar("low", "real", "begin of the window")
        found["split"] = (*a.state, _NEXT, _COUNTS, *lists, _LEAST, _STEP, low, _LIMIT, _SIZE)
    if a.refill == "least":
        found["peel"] = (*a.state, _NEXT, _COUNTS, _KEPT, _KEPT_NEXT, _K, _SIZE)
    more = (_LEAST,) if a.refill == "window" else ()
    limits = (_scalar("first_step", "u32", "this round"), _scalar("most", "u32", "largest frontier"), _SIZE)
    found["walk"] = (*base, *kept, *more, *limits, *first)
    return found


class _Host:
    """The loop over rounds on the host."""

    def __init__(self, on: Launches, a: Rounds) -> None:
        self.on, self.a, self.n = on, a, on.count
        self.block = int(on.config["block_size"])
        self.queued = on.config["frontier"] == "queue"
        counts = on.read("counts")
        self.size, self.kept, self.step, self.total = (int(counts[at]) for at in (NEXT, KEPT, STEP, TOTAL))
        self.arcs, self.left = int(counts[ARCS]), self.total
        self.pulling = False
        self.k, self.began = 0, 0
        self.real = np.float64 if real_of(on.problem) == "double" else np.float32
        if a.refill == "window":
            mean, times = float(on.read("mean_weight")[0]), int(on.config["width"])
            self.width = self.real(mean * times if times and mean > 0 else np.inf)
            self.limit = self.width

    def launch(self, entry: str, count: int, **scalars: np.generic) -> None:
        per_item = 1 if entry == "walk" else int(self.on.config["per_item"])
        self.on.launch(entry, -(-count // (self.block * per_item)), self.block, **scalars)

    def counted(self) -> Any:
        """The sizes that the launches so far leave, after which the frontier is in ``queue``."""
        counts = self.on.read("counts")
        self.size = int(counts[NEXT])
        self.kept = int(counts[KEPT])
        self.arcs = int(counts[ARCS])
        self.left = max(0, self.left - self.arcs)
        return counts

    def cleared(self, kept: int) -> None:
        self.on.write("counts", np.array([0, 0, kept, 0, 0, NONE], np.uint32))

    def run(self) -> None:
        while True:
            most = int(self.on.config["walk"])
            refills = self.a.refill == "least" or (self.a.refill == "window" and self.queued)
            alone = refills and 0 < self.kept <= most
            if self.size == 0 and not alone and not self.refilled():
                return
            if self.size <= most:
                self.walk()
            else:
                self.round()

    def walk(self) -> None:
        given: dict[str, np.generic] = {}
        if self.a.refill == "window":
            given = {"first_limit": self.limit, "width": self.width}
        elif self.a.refill == "least":
            given = {"first_k": np.uint32(self.k)}
        if self.a.refill:
            given["size_kept"] = np.uint32(self.kept)
        most = int(self.on.config["walk"])
        numbers = {"first_step": self.step, "most": most, "size": self.size}
        self.launch("walk", 1, **given, **{name: np.uint32(number) for name, number in numbers.items()})
        counts = self.counted()
        self.step = int(counts[STEP])
        if counts[ODD]:
            self.on.swap("queue", "next")
        if self.a.refill == "window":
            self.limit = self.on.read("least")[0]
        elif self.a.refill == "least":
            self.k, self.began = int(counts[LEAST_LEFT]), 1

    def round(self) -> None:
        self.cleared(self.kept)
        step, n = np.uint32(self.step), np.uint32(self.n)
        direction = self.on.config.get("direction", "push")
        if direction == "auto":
            if self.pulling:
                self.pulling = self.size * _TO_PUSH > self.n
            else:
                self.pulling = self.arcs * int(self.on.config["to_pull"]) > self.left
        if direction == "pull" or self.pulling:
            self.launch("pull", self.n, step=step, n=n)
        else:
            given: dict[str, np.generic] = {}
            if self.a.refill == "window":
                given = {"limit": self.limit}
            elif self.a.refill == "least":
                given = {"k": np.uint32(self.k)}
            self.launch("push", self.size, step=step, size=np.uint32(self.size), **given)
            if not self.queued and self.a.active:
                self.launch("collect", self.n, step=np.uint32(self.step + 1), n=n)
            elif not self.queued:
                self.peel()
        self.counted()
        self.on.swap("queue", "next")
        self.step += 1

    def refilled(self) -> bool:
        """Whether there is a frontier again."""
        if self.a.refill == "window":
            return self.window()
        return self.a.refill == "least" and self.least()

    def window(self) -> bool:
        low, size = self.limit, self.kept if self.queued else self.n
        if size == 0 or np.isinf(low):
            return False
        self.limit = low + self.width
        while True:
            if not self.limit > low:
                self.limit = np.nextafter(low, self.real(np.inf))
            self.cleared(0)
            self.on.write("least", np.full(1, np.inf, self.real))
            self.launch("split", size, step=np.uint32(self.step), low=low, limit=self.limit, size=np.uint32(size))
            self.counted()
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

    def peel(self) -> None:
        self.cleared(0)
        if self.kept == 0:
            return
        self.launch("peel", self.kept, k=np.uint32(self.k), size=np.uint32(self.kept))
        self.on.swap("kept", "kept_next")

    def least(self) -> bool:
        self.k += self.began
        self.began = 1
        while self.kept:
            self.peel()
            counts = self.counted()
            if self.size:
                self.on.swap("queue", "next")
                return True
            self.k = int(counts[LEAST_LEFT])
        return False


def _program(a: Rounds, on: Launches) -> None:
    _Host(on, a).run()


def _walks_alone(config: Config, problem: Problem, traits: Traits) -> str | None:
    """One work-item alone needs no other axis; each such configuration is there once."""
    if config["walk"] != _WALK.values[-1]:
        return None
    odd = [name for name, value in _ALONE.items() if config.get(name, value) != value]
    return f"one work-item does all: {odd[0]} must be {_ALONE[odd[0]]}" if odd else None


_ALONE: dict[str, Any] = {"block_size": 1, "per_item": 1, "frontier": "queue", "direction": "push", "to_pull": 15}


def _direction(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["direction"] != "auto" and config["to_pull"] != 15:
        return "only direction=auto changes it: to_pull must be 15"
    if config["direction"] == "pull" and config["frontier"] == "scan":
        return "rounds that pull list the frontier: frontier must be queue"
    return None


def _blocks(config: Config, problem: Problem, traits: Traits) -> str | None:
    if int(config["block_size"]) > traits.max_block_size:
        return f"the device's blocks have at most {traits.max_block_size} work-items"
    return None


BLOCKS = Constraint("block_size", _blocks)


def _default(a: Rounds, problem: Problem, traits: Traits) -> Config:
    gpu = traits.kind == "gpu"
    found: dict[str, Any] = {
        "block_size": 64 if gpu else 1,
        "per_item": 1 if gpu else 64,
        "walk": 64 if gpu else 1024,
        "frontier": "queue",
    }
    if a.pulls:
        found |= {"direction": "auto", "to_pull": 15}
    if a.refill == "window":
        found["width"] = 4 if gpu else 1
    if a.refill and not gpu and traits.compute_units <= _FEW_UNITS:
        found |= {"walk": _WALK.values[-1], "per_item": 1}
    return found


def rounds_kernel(name: str, doc: str, a: Rounds, **given: Any) -> KernelSpec:
    """The kernel of an algorithm in rounds; ``given`` are the other fields of its declaration."""
    axes = [BLOCK, PER_ITEM, _WALK, _FRONTIER]
    constraints = [BLOCKS, Constraint("walk", _walks_alone)]
    if a.pulls:
        axes += [_DIRECTION, _TO_PULL]
        constraints.append(Constraint("direction", _direction))
    if a.refill == "window":
        axes.append(_WIDTH)
    return KernelSpec(
        name=name,
        template="graph/rounds.jinja",
        doc=doc,
        arguments=_arguments(a),
        space=Space(tuple(axes), tuple(constraints)),
        default=partial(_default, a),
        variables=lambda problem, config, traits: {
            "a": a,
            "real": real_of(problem),
            "per_item": int(config["per_item"]),
        },
        launch=shape,
        entries=partial(rounds_entries, a),
        program=partial(_program, a),
        **given,
    )


#: The declared algorithms in rounds by the names of their kernels.
ROUNDS = {"bfs": BFS, "sssp": SSSP, "cores": CORES}
