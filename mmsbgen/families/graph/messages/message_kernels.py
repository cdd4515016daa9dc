"""Rounds of belief propagation: messages of Q states on arcs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import ARCS_OUT, N, real_of
from mmsbgen.families.graph.round_kernels import BLOCK, BLOCKS
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

MOST_STATES = 64
#: Blocks of a launch, each with a row of sums: of rounds, the same on CPUs, and of sums over links.
MOST_BLOCKS, _CPU_BLOCKS, MOST_PAIR_BLOCKS = 2048, 256, 256
#: Places of ``settings``: the tolerance, the most rounds, the share of old messages in new ones, numbers from one
#: vertex's priors to the next's (0: all have the same), the number of links if pairs are summed up (0: they are not),
#: the groups of a blockmodel (0: it is none); then rounds, the last change, the sum of energies.  The logarithms of the
#: groups' shares follow.
TOLERANCE, MOST_ROUNDS, DAMPING, PER_VERTEX, LINKS, GROUPS, ROUNDS, CHANGE, ENERGY, SHARES = range(10)
#: Most states that a GPU has in registers.
_UNROLLED = 16
#: Bytes of links that a block has in local memory.
_TILE_BYTES = 1 << 14

_LANES = Axis("lanes", (1, 4, 8, 32), "work-items that share a vertex, each with some of its arcs")
_MATE = Argument("mate", "u32", "in", "[A] place of the opposite arc")
_LINKS = Argument("links", "u32", "in", "[L, 4] ends of each link, and places of the arcs whose messages they receive")
_COUPLING = Argument(
    "coupling", "real", "in", "[Q, Q] how well neighbours' states go together, symmetric; logarithms if product=max"
)
_PRIORS = Argument("priors", "real", "inout", "[n or 1, Q] logarithms of prior weights")
_RECEIVED = Argument("received", "real", "inout", "[A, Q] log messages, that of an arc with the vertex it leaves")
_SENT = Argument("sent", "real", "inout", "[A, Q] those of the round before; of the next round while it runs")
_BELIEFS = Argument("beliefs", "real", "inout", "[n, Q] logarithms of marginals")
_SLOTS = Argument("slots", "real", "inout", "[2048, 2 + Q] change, energy and sums of marginals, of each block")
_PAIRS = Argument("pairs", "real", "inout", "[256, Q, Q] sums over links, of each block")
_SETTINGS = Argument("settings", "double", "inout", "[9 or 9 + Q] what decides the end, what came of it, log shares")
_STRIDE = Argument("per_vertex", "u32", "scalar", "numbers from one vertex's priors to the next's")
_PER_BLOCK = Argument("per_block", "u32", "scalar", "vertices or links of a block")
_DAMPING = Argument("damping", "real", "scalar", "share of the old message in a new one")
_N_LINKS = Argument("n_links", "u32", "scalar", "links")


def _read(argument: Argument) -> Argument:
    return Argument(argument.name, argument.ctype, "in", argument.doc)


def _lanes(config: Config, problem: Problem, traits: Traits) -> str | None:
    if problem.integer("features") > MOST_STATES:
        return f"messages have at most {MOST_STATES} states"
    block, lanes = int(config["block_size"]), int(config["lanes"])
    if block % lanes:
        return f"a block of {block} is not a whole number of teams of {lanes}"
    size = (block // lanes * problem.integer("features") + block) * _size(problem)
    if size > traits.local_memory:
        return f"beliefs of {block // lanes} vertices take {size} bytes, and local memory has {traits.local_memory}"
    return None


def _size(problem: Problem) -> int:
    return 8 if problem["dtype"] == "float64" else 4


def _default(problem: Problem, traits: Traits) -> Config:
    return {"block_size": 64, "lanes": 4} if traits.kind == "gpu" else {"block_size": 1, "lanes": 1}


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    states, block = problem.integer("features"), int(config["block_size"])
    return {
        "real": real_of(problem),
        "literal": "{!r}f".format,  # of polynomials, which only float has
        "Q": states,
        "best": problem["product"] == "max",
        "T": int(config["lanes"]),
        "teams": block // int(config["lanes"]),
        "tile": min(block, _TILE_BYTES // (2 * states * _size(problem))),
        "entries_each": -(-states * states // block),
        "unrolled": traits.kind == "gpu" and states <= _UNROLLED,
    }


def _shape(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block, most = int(config["block_size"]), MOST_BLOCKS if traits.kind == "gpu" else _CPU_BLOCKS
    return Launch(max(1, min(most, -(-count // (block // int(config["lanes"]))))), block)


def _entries(config: Config) -> Mapping[str, tuple[Argument, ...]]:
    read = (_read(_COUPLING), _read(_PRIORS), _read(_RECEIVED))
    return {
        "messages": (ARCS_OUT[0], _MATE, *read, _SENT, _BELIEFS, _SLOTS, N, _STRIDE, _PER_BLOCK, _DAMPING),
        "pairs": (_LINKS, _COUPLING, _read(_RECEIVED), _read(_BELIEFS), _PAIRS, _N_LINKS, _PER_BLOCK),
    }


def _rounds(on: Launches) -> None:
    """Rounds until no message moves by more than the tolerance; of a blockmodel the field of all vertices moves too."""
    settings, coupling = on.read("settings"), on.read("coupling", on.problem.integer("features"))
    tolerance, most, damping, per_vertex, links, groups = settings[:ROUNDS].tolist()
    log_shares = settings[SHARES : SHARES + int(groups)]
    real, n = coupling.dtype.type, on.count
    (grid,), (block,) = _shape(on.problem, on.config, n, on.traits).shape
    given = {"n": np.uint32(n), "per_vertex": np.uint32(per_vertex), "per_block": np.uint32(-(-n // grid))}
    rounds, change, energy = 0, np.inf, 0.0
    while rounds < most and not change <= tolerance:
        on.launch("messages", grid, block, damping=real(damping), **given)
        on.swap("received", "sent")
        slots = on.read("slots", grid).astype(np.float64)
        change, energy, rounds = float(slots[:, 0].max()), float(slots[:, 1].sum()), rounds + 1
        if groups:
            field = coupling.astype(np.float64) @ slots[:, 2:].sum(axis=0) / n
            on.write("priors", (log_shares - field)[None].astype(real))
    if links:
        on.swap("received", "sent")  # beliefs are of the messages before the last round
        grid = min(MOST_PAIR_BLOCKS, -(-int(links) // block))
        on.launch("pairs", grid, block, n_links=np.uint32(links), per_block=np.uint32(-(-int(links) // grid)))
        on.swap("received", "sent")
    settings[[ROUNDS, CHANGE, ENERGY]] = rounds, change, energy
    on.write("settings", settings)


def messages_kernel(**given: Any) -> KernelSpec:
    """Belief propagation of a pairwise model, or of a blockmodel, in synchronous rounds.

    The message from u to v is ``m(y) ~ sum_x p_u(x) C(x, y) prod_w m_wu(x)``, w the neighbours of u other than v, and
    p_u the priors.  In a blockmodel these are ``log n_x - sum_y C(x, y) B_y``, B the mean belief: what u knows by the
    vertices that it has no link to (Decelle, Krzakala, Moore, Zdeborova 2011).  With ``product=max`` the sum is a
    maximum, and ``coupling`` is logarithms.
    """
    results = (_RECEIVED, _SENT, _BELIEFS, _SLOTS, _PAIRS, _SETTINGS)
    return KernelSpec(
        name="messages",
        template="graph/messages.jinja",
        doc="messages of belief propagation between neighbours, and what vertices believe of their state",
        arguments=(ARCS_OUT[0], _MATE, _LINKS, _COUPLING, _PRIORS, *results),
        space=Space((BLOCK, _LANES), (BLOCKS, Constraint("lanes", _lanes))),
        default=_default,
        variables=_variables,
        launch=_shape,
        entries=_entries,
        program=_rounds,
        **given,
    )
