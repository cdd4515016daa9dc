"""A pairwise-covering sample of the variants of kernels: small, the same every time, and exact about what is valid."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.axes.common_axes import chunks
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Traits

Item = tuple[str, Any]

KS = (1, 3, 7, 64, 100, 257, 1024)
#: Values over which problems vary; a kernel takes those of its own parameters.
FACTORS: dict[str, tuple[Any, ...]] = {
    "K": KS,
    "dtype": ("float32", "float64"),
    "storage": STORAGES,
    "n": (11, 1, 3),
    "step": ("split", "reflected", "published"),
    "theta_step": ("reflected", "published", "gain", "wright-fisher"),
    "noise": ("on", "off"),
    "entries": (16, 8, 64),
    "partners": ("uniform", "stratified", "shared", "shared-uniform", "block"),
}
#: Partners that a block shares, on both sides of every size of a panel of them.
_SHARED_N = (11, 1, 200, 1025)
#: Block sizes of which every pair with another value is covered; others come at least once.
BLOCKS = (1, 4, 48, 256, 1024)
#: What a row has whose step draws, which is half of such a kernel's code: each other value comes with it.
DRAWS = ("draws", True)
_DRAWING: Set[Item] = {"step": "split", "noise": "on"}.items()
#: Kernels whose templates share what their axes set, covered together; each of the others is a group by itself.
GROUPS = (
    ("update_phi", "block_links", "star_rows"),
    ("block_shared", "star_shared"),
    ("update_pi", "perplexity_pairs", "explain_links", "explain_at"),
    ("theta_end", "update_beta", "init_pi", "place_rows", "gather_rows", "add_moments"),
    ("shared_partners", "draw_shared", "draw_stars", "perplexity_sum"),
    ("sparse_rows", "sparse_draws"),
    (
        "sparse_totals",
        "sparse_pairs",
        "sparse_links",
        "sparse_places",
        "sparse_shares",
        "sparse_gather",
        "sparse_replace",
        "sparse_moments",
    ),
    ("sample_partners", "exchange_slots", "edge_lookup", "draws"),
    ("best_labels", "move_labels", "join_links", "gather_links"),
    ("bfs", "sssp", "widest", "cores"),
    ("components", "pagerank", "parents", "triangles", "searches"),
    ("propagate", "solve", "messages"),
    ("sgd_tiles", "sgd_steps", "sgd_blocks", "sgd_locks", "sgd_nodes", "sgd_hybrid", "sgd_adds", "sgd_hogwild"),
    ("als_rows", "als_cg", "square_error"),
)
#: Completions of a pair of values of which the best is taken, for each kernel that has it.
_TRIES = 5

Pair = tuple[Item, Item]
Row = Mapping[str, Any]
Values = tuple[Any, ...]


class Variant(NamedTuple):
    """One kernel to build and check."""

    spec: KernelSpec
    problem: Problem
    config: dict[str, Any]

    def __str__(self) -> str:
        values = dict(self.problem.only(self.spec.parameters)) | self.config
        return f"{self.spec.name} " + " ".join(f"{name}={value}" for name, value in values.items())


class Sample(NamedTuple):
    """Variants of a group of kernels, and the pairs of values that they cover, a value alone as a pair with itself.

    The kernel is one of the values, so that each has every value of its own with it.
    """

    variants: list[Variant]
    covered: Set[Pair]


def factors(spec: KernelSpec) -> dict[str, tuple[Any, ...]]:
    """What a variant of a kernel chooses: the values of its problem's parameters and of its axes, and itself.

    Problems of families other than mmsb have the default sizes.
    """
    ours = spec.parameters if MMSB.kernels.get(spec.name) is spec else ()
    own = {name: values for name, values in FACTORS.items() if name in ours}
    if "n" in own and "panel" in {axis.name for axis in spec.space.axes}:
        own["n"] = _SHARED_N
    return {"kernel": (spec.name,)} | own | {axis.name: axis.values for axis in spec.space.axes}


def claimed(a: Item, b: Item) -> bool:
    """Whether a sample has these two values together wherever a kernel allows it; a value alone is a pair with itself.

    All pairs but those of block sizes that are not among :data:`BLOCKS`.
    """
    return a == b or all(name != "block_size" or value in BLOCKS for name, value in (a, b))


def pairs(row: Row, claims: Callable[[Item, Item], bool] = claimed) -> Iterator[Pair]:
    """The claimed pairs of a variant's values; that it draws is one of them."""
    items = sorted({**row, **dict([DRAWS])}.items() if row.items() >= _DRAWING else row.items())
    return ((a, b) for a, b in itertools.combinations_with_replacement(items, 2) if claims(a, b))


