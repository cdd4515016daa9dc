"""Algorithms in rounds that somebody else declares: ten lines each, folded or not, right in every kind of loop."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mmsbgen.backends import Device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.base.errors import InputError
from mmsbgen.families import family
from mmsbgen.families.graph import declared_kernel, inputs
from mmsbgen.families.graph.declare import _WORDS, BFS, NONE, Rounds, fold
from mmsbgen.families.graph.reference import levels
from mmsbgen.graph import Arcs
from mmsbgen.kernels.build import BoundKernel, build, traits_of
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits, describe
from tests.devices import HASTY
from tests.families.graph.shapes import random_graphs

GRAPH = family("graph")
CUDA = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)


def spread(combine: Any, ctype: str, name: str = "got_here") -> Rounds:
    """Numbers of vertices that go as far as arcs lead: the least, the largest, or a bit for each source."""
    return Rounds(
        state=(Argument(name, ctype, "inout", "[n]"), Argument("stamp", "u32", "inout", "[n] last round")),
        target=name,
        sends=f"{name}[v]",
        compute="sent",
        combine=combine,
        active="stamp[v] == step",
    )


def reached(arcs: Arcs, starts: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of ``starts`` reaches each vertex ``[S, N]``."""
    return np.asarray(levels(arcs, starts) != NONE)


LOOPS: list[dict[str, Any]] = [
    {},
    {"loop": "launches", "walk": 0, "block_size": 8, "per_item": 1, "frontier": "scan"},
    {"loop": "whole", "walk": 0, "block_size": 64, "per_item": 1, "team": "grid"},
    {"loop": "launches", "walk": 0, "block_size": 8, "per_item": 16, "frontier": "bins", "team": "merge"},
]


def first_and_last(arcs: Arcs, rng: np.random.Generator, combine: str, ctype: str) -> tuple[Any, Any]:
    """What vertices begin with, and what they end with."""
    dtype: Any = {"u32": np.uint32, "u64": np.uint64}[ctype]
    n, bits = arcs.n_vertices, np.iinfo(dtype).bits
    if combine != "or":
        first = rng.permutation(n).astype(dtype)
        worst = dtype(NONE if combine == "min" else 0)
        return first, getattr(np, combine)(np.where(reached(arcs, np.arange(n)), first[:, None], worst), axis=0)
    starts, powers = rng.integers(0, n, bits), dtype(1) << np.arange(bits, dtype=dtype)
    first = np.zeros(n, dtype)
    np.bitwise_or.at(first, starts, powers)  # a vertex may have several bits
    return first, np.bitwise_or.reduce(np.where(reached(arcs, starts), powers[:, None], dtype(0)), axis=0)


def run(device: Device, bound: BoundKernel, arcs: Arcs, state: dict[str, Any]) -> dict[str, Any]:
    """The arrays of ``state`` after rounds that begin with all vertices."""
    n = arcs.n_vertices
    lists = {"queue": np.arange(n, dtype=np.uint32), "next": np.zeros(n, np.uint32), "stamp": np.zeros(n, np.uint32)}
    counts = np.zeros(inputs.COUNTS, np.uint32)
    counts[[0, 3]] = n, 1
    given = inputs.of_graph(arcs, np.float64) | lists | {"counts": counts} | state
    taken = {one.name for entry in bound.spec.entry_points(bound.config).values() for one in entry}
    values = {name: device.upload(array) for name, array in given.items() if name in taken}
    bound.launch(n, values).wait()
    got = {name: device.download(values[name]) for name in state}
    for one in values.values():
        one.release()
    return got


@pytest.mark.slow
@pytest.mark.parametrize(
    "those", [[("or", "u32")], [("or", "u64")], [("min", "u32"), ("max", "u32"), ("or", "u64"), ("or", "u32")]]
)
def test_a_declaration_is_right_in_every_loop(those: list[tuple[str, str]], opencl_device: Device) -> None:
    """Several are folded into one: each ends as it would alone."""
    names = [f"got_{number}" for number in range(len(those))]
    folded = fold(*(spread(*one, name) for one, name in zip(those, names, strict=True)))
    spec, problem, traits = declared_kernel(folded), GRAPH.problem(), traits_of(opencl_device.info)
    for changes in LOOPS if len(those) > 1 else LOOPS[:3]:
        config = dict(spec.default(problem, traits)) | changes
        bound = build(opencl_device, spec, problem, config)
        for arcs, rng in random_graphs(10, seed=5):
            both = {name: first_and_last(arcs, rng, *one) for name, one in zip(names, those, strict=True)}
            got = run(opencl_device, bound, arcs, {name: first for name, (first, _) in both.items()})
            for name, (_, last) in both.items():
                assert np.array_equal(got[name], last), (name, describe(config))


