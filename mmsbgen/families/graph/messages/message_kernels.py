"""Rounds of belief propagation: messages of Q states on arcs; their inputs, a reference and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.graph.declare import ARCS_OUT, N
from mmsbgen.families.graph.inputs import device_rows
from mmsbgen.families.graph.round_kernels import BLOCK
from mmsbgen.graph.arcs import Arcs, arcs_of_pairs
from mmsbgen.kernels.family import Argument, Expected, Judge, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals, teams
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
    size = (block // lanes * problem.integer("features") + block) * reals.real_bytes(problem)
    return teams.too_much_local(size, traits)


def _default(problem: Problem, traits: Traits) -> Config:
    return {"block_size": 64, "lanes": 4} if traits.kind == "gpu" else {"block_size": 1, "lanes": 1}


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    states, block = problem.integer("features"), int(config["block_size"])
    return {
        "real": reals.real_name(problem),
        "literal": "{!r}f".format,  # of polynomials, which only float has
        "Q": states,
        "best": problem["product"] == "max",
        "T": int(config["lanes"]),
        "teams": block // int(config["lanes"]),
        "tile": min(block, _TILE_BYTES // (2 * states * reals.real_bytes(problem))),
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
        space=Space((BLOCK, _LANES), (teams.BLOCK_FITS, teams.splits("lanes"), Constraint("lanes", _lanes))),
        default=_default,
        variables=_variables,
        launch=_shape,
        entries=_entries,
        program=_rounds,
        **given,
    )


Array = NDArray[Any]

#: Rounds of a workload, and how much of an old message stays.
WORKLOAD_ROUNDS, _DAMPED = 2, 0.25


def simple(arcs: Arcs) -> Arcs:
    """The graph with each link once in both directions: without directions, self-loops, parallel links and weights."""
    first, second = arcs.sources.astype(np.int64), arcs.targets.astype(np.int64)
    pairs = first * arcs.n_vertices + second
    if not arcs.directed and arcs.weights is None and not arcs.n_loops and np.all(pairs[1:] > pairs[:-1]):
        return arcs
    apart = first != second
    first, second = (
        np.concatenate([first, second])[np.tile(apart, 2)],
        np.concatenate([second, first])[np.tile(apart, 2)],
    )
    pairs = np.sort(first * arcs.n_vertices + second)
    first, second = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(1, arcs.n_vertices))
    return arcs_of_pairs(first, second, arcs.ids, directed=False, name=arcs.name)


def state_of_messages(
    arcs: Arcs,
    real: Any,
    coupling: Array,
    priors: Array,
    messages: Array,
    *,
    tolerance: float,
    most_rounds: int,
    damping: float = 0.0,
    pairs: bool = False,
    log_shares: Array | None = None,
) -> dict[str, Any]:
    """The arguments beside the graph's.

    Args:
        arcs: A :func:`simple` graph.
        real: Type of the messages.
        coupling: ``[Q, Q]``, symmetric.
        priors: Logarithms, ``[N, Q]``, or ``[1, Q]`` for all vertices.
        messages: Logarithms at the start, ``[A, Q]``.
        tolerance: Rounds end when no message moves by more.
        most_rounds: Most rounds.
        damping: The share of an old message in a new one.
        pairs: Whether pairs of states are summed up over the links.
        log_shares: Of a blockmodel the logarithms of the groups' shares ``[Q]``.
    """
    n, states = arcs.n_vertices, len(coupling)
    # Arcs are ordered by their ends: in the order of the other end each is where its opposite is.
    mate = np.argsort(arcs.targets, kind="stable").astype(np.uint32)
    once = np.flatnonzero(arcs.sources < arcs.targets).astype(np.uint32) if pairs else mate[:0]
    links = np.stack([arcs.sources[once], arcs.targets[once], once, mate[once]], axis=1)
    per_vertex = states if len(priors) > 1 or n == 1 else 0
    shares = [] if log_shares is None else log_shares.tolist()
    settings = [tolerance, most_rounds, damping, per_vertex, len(links), len(shares), 0, 0, 0, *shares]
    return {
        "mate": device_rows(mate),
        "links": device_rows(links),
        "coupling": coupling.astype(real),
        "priors": priors.astype(real),
        "received": device_rows(messages.astype(real)),
        "sent": np.zeros((max(1, arcs.n_arcs), states), real),
        "beliefs": np.zeros((n, states), real),
        "slots": np.zeros((MOST_BLOCKS, 2 + states), real),
        "pairs": np.zeros((MOST_PAIR_BLOCKS if pairs else 1, states, states), real),
        "settings": np.array(settings, np.float64),
    }


@dataclass(frozen=True, eq=False)
class Round:
    """What a round makes, in float64; ``energy`` is the logarithm of the partition function where it changes nothing.

    ``errors`` says how far off messages ``[A, Q]``, beliefs ``[N, Q]`` and energy may be in arithmetic of unit ``eps``.
    """

    messages: Array
    beliefs: Array
    pairs: Array
    change: float
    energy: float
    errors: tuple[Array, Array, float]


def one_round(
    arcs: Arcs,
    coupling: Array,
    priors: Array,
    messages: Array,
    damping: float,
    eps: float,
    off: Array,
    best: bool = False,
) -> Round:
    """A round from log messages ``[A, Q]`` that are off by at most ``off``; ``priors`` are logarithms ``[N, Q]``.

    With ``best`` it maximises over states: ``energy`` is then the logarithm of the largest weight.
    """
    n, owner = arcs.n_vertices, arcs.sources
    mate = np.argsort(arcs.targets, kind="stable")

    def gathered(values: Array) -> Array:
        columns = [np.bincount(owner, column, n) for column in values.T]
        return np.stack(columns, axis=1) if n else values[:0]

    raw = priors + gathered(messages)
    combine = np.maximum if best else np.logaddexp
    log_total = combine.reduce(raw, axis=1, keepdims=True)
    beliefs = raw - log_total
    # Each addition rounds a part of the sum; the logarithm of the total, a mean over states, doubles what is off.
    size = np.abs(priors) + gathered(np.abs(messages))
    one = gathered(off) + eps * (arcs.degrees[:, None] + 4) * (size + 4)
    off_beliefs = one + one.max(axis=1, keepdims=True)
    cavity = beliefs[owner] - messages
    largest = cavity.max(axis=1, keepdims=True)
    if best:
        made = np.max(cavity[:, :, None] + np.log(coupling), axis=1)
        scale = made.max(axis=1, keepdims=True)
    else:
        made = np.log(np.exp(cavity - largest) @ coupling) + largest
        scale = np.logaddexp.reduce(made, axis=1, keepdims=True) - np.log(len(coupling))
    old = messages[mate]
    fresh = made - scale
    new = np.empty_like(messages)
    new[mate] = fresh + damping * (old - fresh)
    # A message moves by at most the spread of what it is made of, times Birkhoff's contraction by the coupling, which
    # a maximum does not have.
    apart = np.log(coupling)[:, None] - np.log(coupling)
    spread = (apart.max(axis=2) - apart.min(axis=2)).max()
    in_cavity = (off_beliefs[owner] + off + eps * (np.abs(cavity) + 1)).max(axis=1, keepdims=True)
    off_new = np.empty_like(messages)
    rounding = eps * (2 * len(coupling) + np.abs(made) + np.abs(scale) + np.abs(largest) + 16)
    off_new[mate] = 2 * (1 if best else np.tanh(spread / 4)) * in_cavity + rounding + damping * off[mate]
    energy = float(log_total.sum() + scale.sum() / 2)
    once = np.flatnonzero(owner < arcs.targets)
    a, b = (np.exp(each - each.max(axis=1, keepdims=True)) for each in (cavity[once], cavity[mate[once]]))
    met = np.einsum("lx,xy,ly->l", a, coupling, b)
    pairs = coupling * (a.T @ (b / met[:, None]))
    change = float(np.abs(fresh - old).max(initial=0))
    off_energy = float(one.max(axis=1).sum() + (in_cavity + rounding.max(axis=1, keepdims=True)).sum() / 2)
    return Round(new, beliefs, pairs, change, energy, (off_new, off_beliefs, off_energy))


def workload_of_messages(arcs: Arcs, real: Any, states: int, best: bool) -> tuple[dict[str, Any], Judge]:
    """Two rounds with random priors and messages, of states that go together to different degrees."""
    rng = np.random.default_rng(arcs.n_vertices)
    uneven = rng.uniform(-0.5, 0.5, (states, states))
    coupling = np.exp(uneven + uneven.T).astype(real).astype(np.float64)
    priors = rng.normal(0, 0.5, (arcs.n_vertices, states)).astype(real).astype(np.float64)
    messages = rng.normal(0, 0.5, (arcs.n_arcs, states)).astype(real).astype(np.float64)
    eps = float(np.finfo(real).eps)
    start = messages
    off = np.zeros_like(messages)
    for _ in range(WORKLOAD_ROUNDS):
        before_off = off
        found = one_round(arcs, coupling, priors, messages, _DAMPED, eps, off, best)
        messages, (off, off_beliefs, off_energy) = found.messages, found.errors
    state = state_of_messages(
        arcs,
        real,
        np.log(coupling) if best else coupling,
        priors,
        start,
        tolerance=0.0,
        most_rounds=WORKLOAD_ROUNDS,
        damping=_DAMPED,
        pairs=not best,
    )
    # A share of a pair is off by the factor that its two ends and the total are.
    ends = arcs.n_arcs and 4 * float((off_beliefs[arcs.sources] + before_off).max())
    marginals = np.exp(found.beliefs)
    off_sums = (marginals * (off_beliefs + eps * (arcs.n_vertices + 8))).sum(axis=0)
    ended = np.array([found.change, found.energy]), np.array([8 * float(off.max(initial=0)), off_energy])
    expected = (
        ("received", Expected(messages, off, name="messages")),
        ("beliefs", Expected(found.beliefs, off_beliefs, name="beliefs")),
        ("pairs", Expected(found.pairs, found.pairs * (ends + eps * (arcs.n_arcs + 64)) + 1e-30, name="pairs")),
        ("slots", Expected(marginals.sum(axis=0), off_sums, name="sums of marginals")),
        ("settings", Expected(*ended, name="change and energy")),
    )

    def judge(got: Any, config: Any) -> str | None:
        for name, each in expected:
            array = got[name]
            if name == "pairs" and best:
                continue
            if name == "received":
                array = array[: arcs.n_arcs]
            elif name == "settings":
                array = array[[CHANGE, ENERGY]]
            elif name != "beliefs":  # of each block
                array = array.sum(axis=0, dtype=np.float64)
                array = array[2:] if name == "slots" else array
            if (wrong := each.errors(array)) is not None:
                return wrong
        return None

    return state, judge
