"""Families whose calls are programs: a loop over a frontier, a layout made for each configuration, bad repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from mmsbgen.base.errors import LaunchError
from mmsbgen.kernels.family import Argument, Array, Dataset, Expected, KernelFamily, KernelSpec, Launch, Workload
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Parameter, Problem
from mmsbgen.kernels.render import environment
from mmsbgen.kernels.space import Axis, Config, Space, Traits

NONE = np.uint32(0xFFFFFFFF)
HEAD = """
{% from "common/signature.jinja" import signature with context %}
{% if d.name == "opencl" %}
typedef uint u32;
{% else %}
typedef unsigned int u32;
#define atomic_cmpxchg(at, before, after) atomicCAS(at, before, after)
#define atomic_inc(at) atomicAdd(at, 1u)
{% endif %}
typedef float real;
#define ITEM ({{ d.group_id }} * {{ block_size }}u + {{ d.local_id }})
"""
LEVELS = (
    HEAD
    + """#define NONE 0xffffffffu
{% if c.method == "queue" %}
{{ signature(entries.advance) -}}
{
    const u32 i = ITEM;
    if (i >= n_queue) return;
    const u32 from = queue[i];
    for (u32 at = begins[from]; at < begins[from + 1u]; ++at) {
        const u32 to = targets[at];
        if (atomic_cmpxchg(&levels[to], NONE, level) == NONE) next[atomic_inc(next_size)] = to;
    }
}
{% else %}
{{ signature(entries.scan) -}}
{
    const u32 to = ITEM;
    if (to >= n || levels[to] != NONE) return;
    for (u32 at = begins[to]; at < begins[to + 1u]; ++at)
        if (levels[targets[at]] == level - 1u) {
            levels[to] = level;
            atomic_inc(next_size);
            return;
        }
}
{% endif %}
"""
)
PRODUCT = (
    HEAD
    + """{{ signature(kernel) -}}
{
    const u32 i = ITEM;
    if (i >= n) return;
    real sum = 0.0f;
    for (u32 j = 0u; j < n; ++j) sum += matrix[{{ "i * n + j" if c.layout == "rows" else "j * n + i" }}] * x[j];
    y[i] = sum;
}
"""
)
SQUARE = (
    HEAD
    + """{{ signature(kernel) -}}
{
    const u32 i = ITEM;
    if (i < n) x[i] = 2.0f * x[i] * x[i];
}
"""
)
environment().loader = jinja2.ChoiceLoader(
    [
        environment().loader,
        jinja2.DictLoader({"toy/levels.jinja": LEVELS, "toy/product.jinja": PRODUCT, "toy/square.jinja": SQUARE}),
    ]
)

ARGUMENTS = (
    Argument("begins", "u32", "in", "[n + 1] first neighbour"),
    Argument("targets", "u32", "in", "[E] neighbours"),
    Argument("levels", "u32", "inout", "[n] links from the source; NONE before"),
    Argument("queue", "u32", "inout", "[n] vertices of the last level"),
    Argument("size", "u32", "inout", "[1] their number"),
    Argument("next", "u32", "out", "[n] vertices of the next level"),
    Argument("next_size", "u32", "out", "[1] their number"),
)
NAMED = {one.name: one for one in ARGUMENTS}
LEVEL = Argument("level", "u32", "scalar", "level of the new vertices")
N_QUEUE = Argument("n_queue", "u32", "scalar", "vertices of the last level")
N = Argument("n", "u32", "scalar", "vertices")
BLOCK = Axis("block_size", (16, 64), "work-items of a block")


def entries(config: Config) -> Mapping[str, tuple[Argument, ...]]:
    if config["method"] == "queue":
        taken = (*map(NAMED.get, ("begins", "targets", "levels", "queue", "next", "next_size")), LEVEL, N_QUEUE)
        return {"advance": taken}  # type: ignore[dict-item]
    return {"scan": (NAMED["begins"], NAMED["targets"], NAMED["levels"], NAMED["next_size"], LEVEL, N)}


def search(on: Launches, most: int = 1 << 30) -> None:
    """Breadth-first search; raises :class:`LaunchError` after ``most`` levels, as a target that is not reached."""
    block, level = int(on.config["block_size"]), 0
    while size := int(on.read("size")[0]):
        level += 1
        if level > most:
            raise LaunchError(f"{size} vertices are left after {most} levels")
        on.write("next_size", np.zeros(1, np.uint32))
        if on.config["method"] == "queue":
            on.launch("advance", -(-size // block), block, level=np.uint32(level), n_queue=np.uint32(size))
            on.swap("queue", "next")
        else:
            on.launch("scan", -(-on.count // block), block, level=np.uint32(level), n=np.uint32(on.count))
        on.swap("size", "next_size")


def endless(on: Launches) -> None:
    while True:
        on.launch("scan", 1, int(on.config["block_size"]), level=np.uint32(0), n=np.uint32(on.count))
        on.read("size")


def graph(problem: Problem, seed: int) -> tuple[Array, Array]:
    """A path with random chords: begins [n + 1], targets [E] of both directions."""
    n = problem.integer("n")
    rng = np.random.default_rng(seed)
    chords = rng.integers(0, n, n // 64)
    a = np.concatenate([np.arange(n - 1), chords])
    b = np.concatenate([np.arange(1, n), np.minimum(chords + 3, n - 1)])
    sources, targets = np.concatenate([a, b]), np.concatenate([b, a])
    order = np.argsort(sources, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))])
    return begins.astype(np.uint32), targets[order].astype(np.uint32)


def reference(begins: Array, targets: Array) -> Array:
    levels = np.full(begins.size - 1, NONE)
    levels[0], last, level = 0, [0], 0
    while last:
        level += 1
        new = {int(to) for at in last for to in targets[begins[at] : begins[at + 1]] if levels[to] == NONE}
        last = sorted(new)
        levels[last] = level
    return levels


def searched(problem: Problem, seed: int) -> Workload:
    return search_of(*graph(problem, seed))


def read(file: Path) -> Dataset:
    """A graph from a file of ``begins`` and ``targets``; a feature is its largest degree."""
    with np.load(file) as found:
        begins, targets = found["begins"], found["targets"]
    values = {"n": begins.size - 1, "degree": int(np.diff(begins).max())}
    return Dataset(values, lambda kernel, problem, seed: search_of(begins, targets), lambda kernel: file.stem)


def search_of(begins: Array, targets: Array) -> Workload:
    n = begins.size - 1
    levels, queue = np.full(n, NONE), np.zeros(n, np.uint32)
    levels[0] = 0
    answer = reference(begins, targets)
    arguments = {
        "begins": begins,
        "targets": targets,
        "levels": levels,
        "queue": queue,
        "size": np.ones(1, np.uint32),
        "next": np.zeros(n, np.uint32),
        "next_size": np.zeros(1, np.uint32),
    }
    expected = Expected(answer, 0.0 * answer)
    return Workload(arguments, n, lambda got, config: expected.errors(got["levels"]), repeats="restored")


def shape(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    return Launch(-(-count // int(config["block_size"])), int(config["block_size"]))


def default(problem: Problem, traits: Traits, **more: str) -> Config:
    return {"block_size": 64, **more}


SEARCH = KernelSpec(
    name="levels",
    template="toy/levels.jinja",
    doc="links from vertex 0",
    arguments=ARGUMENTS,
    parameters=("n", "degree"),
    space=Space((BLOCK, Axis("method", ("queue", "scan"), "how the next level is found"))),
    default=partial(default, method="queue"),
    variables=lambda problem, config, traits: {},
    launch=shape,
    traffic=lambda problem: 16 * problem.integer("n"),
    workload=searched,
    check_problem=lambda problem: problem.replace(n=300),
    entries=entries,
    program=search,
)


def product(problem: Problem, seed: int) -> Workload:
    n = problem.integer("n")
    rng = np.random.default_rng(seed)
    matrix, x = rng.integers(-8, 9, (n, n)).astype(np.float32), rng.integers(-8, 9, n).astype(np.float32)
    answer = Expected(matrix @ x, 0.0 * x)

    def laid_out(config: Config) -> dict[str, Array]:
        return {"matrix": np.ascontiguousarray(matrix if config["layout"] == "rows" else matrix.T)}

    return Workload(
        {"x": x, "y": np.zeros_like(x), "n": np.uint32(n)},
        n,
        lambda got, config: answer.errors(got["y"]),
        prepare=laid_out,
        prepared_by=("layout",),
    )


PRODUCTS = KernelSpec(
    name="product",
    template="toy/product.jinja",
    doc="y = A x",
    arguments=(
        Argument("matrix", "real", "in", "[n, n] by rows or by columns"),
        Argument("x", "real", "in", "[n]"),
        Argument("y", "real", "out", "[n]"),
        N,
    ),
    parameters=("n",),
    space=Space(
        (BLOCK, Axis("layout", ("rows", "columns"), "of the matrix")),
    ),
    default=partial(default, layout="rows"),
    variables=lambda problem, config, traits: {},
    launch=shape,
    traffic=lambda problem: 4 * problem.integer("n") ** 2,
    workload=product,
    check_problem=lambda problem: problem.replace(n=100),
)


def squared(problem: Problem, seed: int, repeats: Any) -> Workload:
    x = np.ones(problem.integer("n"), np.float32)
    answer = Expected(2.0 * x, 0.0 * x)
    return Workload(
        {"x": x, "n": np.uint32(x.size)}, x.size, lambda got, config: answer.errors(got["x"]), repeats=repeats
    )


def squares(name: str, repeats: Any) -> KernelSpec:
    return KernelSpec(
        name=name,
        template="toy/square.jinja",
        doc="x = 2 x^2, which outgrows float32 after seven calls",
        arguments=(Argument("x", "real", "inout", "[n]"), N),
        parameters=("n",),
        space=Space((BLOCK,)),
        default=default,
        variables=lambda problem, config, traits: {},
        launch=shape,
        traffic=lambda problem: 8 * problem.integer("n"),
        workload=partial(squared, repeats=repeats),
        check_problem=lambda problem: problem.replace(n=100),
    )


def faulty(name: str, **changed: Any) -> KernelSpec:
    values = {field: getattr(SEARCH, field) for field in SEARCH.__dataclass_fields__}
    return KernelSpec(**values | {"name": name} | changed)


PROGRAMS = KernelFamily(
    name="programs",
    doc="kernels of several launches",
    parameters=(
        Parameter("n", 3000, "vertices, or rows", minimum=1, maximum=1 << 20),
        Parameter("degree", 0, "largest degree, of a user's graph", soft=True, implicit=True),
    ),
    kernels={
        spec.name: spec
        for spec in (
            SEARCH,
            PRODUCTS,
            squares("continued", "continued"),
            squares("restored", "restored"),
            squares("undeclared", None),
            faulty("capped", program=partial(search, most=400)),
            faulty("endless", program=endless, entries=lambda config: entries({"method": "scan"})),
        )
    },
    row_bytes=lambda problem: 4096,
    tuned=("levels", "product"),
    read=read,
)
