"""Selects the kernels of a run, each in its best known configuration."""

from __future__ import annotations

from collections.abc import Iterable

from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.minibatch.block_partners import LINKS, LINKS_DRAWN, THETA, THETA_DRAWN
from mmsbgen.sampler.minibatch.partners import SWEEP, SWEEP_DRAWN
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.state.device_state import StateShape

#: Kernels of every run with sparse rows.
_SPARSE = (
    "theta_end",
    "update_beta",
    "sparse_pairs",
    "perplexity_sum",
    "sparse_links",
    "sparse_places",
    "sparse_shares",
    "sparse_gather",
)
#: Kernels over sparse rows that do what others do over dense ones, by these.
_INSTEAD = {"perplexity_pairs": "sparse_pairs", "explain_links": "sparse_links", "explain_at": "sparse_places"}
#: Kernels of every run with dense rows.
_EVERY = (
    "exchange_slots",
    "theta_end",
    "update_beta",
    "init_pi",
    "gather_rows",
    "perplexity_pairs",
    "perplexity_sum",
)


def chosen(
    runtime: Runtime,
    problem: Problem,
    options: Options,
    shape: StateShape,
    own: Iterable[str],
    kernels: dict[str, BoundKernel],
) -> None:
    """Put the kernels of a run into ``kernels``: ``own`` (of mini-batches and phi's update) and the common ones.

    ``block_links draws`` and ``theta_end draws`` are those of blocks that sample.  ``add_moments`` takes rows into the
    posterior mean and its standard deviations, ``add_rows`` into a mean alone; ``mean_rows`` reads the mean if rows are
    stored in 16 bits.
    """
    own = tuple(own)
    if options.sparse:
        wanted = [*own, *_SPARSE]
        runtime.compile_ahead(wanted, problem)
        kernels |= {name: runtime.kernel(name, problem) for name in wanted}
        kernels |= {name: kernels[other] for name, other in _INSTEAD.items()}
        if options.sample_sweeps:
            kernels[SWEEP_DRAWN] = runtime.variant(SWEEP, problem, SWEEP_DRAWN)
            kernels[THETA_DRAWN] = runtime.variant(THETA, problem.replace(noise="on", theta_step="wright-fisher"))
            kernels["add_moments"] = runtime.kernel("sparse_moments", problem)
        return
    wanted = [*own, *_EVERY, *(("explain_links", "explain_at") if options.refines else ())]
    wanted += ["add_moments"] * options.keeps_spread
    runtime.compile_ahead(wanted, problem)
    for name in wanted:
        kernels[name] = runtime.kernel(name, problem)
    if kernels["gather_rows"].config["accumulate"]:
        # A tuning record may be of the accumulating mode, which must not be used here.
        kernels["gather_rows"] = runtime.variant("gather_rows", problem, accumulate=False)
    if "update_phi" in kernels and not kernels["update_phi"].config["normalise"]:
        kernels["update_pi"] = runtime.kernel("update_pi", problem)
    # The configurations of the kernels without noise, so that one tuning record serves both.
    drawn = problem.replace(noise="on", theta_step="wright-fisher")
    if options.sample_sweeps:
        kernels[LINKS_DRAWN] = runtime.variant(LINKS, drawn)
    if options.sample_sweeps or (options.block and options.draws_noise):
        kernels[THETA_DRAWN] = runtime.variant(THETA, drawn)
    if options.keeps_mean:
        if not options.keeps_spread:
            kernels["add_rows"] = runtime.variant("gather_rows", problem, accumulate=True)
        if shape.stored.narrow:
            # The mean is stored in the real type, not in that of the rows.
            of_reals = MMSB.problem(**dict(problem) | {"storage": STORAGES[0]})
            kernels["mean_rows"] = runtime.variant("gather_rows", of_reals)