def groups(specs: Iterable[str]) -> list[tuple[str, ...]]:
    """The kernels in the groups that are covered together."""
    names = list(specs)
    together = [tuple(name for name in group if name in names) for group in GROUPS]
    alone = [(name,) for name in names if not any(name in group for group in GROUPS)]
    return [group for group in (*together, *alone) if group]


def row_of(variant: Variant) -> dict[str, Any]:
    """All values of a variant by their names."""
    kept = {name: variant.problem.get(name, STORAGES[0]) for name in factors(variant.spec) if name in FACTORS}
    return {"kernel": variant.spec.name} | kept | variant.config


class _OpenError(Exception):
    """A rule asked for a value that is not chosen yet; its name is the argument."""


class _Chosen(Mapping[str, Any]):
    """A problem or a configuration of which some values are not chosen yet."""

    def __init__(self, known: dict[str, Any], names: Iterable[str], others: Mapping[str, Any]) -> None:
        self._known, self._names, self._others = known, frozenset(names), others

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            return self._others[name]
        if name not in self._known:
            raise _OpenError(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._others, **dict.fromkeys(self._names)})

    def __len__(self) -> int:
        return len({*self._others, *self._names})

    def integer(self, name: str) -> int:
        return int(self[name])


class _Left(NamedTuple):
    """The rules that wait, each with the name whose value it asks for ("" before it was asked), and values by name."""

    waiting: dict[int, str]
    values: dict[str, Values]