def test_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be called most, a word of the kernels: rename it"):
        spread("max", "u32", "most")
    with pytest.raises(InputError, match="combine=or needs an array stamp, and state has bits: add it"):
        Rounds((Argument("bits", "u64", "inout", ""),), "bits", "bits[v]", "sent", "or", "stamp[v] == step")


def test_what_cannot_be_folded_is_refused() -> None:
    least = spread("min", "u32")
    with pytest.raises(InputError, match="algorithm of level cannot be folded: its combine is any.*pulls True"):
        fold(least, BFS)
    with pytest.raises(InputError, match="got_here and got_here cannot be folded: one writes got_here while"):
        fold(least, spread("max", "u32"))
    with pytest.raises(InputError, match="one writes theirs while the other uses it; run one after the other"):
        fold(replace(least, compute="theirs[v]"), spread("or", "u64", "theirs"))
    with pytest.raises(InputError, match=r"active is stamp\[v\] == step and theirs\[v\]; give both the same"):
        fold(least, replace(spread("or", "u64", "theirs"), active="theirs[v]"))
    more = Argument("got_here", "u64", "in", "")
    with pytest.raises(InputError, match="got_here is an array of u32 and of u64: rename one"):
        fold(least, replace(other := spread("or", "u64", "theirs"), state=(*other.state, more)))


def test_what_is_folded_already_is_folded_whole() -> None:
    those = [spread("or", "u32", name) for name in ("a", "b", "c", "d")]
    both = fold(fold(*those[:2]), fold(*those[2:]))
    assert [one.target for one in both.updates] == ["a", "b", "c", "d"]
    assert both.state == fold(*those).state


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        ("cuda", {}),
        ("cuda", {"team": "grid"}),
        ("cuda", {"team": "item", "loop": "phases"}),
        ("opencl", LOOPS[1]),
        ("opencl", LOOPS[2] | {"blocks_per_unit": 1}),
        ("opencl", LOOPS[3]),
    ],
)
def test_no_array_may_have_a_name_that_kernels_declare(dialect: Any, changes: dict[str, Any]) -> None:
    a, problem = fold(spread("or", "u32", "bits"), spread("min", "u32", "lowest_here")), GRAPH.problem()
    spec, traits = declared_kernel(a), replace(CUDA, dialect=dialect, kind="gpu" if dialect == "cuda" else "cpu")
    config = dict(spec.default(problem, traits)) | changes
    assert spec.space.refusal(config, problem, traits) is None
    text = render(spec, problem, config, traits).text
    # After a type, or after a comma behind the value of another one.
    found = re.findall(r"\bu(?:32|64)\b(?:[\s*]|\bconst\b)*\b(\w+)\s*(?=[=;,[)])|, \*?(\w+) = ", text)
    names = {name for pair in found for name in pair if name}
    assert len(names) > 25
    assert {name for name in names if not _WORDS.fullmatch(name)} <= {one.name for one in a.state}


@pytest.mark.slow
def test_a_declaration_is_cuda_c_too() -> None:
    traits, compiler, problem = CUDA, find_compiler("nvrtc"), GRAPH.problem()
    several = fold(spread("or", "u64"), spread("max", "u32", "largest"), spread("min", "u32", "smallest"))
    for a, team in ((several, "warp"), (several, "item"), (spread("or", "u32"), "grid")):
        spec = declared_kernel(a)
        default = dict(spec.default(problem, traits))
        for config in (default | {"team": team}, default | LOOPS[1] | {"team": "item", "blocks_per_unit": 1}):
            assert spec.space.refusal(config, problem, traits) is None
            compiled = compile_cuda(render(spec, problem, config, traits).text, "sm_90", HASTY, compiler=compiler)
            assert [line for line in compiled.log.splitlines() if ": warning" in line] == []
