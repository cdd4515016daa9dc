"""A small program for compute-sanitizer: the default of every kernel, and update_phi in each placement.

``_sanitized.py DEVICE [K ...]`` prints one line for each configuration, ``ok`` or what is wrong with its answer, and
ends with status 1 when an answer was wrong.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from mmsbgen.backends import open_device
from mmsbgen.build import check, traits_of
from mmsbgen.errors import CompileError, LaunchError
from mmsbgen.families import family
from mmsbgen.family import KernelFamily, KernelSpec
from mmsbgen.problem import Problem
from mmsbgen.space import Config, Traits, describe

KS = (100, 1024)


def chosen(kernels: KernelFamily, traits: Traits, k: int) -> Iterator[tuple[KernelSpec, Problem, Config]]:
    """What runs at one K: draws are on, so that every part of a row's end is seen."""
    for spec in kernels.written_in(traits.dialect).values():
        problem = spec.check_problem(kernels.problem(K=k))
        yield spec, problem, spec.default(problem, traits)
    spec = kernels.kernel("update_phi")
    problem = spec.check_problem(kernels.problem(K=k))
    for placement in next(axis.values for axis in spec.space.axes if axis.name == "placement"):
        config = one_of(spec, problem, traits, str(placement))
        if config is not None:
            yield spec, problem, config


def one_of(spec: KernelSpec, problem: Problem, traits: Traits, placement: str) -> Config | None:
    """A valid configuration of a placement, of those with most to go wrong: several sub-groups share a row."""
    rng = random.Random(placement)
    axes = {axis.name: axis.values for axis in spec.space.axes} | {"placement": (placement,)}
    best, most = None, -1
    for _ in range(20_000):
        config = {name: rng.choice(values) for name, values in axes.items()}
        shared = (config["team"] == "block") + (config["block_size"] in (64, 96, 128, 256)) + config["rows_in_flight"]
        if int(shared) > most and spec.space.refusal(config, problem, traits) is None:
            best, most = config, int(shared)
    return best


def main(device_spec: str, ks: tuple[int, ...]) -> int:
    """Run all of it on a device; returns the exit status."""
    kernels, wrong = family(), 0
    with open_device(device_spec) as device:
        for k in ks:
            for spec, problem, config in chosen(kernels, traits_of(device.info), k):
                try:
                    said = check(device, spec, problem, config)
                except (CompileError, LaunchError) as error:
                    said = str(error)
                wrong += said is not None
                print(f"{'ok' if said is None else 'wrong'} {spec.name} K={k} {describe(config)} {said or ''}".strip())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], tuple(map(int, sys.argv[2:])) or KS))
