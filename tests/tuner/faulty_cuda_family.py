"""A family in CUDA C whose configurations leave the device's context in ruins: it doubles numbers, or tries to."""

from __future__ import annotations

from dataclasses import replace

import jinja2
from faulty_family import DOUBLE, FAULTY

from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import environment
from mmsbgen.kernels.space import Axis, Config, Space, Traits

TEMPLATE = """
{% from "common/signature.jinja" import signature with context %}
#ifndef __CUDACC_RTC__
#include <cassert>
#endif
typedef unsigned int u32;
typedef float real;
{{ signature(kernel) -}}
{
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
{% if fault == "illegal address" %}
    *(volatile real*)(((unsigned long long)1 << 50) + sizeof(real) * i) = x[i];
{% elif fault == "misaligned address" %}
    *(volatile real*)((char*)y + 1) = x[i];
{% elif fault == "assert" %}
    assert(x[i] < 0.0f);
{% elif fault == "trap" %}
    if (x[i] > 0.0f) asm volatile("trap;");
{% elif fault == "endless" %}
    while (((volatile const real*)x)[i] > -1.0f) {}
{% endif %}
    real sum = 0.0f;
    for (u32 turn = 0; turn < {{ turns }}u; ++turn) sum += ((volatile const real*)x)[i];
    y[i] = sum * {{ 2.0 / turns }}f;
}
"""
FAULTS = ("slow", "illegal address", "misaligned address", "assert", "trap", "endless", "none")
loader = environment().loader
assert loader is not None
environment().loader = jinja2.ChoiceLoader([loader, jinja2.DictLoader({"faulty/double_cuda.jinja": TEMPLATE})])


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, object]:
    return {"fault": config["fault"], "turns": 64 if config["fault"] == "slow" else 1}


TWICE = replace(
    DOUBLE,
    template="faulty/double_cuda.jinja",
    space=Space((Axis("fault", FAULTS, ""), Axis("block_size", (64, 128), "")), ()),
    default=lambda problem, traits: {"fault": "slow", "block_size": 64},
    variables=_variables,
)
FAULTY_CUDA = replace(FAULTY, kernels={"twice": TWICE})