class _Kernel:
    """A kernel's rules, which say of values that are chosen one after the other as early as they can what is refused.

    A constraint that asks for a value that is not there waits for it, so that what none of its values allows is found
    without going through all that those of others would make.
    """

    def __init__(self, family: KernelFamily, spec: KernelSpec, traits: Traits) -> None:
        self.family, self.spec, self.traits = family, spec, traits
        self.factors = factors(spec)
        self._known: dict[str, Any] = {}
        axes = [axis.name for axis in spec.space.axes]
        parameters = [name for name in self.factors if name in FACTORS]
        problem: Any = _Chosen(self._known, parameters, spec.check_problem(family.problem()))
        config = _Chosen(self._known, axes, {})
        self._rules: list[Callable[[], str | None]] = [partial(family.refusal, problem)]
        self._rules += [partial(each.check, config, problem, traits) for each in spec.space.constraints]

        # What none of its variants has, such as sizes that are for other devices, would be tried with all else.
        rng = random.Random(spec.name)
        for name, values in list(self.factors.items()):
            self._first = self._begin()
            rows = [next(self.completions({name: x}, _as_they_are, rng), None) for x in values]
            self.factors[name] = tuple(x for x, row in zip(values, rows, strict=True) if row is not None)
        self._first = self._begin()

    def items(self) -> list[list[Item]]:
        """What rows have, by name and in the order of the names."""
        own = {name: [(name, value) for value in values] for name, values in self.factors.items()}
        if self.fixed((DRAWS, DRAWS)):
            own[DRAWS[0]] = [DRAWS]
        return [own[name] for name in sorted(own)]

    def fixed(self, pair: Pair) -> dict[str, Any] | None:
        """The values that a row with a pair has at least, or None where the kernel has no such row."""
        asked = list(dict.fromkeys(each for item in pair for each in (_DRAWING if item == DRAWS else (item,))))
        found = dict(asked)
        have = len(found) == len(asked) and all(value in self.factors.get(name, ()) for name, value in asked)
        return found if have else None

    def completions(
        self, fixed: Row, prefer: Callable[[str, Row, Values], Values], rng: random.Random
    ) -> Iterator[Row]:
        """Valid rows with the values ``fixed``, as many as are asked for, or none where there is none at all.

        ``prefer`` orders the values of a name that are left, for those chosen before.
        """
        left = self._first
        self._known.clear()
        self._known["kernel"] = self.spec.name
        for name, value in fixed.items():
            if left is not None and name != "kernel":
                left = self._choose(name, value, left) if value in left.values[name] else None
        known = dict(self._known)
        while left is not None and (row := self._extend(left, prefer, rng)) is not None:
            yield row
            self._known.clear()
            self._known.update(known)

    def _begin(self) -> _Left | None:
        """What is left for the kernel before anything is chosen, which takes as long to find as most of a row."""
        self._known.clear()
        left = _Left(dict.fromkeys(range(len(self._rules)), ""), dict(self.factors))
        return self._choose("kernel", self.spec.name, left)

    def _choose(self, name: str, value: Any, before: _Left) -> _Left | None:
        """What is left with a value, or None where a rule refuses it, or all values of the name that it waits for."""
        self._known[name] = value
        left = _Left({}, {other: values for other, values in before.values.items() if other != name})
        for rule, awaited in before.waiting.items():
            if awaited not in ("", name):
                left.waiting[rule] = awaited
                continue
            others = list(left.waiting.values())
            awaited = self._asked(rule, others)
            if awaited:
                left.waiting[rule] = awaited
                others.append(awaited)
                kept = [x for x in left.values[awaited] if self._asked(rule, others, awaited, x) is not None]
                left.values[awaited] = tuple(kept)
            if awaited is None or (awaited and not left.values[awaited]):
                del self._known[name]
                return None
        return left

    def _asked(self, rule: int, others: list[str], name: str = "", value: Any = None) -> str | None:
        """The name that a rule waits for, "" where it allows what is chosen and None where it refuses it.

        That is asked with one more value, if a name is given.  ``others`` are the names that rules before it wait for:
        a rule may count on what those refuse, and fails without.
        """
        if name:
            self._known[name] = value
        try:
            return "" if self._rules[rule]() is None else None
        except _OpenError as error:
            return str(error.args[0])
        except ArithmeticError:
            if not others:
                raise
            return others[0]
        finally:
            if name:
                del self._known[name]

    def _extend(self, left: _Left, prefer: Callable[[str, Row, Values], Values], rng: random.Random) -> Row | None:
        if not left.values:
            return dict(self._known)
        # Those first that rules wait for, and among them the one with the fewest values.
        names = sorted(set(left.waiting.values())) or list(left.values)
        fewest = min(len(left.values[name]) for name in names)
        name = rng.choice([name for name in names if len(left.values[name]) == fewest])
        for value in prefer(name, self._known, left.values[name]):
            then = self._choose(name, value, left)
            if then is not None:
                found = self._extend(then, prefer, rng)
                if found is not None:
                    return found
                del self._known[name]
        return None

    def variant(self, row: Row) -> Variant:
        """The variant of a complete row."""
        problem = self.family.problem(**{name: value for name, value in row.items() if name in FACTORS})
        config = {axis.name: row[axis.name] for axis in self.spec.space.axes}
        refused = self.spec.space.refusal(config, self.spec.check_problem(problem), self.traits)
        assert refused is None, f"{self.spec.name} {row}: {refused}"
        return Variant(self.spec, problem, config)

    def effort(self, row: Row) -> float:
        """How long a compiler takes: unrolled loops by their turns, each as often as rows wait; draws; sub-groups.

        Intel's takes about three times as long where a step draws, and where work-items become sub-groups; where both
        is so, longer with wider vectors: 13 s for 16 elements, which most kernels take 0.2 s for.
        """
        variant = self.variant(row)
        problem = self.spec.check_problem(variant.problem)
        drawing, grouped = row.items() >= _DRAWING, row.get("team") == "subgroup" or row.get("reduction") == "shuffle"
        times = 3.0 ** (drawing + grouped) * max(1.0, int(row.get("vector_width", 1)) / 4 if drawing and grouped else 1)
        if not self.spec.variables(problem, variant.config, self.traits).get("unrolled", False):
            return times
        rows = int(row.get("rows_in_flight", row.get("pairs_in_flight", 1)))
        return times * (1.0 + chunks(problem, variant.config, self.traits) * rows / 4)


