"""Scalar kernel arguments of a run and of one iteration."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mmsbgen.families.mmsb.numbers.sparse_rows import THRESHOLD
from mmsbgen.families.mmsb.sparse.sparse_sizes import least_of
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.minibatch.batch_sources import Batch
from mmsbgen.sampler.minibatch.block_partners import theta_scales

Real = np.floating[Any]


class RunScalars(NamedTuple):
    """Scalars that are constant in a run, by the kernels' argument names."""

    n_partners: np.uint32
    n_link_partners: np.uint32
    n_total: np.uint32
    alpha: Real
    delta: Real
    eta_0: np.float64
    eta_1: np.float64
    seed: np.uint64
    non_link_scale: Real
    link_scale: Real
    floor_pi: Real
    least_pi: Real
    non_link_weight: Real
    inverse_n: Real
    first_vertex: np.uint32 = np.uint32(0)
    """For the kernels that draw, which start at vertex 0."""

    @classmethod
    def of(cls, plan: Plan) -> RunScalars:
        """The scalars of a plan."""
        options, rule, real = plan.options, plan.rule, plan.shape.real.type
        per_sweep = plan.sweeps.per_sweep if plan.sweeps else 1
        # Partners are drawn from all vertices; sums over sparse rows are of those in sweeps.
        n = plan.sweeps.n_vertices if plan.sweeps and options.sparse else plan.shape.n_vertices
        return cls(
            np.uint32(rule.n),
            np.uint32(rule.n_link),
            np.uint32(n),
            real(options.prior),
            real(options.crossing),
            np.float64(options.eta[0]),
            np.float64(options.eta[1]),
            np.uint64(options.seed),
            **theta_scales(per_sweep, plan.sources.nonlink_factor(), plan.shape.real),
            floor_pi=real(plan.shape.floor),
            least_pi=real(least_of(plan.problem) if options.sparse else 0.0),
            non_link_weight=real(plan.sources.nonlink_factor()),
            inverse_n=real(1.0 / n),
        )


class StepScalars(NamedTuple):
    """Scalars that change in every iteration, by the kernels' argument names."""

    iteration: np.uint32
    n_vertices: np.uint32
    first_vertex: np.uint32
    shared_round: np.uint32
    half_step: Real
    threshold: Real
    decay: Real
    spread: Real
    step: np.float64
    n_groups: np.uint32
    n_pairs: np.uint32
    first_pair: np.uint64

    @classmethod
    def of(
        cls, iteration: int, batch: Batch, shared_round: int, eps: float, theta_step: float, groups: int, real: Any
    ) -> StepScalars:
        """The scalars of an iteration; ``eps`` is phi's step, ``theta_step`` theta's, ``real`` the type of reals."""
        return cls(
            np.uint32(iteration),
            np.uint32(batch.n_vertices),
            np.uint32(batch.first),
            np.uint32(shared_round),
            real(eps / 2),
            real(THRESHOLD * eps / 2),
            real(math.exp(-eps / 2)),
            real(-math.expm1(-eps / 2)),
            np.float64(theta_step),
            np.uint32(groups),
            np.uint32(batch.n_pairs),
            np.uint64(batch.first),
        )
