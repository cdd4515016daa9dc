"""A family whose configurations fail in every way that a candidate can: it doubles numbers, or tries to."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from mmsbgen.kernels.family import (
    Argument,
    Array,
    Expected,
    Judge,
    KernelFamily,
    KernelSpec,
    Launch,
    Units,
    Workload,
    all_units,
    at_turn,
)
from mmsbgen.kernels.problem import Parameter, Problem
from mmsbgen.kernels.render import environment
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

TEMPLATE = """
{% if fault in system_calls %}
/* On PoCL a kernel is code of this process: it can ask the system for anything.  x86-64 Linux. */
long system_call(long number, long a, long b, long c);
long system_call(long number, long a, long b, long c)
{
    long got;
    __asm__ volatile("movq %5, %%r10; movq $-1, %%r8; movq $0, %%r9; syscall"
                     : "=a"(got) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(0x8022L)
                     : "rcx", "r8", "r9", "r10", "r11", "memory");
    return got;
}
{% endif %}
{% if fault == "compiles without end" %}
#define A0
{% for i in range(16) %}
#define A{{ i + 1 }} A{{ i }} A{{ i }} A{{ i }} A{{ i }} A{{ i }} A{{ i }} A{{ i }} A{{ i }}
{% endfor %}
A16
{% endif %}
{% from "common/signature.jinja" import signature with context %}
typedef uint u32;
typedef float real;
{{ signature(kernel) -}}
{
{% if fault == "too much local memory" %}
    __local float wide[1 << 24];
    wide[get_local_id(0)] = x[get_global_id(0)];
{% endif %}
    const u32 i = (u32)get_global_id(0);
    if (i >= n) return;
{% if fault == "does not compile" %}
    this is no C;
{% elif fault == "wrong" %}
    y[i] = 3.0f * x[i];
{% elif fault == "not a number" %}
    y[i] = 2.0f * x[i] / (x[i] - x[i]);
{% elif fault == "hangs" %}
    volatile __global const real* one = x;
    if (i == 0) while (one[0] > -1.0f) {} /* one is enough: all would take every core until the limit */
    y[i] = one[0];
{% elif fault == "crashes" %}
    y[i] = 2.0f * x[i];
    if (i == 0) y[(ulong)1 << 44] = 1.0f;
{% elif fault == "writes behind the end" %}
    y[i] = 2.0f * x[i];
    if (i < 16) y[n + 16 + i] = 1.0f;
{% elif fault == "writes an input" %}
    y[i] = 2.0f * x[i];
    if (i == 0) ((__global real*)x)[1] = 0.0f;
{% elif fault == "allocates without end" %}
    for (;;) system_call(9, 0, 1l << 26, 3); /* mmap, with its pages filled at once */
{% elif fault == "leaves" %}
    y[i] = 2.0f * x[i];
    system_call(231, 0, 0, 0); /* exit_group: the process ends as if all were well */
{% elif fault == "loses the device" %}
    y[i] = 2.0f * x[i];
    system_call(60, 0, 0, 0); /* exit: the thread that is the device is gone, and all that waits for it waits on */
{% elif fault == "traps" %}
    __asm__ volatile("ud2");
{% elif fault == "too much local memory" %}
    barrier(CLK_LOCAL_MEM_FENCE);
    y[i] = 2.0f * wide[get_local_id(0) ^ (n > 1u << 30)];
{% elif fault == "one wrong" %}
    y[i] = (n > 1000u && i == n / 3u ? 3.0f : 2.0f) * x[i];
{% elif fault == "one left out" %}
    if (n > 1000u && i == n / 3u) return;
    y[i] = 2.0f * x[i];
{% elif fault == "first launch only" %}
    if (y[i] == 0.0f) y[i] = 2.0f * x[i];
{% else %}
    real sum = 0.0f;
    for (u32 turn = 0; turn < {{ turns }}u; ++turn) sum += ((volatile __global const real*)x)[i];
    y[i] = sum * {{ 2.0 / turns }}f;
{% endif %}
}
"""
SYSTEM_CALLS = ("allocates without end", "leaves", "loses the device")
FAULTS = (
    "slow",
    "does not compile",
    "wrong",
    "not a number",
    "hangs",
    "crashes",
    "too much local memory",
    "compiles without end",
    "writes behind the end",
    "writes an input",
    *SYSTEM_CALLS,
    "traps",
    "cannot be checked",
    "none",
)
loader = environment().loader
assert loader is not None
environment().loader = jinja2.ChoiceLoader([loader, jinja2.DictLoader({"faulty/double.jinja": TEMPLATE})])


def _checkable(config: Config, problem: Problem, traits: Traits) -> str | None:
    small = problem.integer("n") < 100
    return "not at this size" if config["fault"] == "cannot be checked" and small else None


def _workload(problem: Problem, seed: int) -> Workload:
    n, room = problem.integer("n"), problem.integer("room")
    x = np.random.default_rng(seed).integers(1, 100, n).astype(np.float32)

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        return Expected(2.0 * x, 1e-4 * x).errors(got["y"][:n])

    return Workload({"x": x, "y": np.zeros(n + room, np.float32), "n": np.uint32(n)}, n, verify)


def _launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    return Launch(-(-count // int(config["block_size"])), int(config["block_size"]))


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    _stop(config)
    return {"fault": config["fault"], "system_calls": SYSTEM_CALLS, "turns": 64 if config["fault"] == "slow" else 1}


def _stop(config: Config) -> None:
    """Leave the number of this process in the folder ``FAULTY_STOPS`` and wait to be killed.

    With the configuration that hangs whenever it is built, with one that works the first time.  Only in the process of
    a trial: others render programs for their digests.
    """
    folder = os.environ.get("FAULTY_STOPS")
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is None or program.name != "mmsbgen.tuner.measure.trial_process":
        return
    if folder is None or (config["fault"], config["block_size"]) not in (("hangs", 16), ("none", 128)):
        return
    name = str(config["fault"])
    if name == "hangs" or not list(Path(folder).glob(f"{name} *")):
        (Path(folder) / f"{name} {os.getpid()}").touch()
        time.sleep(600)


DOUBLE = KernelSpec(
    name="twice",
    template="faulty/double.jinja",
    doc="y = 2 x",
    arguments=(
        Argument("x", "real", "in", "[n]"),
        Argument("y", "real", "out", "[n]"),
        Argument("n", "u32", "scalar", ""),
    ),
    parameters=("n",),
    space=Space(
        (Axis("fault", FAULTS, ""), Axis("block_size", (16, 64), "")),
        (Constraint("checkable", _checkable),),
    ),
    default=lambda problem, traits: {"fault": "slow", "block_size": 16},
    variables=_variables,
    launch=_launch,
    traffic=lambda problem: 8 * problem.integer("n"),
    workload=_workload,
    check_problem=lambda problem: problem.replace(n=64),
)
SOUND = replace(
    DOUBLE,
    name="many",
    space=Space((Axis("fault", ("slow", "none", "wrong"), ""), Axis("block_size", tuple(range(8, 17)), "")), ()),
)


def _once(config: Config, problem: Problem, traits: Traits) -> str | None:
    return "one is enough" if config["fault"] == "hangs" and config["block_size"] != 16 else None


HANGING = replace(
    DOUBLE,
    name="some",
    space=Space(
        (Axis("fault", ("slow", "none", "wrong", "hangs"), ""), Axis("block_size", (16, 32, 64, 128), "")),
        (Constraint("once", _once),),
    ),
)
REFERENCE_S = 0.05
"""How long the reference of `each` takes: that of a large mini-batch takes seconds."""


def _each(problem: Problem, seed: int) -> Workload:
    rng, n = np.random.default_rng(seed), problem.integer("n")
    xs = [rng.integers(1, 100, n).astype(np.float32) for _ in range(3)]
    arguments = {"x": xs[0], "y": np.zeros(n, np.float32), "n": np.uint32(n)}
    rotations: list[dict[str, Array]] = [{"x": x} for x in xs[1:]]

    def reference(units: Array, turn: int) -> Judge:
        time.sleep(REFERENCE_S)
        x = at_turn(arguments, rotations, turn)["x"][units]
        return lambda got, config: Expected(2.0 * x, 1e-4 * x).errors(got["y"])

    units = (Units(n, lambda units: {"y": units}, reference),)
    return Workload(arguments, n, all_units(units), rotations, units)


LARGE_FAULTS = ("none", "one wrong", "one left out", "first launch only")
EACH = replace(
    DOUBLE,
    name="each",
    space=Space((Axis("fault", LARGE_FAULTS, ""), Axis("block_size", (16, 64), "")), ()),
    default=lambda problem, traits: {"fault": "none", "block_size": 16},
    workload=_each,
)
LYING = replace(EACH, name="lying", traffic=lambda problem: 10**9 * problem.integer("n"))
FAULTY = KernelFamily(
    name="faulty",
    doc="kernels that fail",
    parameters=(
        Parameter("n", 1 << 20, "numbers", minimum=1, maximum=1 << 30),
        Parameter("room", 0, "elements behind them"),
    ),
    kernels={"twice": DOUBLE, "many": SOUND, "some": HANGING, "each": EACH, "lying": LYING},
    row_bytes=lambda problem: 1024,
)
