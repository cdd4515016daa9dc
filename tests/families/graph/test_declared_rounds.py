"""Algorithms in rounds that somebody else declares: ten lines each, right on random graphs in every kind of loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mmsbgen.backends import Device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.families import family
from mmsbgen.families.graph import inputs
from mmsbgen.families.graph.declare import NONE, Rounds
from mmsbgen.families.graph.reference import levels
from mmsbgen.families.graph.round_kernels import rounds_kernel
from mmsbgen.graph import Arcs
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.family import Argument, KernelSpec
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits, describe
from tests.devices import HASTY
from tests.families.graph.shapes import random_graphs

GRAPH = family("graph")


def declared(combine: Any, ctype: str) -> KernelSpec:
    """Numbers of vertices that go as far as arcs lead: the least, the largest, or a bit for each source."""
    a = Rounds(
        state=(Argument("got_here", ctype, "inout", "[n]"), Argument("stamp", "u32", "inout", "[n] last round")),
        target="got_here",
        sends="got_here[v]",
        compute="sent",
        combine=combine,
        active="stamp[v] == step",
    )
    given = GRAPH.kernel("bfs")
    return rounds_kernel("reach", "what reaches a vertex", a, parameters=given.parameters, traffic=given.traffic,
                         flops=given.flops, workload=given.workload, check_problem=given.check_problem)  # fmt: skip


def reached(arcs: Arcs, starts: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of ``starts`` reaches each vertex ``[S, N]``."""
    return np.asarray(levels(arcs, starts) != NONE)


LOOPS: list[dict[str, Any]] = [
    {},
    {"loop": "launches", "walk": 0, "block_size": 8, "per_item": 1, "frontier": "scan"},
    {"loop": "whole", "walk": 0, "block_size": 64, "per_item": 1, "team": "grid"},
]


@pytest.mark.slow
@pytest.mark.parametrize(("combine", "ctype"), [("or", "u32"), ("or", "u64"), ("min", "u32"), ("max", "u32")])
def test_a_declaration_is_right_in_every_loop(combine: str, ctype: str, opencl_device: Device) -> None:
    spec, problem, traits = declared(combine, ctype), GRAPH.problem(), traits_of(opencl_device.info)
    dtype: Any = {"u32": np.uint32, "u64": np.uint64}[ctype]
    for changes in LOOPS if combine == "or" else LOOPS[1:]:
        config = dict(spec.default(problem, traits)) | changes
        bound = build(opencl_device, spec, problem, config)
        for arcs, rng in random_graphs(12, seed=5):
            n, bits = arcs.n_vertices, np.iinfo(dtype).bits
            if combine == "or":  # a vertex may have several bits
                starts = rng.integers(0, n, bits)
                first = np.zeros(n, dtype)
                np.bitwise_or.at(first, starts, dtype(1) << np.arange(bits, dtype=dtype))
                powers = dtype(1) << np.arange(bits, dtype=dtype)
                expected = np.bitwise_or.reduce(np.where(reached(arcs, starts), powers[:, None], dtype(0)), axis=0)
            else:
                first = rng.permutation(n).astype(dtype)
                from_all = reached(arcs, np.arange(n))
                worst = dtype(NONE if combine == "min" else 0)
                expected = getattr(np, combine)(np.where(from_all, first[:, None], worst), axis=0)
            lists = inputs.state_of_searches(arcs, np.arange(1))
            given = {name: lists[name] for name in ("queue", "next")} | inputs.of_graph(arcs, np.float64)
            given["queue"] = np.flatnonzero(first + dtype(combine != "or")).astype(np.uint32)
            counts = np.zeros(inputs.COUNTS, np.uint32)
            counts[[0, 3]] = given["queue"].size, 1
            given["queue"] = np.resize(given["queue"], n)
            given |= {"got_here": first, "stamp": np.zeros(n, np.uint32), "counts": counts}
            taken = {one.name for entry in spec.entry_points(config).values() for one in entry}
            values = {name: opencl_device.upload(array) for name, array in given.items() if name in taken}
            bound.launch(n, values).wait()
            got = opencl_device.download(values["got_here"])
            for one in values.values():
                one.release()
            assert np.array_equal(got, expected), describe(config)


@pytest.mark.slow
def test_a_declaration_is_cuda_c_too() -> None:
    traits = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)
    compiler, problem = find_compiler("nvrtc"), GRAPH.problem()
    for combine, ctype, team in (("or", "u64", "warp"), ("or", "u32", "item"), ("max", "u32", "grid")):
        spec = declared(combine, ctype)
        default = dict(spec.default(problem, traits))
        for config in (default | {"team": team}, default | LOOPS[1] | {"team": "item", "blocks_per_unit": 1}):
            assert spec.space.refusal(config, problem, traits) is None
            compiled = compile_cuda(render(spec, problem, config, traits).text, "sm_90", HASTY, compiler=compiler)
            assert [line for line in compiled.log.splitlines() if ": warning" in line] == []
