"""What an algorithm in rounds declares, and the algorithms that are declared."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from mmsbgen.base.errors import InputError
from mmsbgen.kernels.family import Argument

#: "No level", "no core yet": the largest 32-bit number, as in the templates.
NONE = 0xFFFFFFFF
#: Arguments of several kernels.
ARCS_OUT = (
    Argument("offsets", "u32", "in", "[n + 1] first arc of each vertex"),
    Argument("targets", "u32", "in", "[A] vertex that each arc leads to"),
)
ARCS_IN = (
    Argument("in_offsets", "u32", "in", "[n + 1] first arc into each vertex"),
    Argument("sources", "u32", "in", "[A] vertex that each of them comes from"),
)
IN_WEIGHTS = Argument("in_weights", "real", "in", "[A] weight of each arc in; [1] without weights")
N = Argument("n", "u32", "scalar", "vertices")
STEP = Argument("step", "u32", "scalar", "this round")
#: Names in kernels that no array of a declaration may have.
_WORDS = re.compile(
    r"(?:first|sent)(?:_\w+|\d*)|n_(?:bins?|blocks|here|hubs|kept|mine|near_list|there)|"
    + "all_teams alone arc arcs arcs_left arrivals arrived at base before begin begin_of bin block coming "
    "counter counts degree degree_of_u each end ends few found fresh got here high i item k kept_parity "
    "kept_turned lane last list low me middle mine most most_rounds most_work n nanoseconds near_list next now "
    "of_all offsets old other owner parity part parts queue reach released round size skipped step stride sums "
    "take tally targets team there those total turn turn_of_tally turned u until v vertex warp weights what "
    "work".replace(" ", "|")
)


@dataclass(frozen=True)
class Rounds:
    """An algorithm in rounds: those vertices that changed in the last round send updates along their arcs.

    Texts are expressions of C, the same in both languages.  An arc leads from ``v`` to ``u`` and is at place ``at``;
    ``step`` counts rounds.

    Attributes:
        state: Arrays with a value for each vertex.  With "min", "max" and "or" one is ``stamp``, u32: the last round
            that a vertex was put into the frontier for.
        target: The array that updates change.
        sends: What ``v`` sends, evaluated once a vertex.
        compute: The update of one arc, from what was sent (``sent``).
        combine: How updates of one vertex combine:
            "any": all are equal, and one of them replaces NONE;
            "min", "max": the least, or largest, stays: of u32, or of real numbers >= 0, whose bits are in their order;
            "or": bits that one of them has (of u32, or of u64 where the device has such atomics);
            "sum": they are added up; ``worth`` and ``crossed`` then say which vertex the next round begins with.
        active: Whether ``v`` changed in the last round, for frontiers that are found by a scan.
        worth: Whether an update may still matter to ``u``.
        crossed: Whether the update that found the value ``old`` puts ``u`` into the next frontier: true of one update.
        enter: A statement for ``u`` when it enters the frontier.
        refill: What comes when the frontier is empty: the end; for "min" the next window of distances ("window"); for
            "sum" those with the least value left ("least").
        pulls: Whether a round may also go over the vertices that are still NONE, and their arcs in.
        folded: Further algorithms that send along the same arcs in the same pass; :func:`fold` makes them so.
    """

    state: tuple[Argument, ...]
    target: str
    sends: str
    compute: str
    combine: Literal["any", "min", "max", "or", "sum"]
    active: str
    worth: str = ""
    crossed: str = ""
    enter: str = ""
    refill: Literal["", "window", "least"] = ""
    pulls: bool = False
    weighted: bool = False
    folded: tuple[Rounds, ...] = ()

    def __post_init__(self) -> None:
        """Raise :class:`InputError` for names that the templates have or that are missing."""
        names = [one.name for one in self.state]
        if taken := sorted(filter(_WORDS.fullmatch, names)):
            raise InputError(f"an array of state cannot be called {taken[0]}, a word of the kernels: rename it")
        needed = [self.target] + ["stamp"] * (self.combine in ("min", "max", "or"))
        for name in needed:
            if name not in names:
                raise InputError(
                    f"combine={self.combine} needs an array {name}, and state has {', '.join(names)}: add it"
                )

    @property
    def ctype(self) -> str:
        """The type of the updates."""
        return next(one.ctype for one in self.state if one.name == self.target)

    @property
    def updates(self) -> tuple[Rounds, ...]:
        """This algorithm and those that are folded into it."""
        return (self, *self.folded)

    @property
    def spreads(self) -> bool:
        """Whether updates only go on until nothing changes: by "min", "max" or "or", without refills and pulls."""
        return self.combine in ("min", "max", "or") and not self.refill and not self.pulls

    @property
    def atomic(self) -> str:
        """The word of the templates for an update by many work-items, for "min", "max" and "or"."""
        return f"ATOMIC_{self.combine}{'' if self.ctype == 'u32' else '_' + self.ctype}".upper()

    def improves(self, old: str) -> str:
        """An expression: whether ``got`` changes a vertex whose value is ``old``, for "min", "max" and "or"."""
        return {"min": f"got < {old}", "max": f"got > {old}", "or": f"(got & ~{old})"}[self.combine]


def fold(*those: Rounds) -> Rounds:
    """One algorithm that does what several do, in one pass over the arcs of what any of them changed in the last round.

    The result has all arrays of state, and one frontier: vertices send all of their updates, of which those that are
    not new change nothing.

    Raises :class:`InputError` if an algorithm has more than a frontier of what changed, if frontiers are found in two
    ways, if one reads or writes an array that another writes, or if an array has two types.
    """
    those = tuple(replace(one, folded=()) for each in those for one in each.updates)
    for at, one in enumerate(those):
        if not one.spreads:
            raise InputError(
                f"the algorithm of {one.target} cannot be folded: its combine is {one.combine}, its refill "
                f'"{one.refill}", pulls {one.pulls}; give one with min, max or or and without both'
            )
        if one.active != those[0].active:
            raise InputError(
                f"the algorithms of {those[0].target} and {one.target} cannot be folded: active is {those[0].active} "
                f"and {one.active}; give both the same"
            )
        words = set(re.findall(r"\w+", f"{one.sends} {one.compute}"))
        for other in (*those[:at], *those[at + 1 :]):
            if other.target == one.target or other.target in words:
                raise InputError(
                    f"the algorithms of {one.target} and {other.target} cannot be folded: one writes {other.target} "
                    "while the other uses it; run one after the other"
                )
    state: dict[str, Argument] = {}
    for array in (array for one in those for array in one.state):
        if (ctype := state.setdefault(array.name, array).ctype) != array.ctype:
            raise InputError(f"{array.name} is an array of {ctype} and of {array.ctype}: rename one")
    weighted = any(one.weighted for one in those)
    return replace(those[0], state=tuple(state.values()), weighted=weighted, folded=those[1:])


BFS = Rounds(
    state=(Argument("level", "u32", "inout", "[n] arcs from the source; NONE before it is reached"),),
    target="level",
    sends="step + 1u",
    compute="sent",
    combine="any",
    active="level[v] == step",
    pulls=True,
)

SSSP = Rounds(
    state=(
        Argument("dist", "real", "inout", "[n] distance from the source"),
        Argument("stamp", "u32", "inout", "[n] the last round that vertex was put into the frontier for"),
    ),
    target="dist",
    sends="dist[v]",
    compute="sent + weights[at]",
    combine="min",
    active="stamp[v] == step",
    refill="window",
    weighted=True,
)

WIDEST = Rounds(
    state=(
        Argument("width", "real", "inout", "[n] least weight of the best path from the source so far"),
        Argument("stamp", "u32", "inout", "[n] the last round that vertex was put into the frontier for"),
    ),
    target="width",
    sends="width[v]",
    compute="sent < weights[at] ? sent : weights[at]",
    combine="max",
    active="stamp[v] == step",
    weighted=True,
)

CORES = Rounds(
    state=(
        Argument("left", "u32", "inout", "[n] neighbours that are not removed"),
        Argument("core", "u32", "inout", "[n] core number; NONE before it is known"),
    ),
    target="left",
    sends="0u - 1u",
    compute="sent",
    combine="sum",
    active="",
    worth="left[u] > k",
    crossed="old == k + 1u",
    enter="core[u] = k;",
    refill="least",
)
