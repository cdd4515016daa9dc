"""Short chains on a small graph, made in two ways that are to give the same state; for the scripts that check GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.stars.star_loop import STAGES, StarLoop, fitted, star_loop
from mmsbgen.graph import Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.family import Array
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options


class Tolerance(NamedTuple):
    """``|x - y| <= absolute + relative |y|``, as NumPy has it."""

    relative: float
    absolute: float

    def of(self, x: Array, y: Array) -> Array:
        """The differences of two arrays, in tolerances."""
        off: Array = np.abs(x.astype(np.float64) - y) / (self.absolute + self.relative * np.abs(y.astype(np.float64)))
        return off


#: By type.  Of float64: that of tests/sampler/test_loop.py, of chains with draws.  Of float32: of chains without, as a
#: draw that the last bit of an input decides makes another row; other widths and blocks are off by a tenth of it.
TOLERANCES = {"float64": Tolerance(1e-6, 1e-12), "float32": Tolerance(1e-4, 1e-7)}


class Agreement(NamedTuple):
    """How two states agree: in every bit or not, the largest difference in tolerances, and the share beyond one."""

    same_bits: bool
    worst: float
    share_off: float

    @property
    def wrong(self) -> str | None:
        """None where they agree within the tolerance, else what is wrong."""
        return None if self.worst <= 1 else f"{self.share_off:.1%} are off, the worst by {self.worst:.3g} tolerances"


#: Of chains that make another number of updates.
_APART = Agreement(False, float("inf"), 1.0)


def small() -> Split:
    """60 vertices, four of them without a link, and some 200 links at random, of which a tenth is held out."""
    rng = np.random.default_rng(5)
    pairs = np.unique(np.sort(rng.integers(0, 56, (260, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    graph = build_graph(pairs[:, 0], pairs[:, 1], np.arange(60), name="small", directed=False)
    return split(graph, validation=0.1, seed=1)


def star_options(k: int, **others: Any) -> Options:
    """Options of stars on the small graph."""
    return Options(n_communities=k, seed=11, mini_batch="random-node", mini_batch_size=30, delta=1e-4, **others)


def loop_configs(parts: Split, options: Options, device: Device) -> tuple[dict[str, Config], StarLoop]:
    """The configurations that the stages of a fused chain have by default, and the loop of them."""
    problem, traits = Plan(parts, options, device.info).problem, traits_of(device.info)
    defaults = {name: MMSB.kernel(name).default(problem, traits) for name in STAGES}
    configs = fitted(MMSB.kernels, problem, defaults, traits)
    return configs, star_loop(MMSB.kernels, problem, configs, traits)


@contextmanager
def chain(
    device: Device, parts: Split, options: Options, configs: Mapping[str, Config] | None = None, *, fused: bool = False
) -> Iterator[Sampler]:
    """A started chain in default configurations but for those given."""
    runtime = Runtime(device, MMSB, None, dict(configs or {}))
    sampler = Sampler(parts, options, runtime, fused=fused)
    profiling, device.profiling = device.profiling, False
    try:
        sampler.initialise()
        yield sampler
    finally:
        device.profiling = profiling
        sampler.close()


def everything(sampler: Sampler) -> tuple[Array, ...]:
    """pi ``[N, K]``, row sums, theta and beta."""
    return (*sampler.rows(0, sampler.split.graph.n_vertices), sampler.state.theta(), sampler.state.beta())


def agreement(one: tuple[Array, ...], other: tuple[Array, ...], tolerance: Tolerance) -> Agreement:
    """How two states agree; what is not finite is off by infinitely much."""
    off = np.concatenate([tolerance.of(x, y).ravel() for x, y in zip(one, other, strict=True)])
    off[~np.isfinite(off)] = np.inf
    same = all(x.tobytes() == y.tobytes() for x, y in zip(one, other, strict=True))
    return Agreement(same, float(off.max()), float(np.mean(off > 1)))


#: Makes a chain, as :func:`chain` does.
Maker = Callable[[], AbstractContextManager[Sampler]]


def compared(one: Maker, other: Maker, iterations: int, tolerance: Tolerance, launches: int = 1) -> Agreement:
    """Two chains from the same start after so many iterations, in ``launches`` where a launch makes several."""
    states, updates = [], []
    for make in (one, other):
        with make() as sampler:
            for part in range(launches):
                sampler.iterate(iterations * (part + 1) // launches - sampler.iteration)
            states.append(everything(sampler))
            updates.append(sampler.chain.vertex_updates)
    return agreement(states[0], states[1], tolerance) if updates[0] == updates[1] > 0 else _APART
