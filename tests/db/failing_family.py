"""A family two of whose configurations really fail: one does not compile, one asks for blocks that no device has."""

from __future__ import annotations

import jinja2
import numpy as np

from mmsbgen.kernels.family import Argument, Expected, KernelFamily, KernelSpec, Launch, Workload
from mmsbgen.kernels.problem import Parameter
from mmsbgen.kernels.render import environment
from mmsbgen.kernels.space import Axis, Space

TEMPLATE = """
{% from "common/signature.jinja" import signature with context %}
typedef uint u32;
typedef float real;
{{ signature(kernel) -}}
{
{% if broken %}
    this is no C;
{% endif %}
    const u32 i = (u32)get_global_id(0);
    if (i < n) y[i] = 2.0f * x[i];
}
"""
TOO_WIDE = 1 << 20
loader = environment().loader
assert loader is not None
environment().loader = jinja2.ChoiceLoader([loader, jinja2.DictLoader({"failing/double.jinja": TEMPLATE})])


def _workload(problem, seed: int) -> Workload:
    x = np.arange(problem["n"], dtype=np.float32)
    check = Expected(2.0 * x, 0.0 * x)
    arguments = {"x": x, "y": np.zeros_like(x), "n": np.uint32(x.size)}
    return Workload(arguments, x.size, lambda got, config: check.errors(got["y"]))


DOUBLE = KernelSpec(
    name="twice",
    template="failing/double.jinja",
    doc="y = 2 x",
    arguments=(
        Argument("x", "real", "in", "[n]"),
        Argument("y", "real", "out", "[n]"),
        Argument("n", "u32", "scalar", ""),
    ),
    parameters=("n",),
    space=Space((Axis("broken", (False, True), ""), Axis("block_size", (16, 64, TOO_WIDE), ""))),
    default=lambda problem, traits: {"broken": False, "block_size": 16},
    variables=lambda problem, config, traits: {"broken": config["broken"]},
    launch=lambda problem, config, count, traits: Launch(-(-count // config["block_size"]), config["block_size"]),
    traffic=lambda problem: 8 * problem.integer("n"),
    workload=_workload,
    check_problem=lambda problem: problem.replace(n=64),
)
FAILING = KernelFamily(
    name="failing",
    doc="a kernel of which some configurations fail",
    parameters=(Parameter("n", 1 << 12, "numbers", minimum=1, maximum=1 << 30),),
    kernels={"twice": DOUBLE},
    row_bytes=lambda problem: 1024,
)
