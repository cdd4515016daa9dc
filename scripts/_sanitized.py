"""A small program for compute-sanitizer: defaults, the package's records, placements, and chains of launches.

``_sanitized.py DEVICE [K ...]`` prints one line for each that was run, ``ok`` or ``wrong`` with its group and what is
wrong, one that begins with ``skipped`` for what the device cannot run, and ends with status 1 when an answer was wrong.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from _chains import TOLERANCES, chain, compared, loop_configs, small, star_options

from mmsbgen.backends import Device, DeviceInfo, open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.selection.index import Index
from mmsbgen.families import family
from mmsbgen.graph import Split
from mmsbgen.kernels.build import check, compile_side_by_side, traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.runtime import look_up
from mmsbgen.kernels.space import Config, Traits, describe
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options

KS = (100, 1024)
_SHARED = ("draw_shared", "star_marks", "star_factors", "star_scales", "star_sums", "star_rows")
#: Runs for which the records of the package are looked up, and the kernels that each adds: the paper's stars,
#: stars that share, blocks, and what all have.
RUNS: tuple[tuple[dict[str, int | str], tuple[str, ...]], ...] = (
    (
        {"N": 317080, "m": 4096, "n": 32, "partners": "uniform"},
        ("draw_stars", "sample_partners", "update_phi", "update_pi", "theta_partial", "theta_end", "update_beta"),
    ),
    ({"N": 317080, "m": 4096, "n": 256, "partners": "shared"}, _SHARED),
    ({"N": 317080, "m": 4096, "n": 256, "partners": "shared-uniform"}, _SHARED),
    (
        {"N": 317080, "m": 32768, "n": 512, "partners": "block", "theta_step": "gain"},
        ("shared_partners", "block_factors", "block_scales", "block_strike", "block_sums", "block_links", "theta_end"),
    ),
    ({"N": 317080}, ("init_pi", "gather_rows", "perplexity_pairs")),
)
#: Communities and iterations of chains.
CHAIN_K, ITERATIONS = 100, 4
#: Blocks of the fused kernel.  They wait for each other, and under a sanitizer fewer are resident than it counts on.
BLOCKS = 16
#: Share of a state that draws may decide otherwise.
FLIPPED = 0.1


class Case(NamedTuple):
    """A configuration to run, in its group of the report."""

    group: str
    spec: KernelSpec
    problem: Problem
    config: Config


def recorded(kernels: KernelFamily, info: DeviceInfo, k: int) -> Iterator[Case]:
    """What a run on this device has by the records that come with the package; nothing where they have none for it."""
    traits, seen = traits_of(info), set()
    written = kernels.written_in(traits.dialect)
    products = "half" if traits.dialect == "cuda" else "single"
    index = Index()
    for run, names in RUNS:
        for name in (name for name in names if name in written):
            spec, problem = written[name], kernels.problem(K=k, products=products, **run)
            found = look_up(index, info, kernels, name, problem)
            case = Case("records of the package", spec, spec.check_problem(problem), found.config)
            what = name, case.problem, describe(found.config)
            if found.tier != "default" and what not in seen:
                seen.add(what)
                yield case


def chosen(kernels: KernelFamily, traits: Traits, k: int) -> Iterator[Case]:
    """What runs at one K: draws are on, so that every part of a row's end is seen."""
    written = kernels.written_in(traits.dialect).values()
    for spec in written:
        problem = spec.check_problem(kernels.problem(K=k))
        yield Case("defaults", spec, problem, spec.default(problem, traits))
    for spec in written:
        problem = spec.check_problem(kernels.problem(K=k))
        for placement in next((axis.values for axis in spec.space.axes if axis.name == "placement"), ()):
            config = one_of(spec, problem, traits, str(placement))
            if config is not None:
                yield Case(f"placements of {spec.name}", spec, problem, config)
            else:
                print(f"skipped placements of {spec.name}: K={k} {placement} has no configuration here")


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


@contextmanager
def few_blocks(device: Device, parts: Split, options: Options, configs: Mapping[str, Config]) -> Iterator[Sampler]:
    """A fused chain of fewer blocks."""
    with chain(device, parts, options, configs, fused=True) as sampler:
        assert sampler.loop is not None
        sampler.loop.grid = min(sampler.loop.grid, BLOCKS)
        yield sampler


def fused(device: Device) -> str | None:
    """Stars by star_loop, in two launches: None, or what is wrong."""
    parts, options = small(), star_options(CHAIN_K)
    configs, _ = loop_configs(parts, options, device)
    few = partial(few_blocks, device, parts, options, configs)
    plain = partial(chain, device, parts, options, configs)
    found = compared(few, plain, ITERATIONS, TOLERANCES[options.dtype], launches=2)
    # A draw that flips on the last bit of its input makes another row of the 60.
    return found.wrong if found.share_off > FLIPPED else None


def chains(device: Device) -> Iterator[tuple[str, str, Callable[[], str | None]]]:
    """Group, description and check of each chain that the device can make; says what it cannot."""
    about = f"K={CHAIN_K} iterations={ITERATIONS}"
    if device.info.backend == "cuda":
        yield "fused chain", f"star_loop {about}", partial(fused, device)
    else:
        print("skipped fused chain: star_loop needs CUDA")


def tell(group: str, what: str, run: Callable[[], str | None]) -> bool:
    """Run one thing and print its line; whether it was right."""
    try:
        said = run()
    except MmsbgenError as error:
        said = str(error)
    print(f"{'ok' if said is None else 'wrong'} {group}: {what} {said or ''}".strip())
    return said is None


def main(device_spec: str, ks: tuple[int, ...]) -> int:
    """Run all of it on a device; returns the exit status."""
    kernels, right = family(), []
    with open_device(device_spec) as device:
        cases = [case for k in ks for case in chosen(kernels, traits_of(device.info), k)]
        cases += [case for k in ks for case in recorded(kernels, device.info, k)]
        compile_side_by_side(device, [(case.spec, case.problem, case.config) for case in cases])
        for case in cases:
            what = f"{case.spec.name} {describe(case.problem.only(('K',)))} {describe(case.config)}"
            right.append(tell(case.group, what, partial(check, device, case.spec, case.problem, case.config)))
        right += [tell(*one) for one in chains(device)]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], tuple(map(int, sys.argv[2:])) or KS))
