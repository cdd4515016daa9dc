"""What there is to check on a device, with the fingerprint of every check.  For the script that checks all of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _checked import Fingerprints
from _variants import DEALT, DRAWN, Variant, in_turns

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.axes.common_axes import chunks
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.space import Traits, describe

#: How often the other parameters of a problem are drawn again where a configuration is not valid with them.
_DRAWS = 10
#: What of the package kernels and checks are made by, beside the modules at its top.
_SOURCES = ("backends", "families", "graph", "templates")


class Row(NamedTuple):
    """A row of the report: how many configurations, and how many variants at all K and types.

    ``asked`` are those to check with their fingerprints, in the order of the rounds.
    """

    configurations: int
    variants: int
    asked: list[tuple[Variant, int]]


def plan(kernels: KernelFamily, traits: Traits, only: Sequence[str], ks: Sequence[int], rounds: int) -> dict[str, Row]:
    """By row, all configurations of the kernels named, or of all, each in so many rounds as it has problems for.

    The order is random and the same every time; a configuration's problems do not depend on what else there is.
    """
    found: dict[str, Row] = {}
    fingerprints = Fingerprints(kernels, traits)
    for spec in kernels.written_in(traits.dialect).values():
        if only and spec.name not in only:
            continue
        shapes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        configs: dict[str, dict[str, Any]] = {}
        for shape in _shapes(spec, ks):
            for config in spec.space.configs(spec.check_problem(kernels.problem(**shape)), traits):
                name = describe(config)
                configs[name] = config
                shapes[name].append(shape)
        names = sorted(configs)
        random.Random(spec.name).shuffle(names)
        for name in names:
            shapes[name] = _ordered(kernels, spec, traits, shapes[name], configs[name])
        for turn in range(rounds):
            for name in names:
                if turn >= len(shapes[name]):
                    continue
                variant = _drawn(kernels, spec, traits, shapes[name][turn], configs[name])
                row = found.get(variant.group, Row(0, 0, []))
                row.asked.append((variant, fingerprints.of(variant)))
                if turn == 0:
                    found[variant.group] = Row(row.configurations + 1, row.variants + len(shapes[name]), row.asked)
    return found


def _shapes(spec: KernelSpec, ks: Sequence[int]) -> list[dict[str, Any]]:
    """The problems at each of which every valid configuration is a variant."""
    found: list[dict[str, Any]] = []
    for k in ks if "K" in spec.parameters else ks[:1]:
        types = [("float32", name) for name in STORAGES if name == STORAGES[0] or "storage" in spec.parameters]
        types += [("float64", STORAGES[0])] if "dtype" in spec.parameters else []
        found += [{"K": k, "dtype": dtype, "storage": storage} for dtype, storage in types]
    return found


def _ordered(
    kernels: KernelFamily, spec: KernelSpec, traits: Traits, shapes: list[dict[str, Any]], config: dict[str, Any]
) -> list[dict[str, Any]]:
    """A configuration's shapes in the order of its rounds: at random, long sources rather late than early.

    Where loops are unrolled a shape comes next with a chance inverse to their turns, of which a compiler sees the same
    lines over and over: it takes up to a minute for 64 turns, under a second for one or two.  Rows that fill no vector
    or no team come at any length, long ones are drawn all the same, and the last round has had every shape.
    """

    def turns(shape: dict[str, Any]) -> int:
        return chunks(kernels.problem(**shape), config, traits)

    some = spec.check_problem(kernels.problem(**shapes[0]))
    unrolled = spec.variables(some, config, traits).get("unrolled", False)
    rng = random.Random(f"{spec.name} {describe(config)}")
    after = [rng.expovariate(1 / turns(shape) if unrolled else 1.0) for shape in shapes]
    return [shapes[i] for i in sorted(range(len(shapes)), key=after.__getitem__)]


def _drawn(
    kernels: KernelFamily, spec: KernelSpec, traits: Traits, shape: dict[str, Any], config: dict[str, Any]
) -> Variant:
    """The variant of a configuration at a shape, with what is drawn beside if it is valid with it."""
    fixed = {name: value for name, value in shape.items() if name in spec.parameters}
    rng = random.Random(f"{spec.name} {describe(shape)} {describe(config)}")
    for _ in range(_DRAWS):
        drawn = {name: rng.choice(values) for name, values in DRAWN.items() if name in spec.parameters}
        if "rows_in_flight" in config and "n" in drawn:
            drawn["n"] = max(drawn["n"], int(config["rows_in_flight"]))
        try:
            small = spec.check_problem(kernels.problem(**drawn, **fixed))
        except InputError:
            continue  # values that make no problem together
        if spec.space.refusal(config, small, traits) is None:
            return Variant(spec.name, drawn | fixed, config)
    return Variant(spec.name, fixed, config)


def forms(row: Row, known: Collection[int]) -> tuple[int, int]:
    """How many forms (:attr:`Variant.form`) the variants of a row have, and how many of them were checked."""
    telling = _telling(row)
    return len(telling), len(telling & set(known))


def _telling(row: Row) -> set[int]:
    """Of each form of a row the check that tells most: among the fewest teams, each of which has the most to do."""
    found: dict[str, tuple[list[Any], int]] = {}
    for variant, number in row.asked:
        teams = [variant.config[name] for name in sorted(DEALT) if name in variant.config]
        if variant.form not in found or teams < found[variant.form][0]:
            found[variant.form] = teams, number
    return {number for _, number in found.values()}


def in_order(rows: Mapping[str, Row], known: Mapping[str, Collection[int]], most: int | None) -> Iterator[Variant]:
    """What of a plan is not known, of each row the first ``most``: the check that tells most of a form before others.

    Rows come in turns.
    """
    first, later = defaultdict[str, list[Variant]](list), defaultdict[str, list[Variant]](list)
    for group, row in rows.items():
        telling = _telling(row)
        for variant, number in row.asked[:most]:
            if number not in known[group]:
                (first if number in telling else later)[group].append(variant)
    for part in (first, later):
        yield from in_turns({group: iter(variants) for group, variants in part.items()})


def kept_plan(
    path: Path, kernels: KernelFamily, traits: Traits, only: Sequence[str], ks: Sequence[int], rounds: int
) -> dict[str, Row]:
    """:func:`plan`, which takes minutes, from a file where nothing has changed since that was written."""
    asked = json.dumps([str(traits), list(kernels.kernels), list(only), list(ks), rounds, sources()])
    state = hashlib.sha256(asked.encode()).hexdigest()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        if kept["state"] == state:
            return {
                group: Row(*counts, [(Variant(*json.loads(key)), number) for key, number in checks])
                for group, (*counts, checks) in kept["rows"].items()
            }
    rows = plan(kernels, traits, only, ks, rounds)
    content: dict[str, Any] = {"state": state, "rows": {}}
    for group, row in rows.items():
        checks = [(variant.key, number) for variant, number in row.asked]
        content["rows"][group] = [row.configurations, row.variants, checks]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return rows


def sources() -> str:
    """One digest of the code and templates that kernels, checks and fingerprints are made by, no others."""
    digest = hashlib.sha256()
    for name, path in sorted(_files()):
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()


def _files() -> Iterator[tuple[str, Path]]:
    """What :func:`sources` is of, with names that are the same wherever the checkout is."""
    package, scripts = Path(mmsbgen.__file__).parent, Path(__file__).parent
    for folder, pattern in ((package, "*.py"), (scripts, "_*.py"), *((package / name, "**/*") for name in _SOURCES)):
        for path in folder.glob(pattern):
            if path.suffix in (".py", ".jinja"):
                yield f"{path.relative_to(scripts if folder == scripts else package)}", path


class Watch:
    """Whether the files of :func:`sources` are as they were, without reading them: by their times and sizes."""

    def __init__(self) -> None:
        self._paths = [path for _, path in _files()]
        self._begun = self._now()

    def _now(self) -> list[tuple[int, int]]:
        found = map(Path.stat, self._paths)
        return [(about.st_mtime_ns, about.st_size) for about in found]

    def edited(self) -> bool:
        """Whether one was written or removed since this was made."""
        try:
            return self._now() != self._begun
        except OSError:
            return True