@dataclass
class _Search:
    """The pairs that are still wanted, and the completions that have most of them."""

    kernels: list[_Kernel]
    wanted: set[Pair]
    claims: Callable[[Item, Item], bool]
    rng: random.Random

    def prefer(self, name: str, known: Row, values: Values) -> Values:
        """By how many wanted pairs they make with those that are chosen; equal ones at random."""
        if len(values) == 1:
            return values
        items = list(known.items())

        def gain(value: Any) -> int:
            return sum(_ordered(item, (name, value)) in self.wanted for item in items)

        return tuple(sorted(self.rng.sample(values, len(values)), key=gain, reverse=True))

    def best(self, pair: Pair) -> tuple[_Kernel, Row] | None:
        """Of some valid rows with a pair the one that has most wanted pairs for its effort, or None."""
        found: list[tuple[float, _Kernel, Row]] = []
        for kernel in self.kernels:
            fixed = kernel.fixed(pair)
            rows = iter(()) if fixed is None else kernel.completions(fixed, self.prefer, self.rng)
            for row in itertools.islice(rows, _TRIES):
                gain = sum(each in self.wanted for each in pairs(row, self.claims))
                found.append((gain / (1 + kernel.effort(row)), kernel, row))
        return max(found, key=lambda one: one[0])[1:] if found else None


_MADE: dict[tuple[Any, ...], Sample] = {}


def covering(
    family: KernelFamily,
    names: Sequence[str],
    traits: Traits,
    claims: Callable[[Item, Item], bool] = claimed,
    elsewhere: Set[Pair] = frozenset(),
) -> Sample:
    """What :func:`sampled` makes, once in a process: it takes seconds, and the samples of PoCL want that of Intel's."""
    key = family.name, tuple(names), traits, claims, frozenset(elsewhere)
    if key not in _MADE:
        _MADE[key] = sampled(family, names, traits, claims, elsewhere)
    return _MADE[key]


def sampled(
    family: KernelFamily,
    names: Sequence[str],
    traits: Traits,
    claims: Callable[[Item, Item], bool] = claimed,
    elsewhere: Set[Pair] = frozenset(),
) -> Sample:
    """Variants of some kernels, taken together, with every pair of values that is claimed and that one of them allows.

    The kernel is a value too: each of them comes with every value of its own that is not a block size.  Pairs that are
    covered ``elsewhere``, on another platform, are not wanted again, but those of a kernel and a value are.
    """
    kernels = [_Kernel(family, family.kernel(name), traits) for name in names]
    wanted: set[Pair] = set()
    lengths: dict[str, int] = {}
    for kernel in kernels:
        items = kernel.items()
        for xs, ys in itertools.combinations(items, 2):
            wanted |= {(a, b) for a in xs for b in ys if claims(a, b)}
        wanted |= {(a, a) for values in items for a in values}
        wanted -= {(a, b) for a, b in elsewhere if a != b and "kernel" not in (a[0], b[0])}
        lengths |= {values[0][0]: max(len(values), lengths.get(values[0][0], 0)) for values in items}
    rng = random.Random(f"{' '.join(names)} {traits.dialect} {traits.kind}")

    def place(pair: Pair) -> tuple[int, float]:
        """First the pairs of the longest factors, whose product no sample can be smaller than."""
        (a, _), (b, _) = pair
        return -lengths[a] * lengths[b] * (a != b), rng.random()

    search = _Search(kernels, wanted, claims, rng)
    variants: list[Variant] = []
    everything: set[Pair] = set()
    for pair in sorted(sorted(wanted, key=repr), key=place):  # the order of a set differs from process to process
        if pair not in wanted:
            continue
        found = search.best(pair)
        wanted.discard(pair)  # no kernel allows it where nothing was found
        if found is not None:
            kernel, row = found
            covered = set(pairs(row, claims))
            variants.append(kernel.variant(row))
            everything |= covered
            wanted -= covered
    return Sample(variants, everything)


def _as_they_are(name: str, known: Row, values: Values) -> Values:
    return values


def _ordered(a: Item, b: Item) -> Pair:
    return (a, b) if a[0] <= b[0] else (b, a)
