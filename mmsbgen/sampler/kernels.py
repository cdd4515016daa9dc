"""The kernels of a run, each in the best configuration that is known."""

from __future__ import annotations

from mmsbgen.build import BoundKernel
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.storage import STORAGES
from mmsbgen.problem import Problem
from mmsbgen.runtime import Runtime
from mmsbgen.sampler import blocks
from mmsbgen.sampler.options import Options
from mmsbgen.sampler.state import Shape


def chosen(
    runtime: Runtime, problem: Problem, options: Options, shape: Shape, stars: bool, kernels: dict[str, BoundKernel]
) -> None:
    """Put the kernels of a run into ``kernels``; with ``stars`` the one that draws those on the device.

    ``block_links draws`` ends a block's rows in the sweeps that sample; ``add_rows`` adds rows to the posterior mean,
    ``mean_rows`` reads it where rows are stored in 16 bits.
    """
    names = blocks.kernels(problem) if options.block else ("sample_partners", "update_phi", "theta_partial")
    for name in (*names, "exchange_slots", "theta_end", "update_beta"):
        kernels[name] = runtime.kernel(name, problem)
    for name in ("init_pi", "gather_rows", "perplexity_pairs", "perplexity_sum"):
        kernels[name] = runtime.kernel(name, problem)
    if kernels["gather_rows"].config["accumulate"]:
        # A record of the other mode tells how fast that one is, not what is wanted here.
        kernels["gather_rows"] = runtime.variant("gather_rows", problem, accumulate=False)
    if stars:
        kernels["draw_stars"] = runtime.kernel("draw_stars", problem)
    if not options.block and not kernels["update_phi"].config["normalise"]:
        kernels["update_pi"] = runtime.kernel("update_pi", problem)
    if options.sample_sweeps:
        # In the configuration of the kernel without draws: one choice, one record.
        kernels["block_links draws"] = runtime.variant("block_links", problem.replace(noise="on"))
    if options.average:
        kernels["add_rows"] = runtime.variant("gather_rows", problem, accumulate=True)
        if shape.stored.narrow:
            # The mean is of reals, whatever the rows are stored in.
            of_reals = MMSB.problem(**dict(problem) | {"storage": STORAGES[0]})
            kernels["mean_rows"] = runtime.variant("gather_rows", of_reals)
