"""The sampler: one chain on one device, with the six stages of the paper's Algorithm 1."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.backends.base import Event
from mmsbgen.base.errors import CompileError, ConfigError, InputError
from mmsbgen.families.mmsb.blocks.link_kernels import links_groups
from mmsbgen.graph import Split
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.family import Array
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.chain_kernels import chosen
from mmsbgen.sampler.chain.fused_loop import Loop, fused_by_default
from mmsbgen.sampler.chain.kernel_arguments import RunScalars, StepScalars
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.minibatch.batch_sources import Batch, Batches, BlockBatches
from mmsbgen.sampler.minibatch.block_partners import LINKS, LINKS_DRAWN, THETA, THETA_DRAWN
from mmsbgen.sampler.minibatch.drawn_ahead import DrawnAhead
from mmsbgen.sampler.minibatch.partners import OwnPartners
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.phases import Phases
from mmsbgen.sampler.options.schedule import FOLLOWING_SWEEPS, SAMPLE_STEP
from mmsbgen.sampler.posterior.draws import DrawRecorder
from mmsbgen.sampler.ranks.sharing import SharedSweeps, Team
from mmsbgen.sampler.starts.start_methods import Start, first_theta
from mmsbgen.sampler.state import arrays, buffers
from mmsbgen.sampler.state.chain_state import ChainState
from mmsbgen.sampler.state.device_state import State
from mmsbgen.sampler.state.sparse_state import SparseState
from mmsbgen.sampler.state.stage_clock import StageClock


class Sampler:
    """A chain on a split graph.

    The constructor checks the memory, allocates and builds the kernels.  :meth:`initialise` starts the chain.
    :meth:`advance` runs one or more iterations; :meth:`step` runs one iteration with separate launches of its kernels.

    Args:
        split: the graph with its training links and held-out pairs.
        options: the options of the run.
        runtime: the device and the selection of kernels.
        fused: whether one persistent kernel runs many iterations of stars per launch; None: if
            :func:`fused_by_default` says so and the device supports it.
        plan: the plan for these options on this device, if it exists and fits.
        team: the ranks that share sweeps over sparse rows, if there are several.

    Raises:
        DeviceMemoryError: if the chain does not fit.
        ConfigError: if ``fused`` is True and the device does not support it.
        InputError: if ``fused`` is True and the mini-batches or partners do not support it.
    """

    def __init__(
        self,
        split: Split,
        options: Options,
        runtime: Runtime,
        fused: bool | None = False,
        plan: Plan | None = None,
        team: Team | None = None,
    ) -> None:
        if plan is None:
            plan = Plan(split, options, runtime.device.info)
            plan.require(runtime.device.allocated)
        self.needs = plan.needs
        self.split = split
        self.options = options = plan.options
        self.runtime = runtime
        self.device = runtime.device
        self.sources, self.sweeps = plan.sources, plan.sweeps
        self.max_vertices, self.capacity = plan.max_vertices, plan.capacity
        self.rule, self.problem, self.shape, self.partners = plan.rule, plan.problem, plan.shape, plan.partners
        self.per_sweep = plan.sweeps.per_sweep if plan.sweeps else 1
        """Iterations per sweep of blocks; 1 for other mini-batches."""
        self.left_out: Array = split.unlinked if plan.sweeps else np.zeros(0, np.int64)
        """Vertices that no block contains, as they have no training links; ascending."""
        self.theta_scale = plan.theta_scale
        self.chain = self._first()
        """State of the chain on the host; replacing it does not change the arrays on the device."""
        self.stages = StageClock(runtime.device)
        """Seconds by stage."""

        self.kernels: dict[str, BoundKernel] = {}
        self.values: dict[str, Any] = {}
        """Arrays and constant scalars, by the kernels' argument names."""
        self._at_step: dict[str, Any] = {}
        """The same with the scalars of the current iteration."""
        self.held_values: dict[str, Any] = {}
        self.shared: SharedSweeps | None = None
        """This rank's part in sweeps that several ranks share."""
        self.loop: Loop | None = None
        """The persistent kernel, in fused mode."""
        held = split.validation
        self.draws = DrawRecorder(held.pairs, held.labels, self.shape.k) if options.samples else None
        """Draws that the chain has kept; None for a run that optimises."""
        kind = SparseState if options.sparse else State
        self.state = kind(self.device, self.shape, options.keeps_mean, options.keeps_spread)
        try:
            placed, held_out = arrays.place(self.device, plan.specs)
            scalars = RunScalars.of(plan)._asdict() | buffers.edge_set_scalars(plan.links, plan.held)
            self.values = self.state.buffers | placed | scalars
            self._at_step = dict(self.values)
            self.held_values = self.values | held_out | {"n_pairs": np.uint32(len(split.validation.pairs))}
            self.state.users += [self.values, self._at_step, self.held_values]
            own = self.partners.kernels + (() if options.block else ("theta_partial", "draw_stars"))
            if plan.starts_from_sets and not self.shape.stored.narrow and not options.sparse:
                own += ("place_rows",)
            chosen(runtime, self.problem, options, self.shape, own, self.kernels)
            if team is not None and isinstance(self.state, SparseState):
                config = self.kernels["sparse_rows"].config
                given = team, split, self.problem, self.state, self.values, config, self._undo, options.samples
                self.partners = self.shared = SharedSweeps(*given)
            self.batches = self._batches(plan.rounds)
            if fused or (fused is None and fused_by_default(self.device.info.backend, options.mini_batch)):
                self.loop = self._loop(fused)
        except BaseException:
            self.close()
            raise

    @property
    def iteration(self) -> int:
        """Number of iterations so far."""
        return self.chain.iteration

    @property
    def course(self) -> Phases:
        """The phases of the run so far."""
        return self.chain.course

    def clear_samples(self) -> None:
        """Drop the samples so far: the sums of posterior means and deviations of pi, and the draws."""
        for name in {"mean", "squares"} & self.values.keys():
            for first, stop in self.state_chunks():
                zeros = np.zeros((stop - first, self.shape.row), self.shape.real)
                self.device.write(self.values[name], zeros, first)
        if self.draws is not None:
            self.draws.clear()

    def _first(self) -> ChainState:
        return ChainState.first(len(self.split.validation.pairs), self.options.n_communities)

    # Schedule ------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Time of the schedule: iterations of stars, or sweeps of blocks with set-backs by refinements."""
        if self.options.block:
            return self.course.clock_at + (self.iteration - self.course.clock_from) / self.per_sweep
        return float(self.iteration)

    @property
    def limit(self) -> int:
        """The last iteration or, while that is open, the one at which it must be decided."""
        return self.course.limit(self.options, self.per_sweep)

    @property
    def sampling(self) -> bool:
        """Whether the current iteration is of the sampling sweeps, after the optimum or (with noise) the burn-in."""
        options, begin = self.options, self.course.sampling_from
        if begin is not None:
            return self.iteration > begin
        return options.block and options.draws_noise and self.course.burnt_in(options, self.iteration)

    @property
    def eps(self) -> float:
        """Step size of the current iteration."""
        options = self.options
        if self.sampling and (options.phased or options.schedule is None):
            return SAMPLE_STEP
        return options.step_sizes(self.time)

    @property
    def _draws_theta(self) -> bool:
        """Whether theta of blocks is drawn in the current iteration; else it follows its expected counts."""
        return self.sampling or (self.options.draws_noise and self.iteration > FOLLOWING_SWEEPS * self.per_sweep)

    def _batches(self, rounds: int) -> Batches:
        partners, device, values, real = self.partners, self.device, self.values, self.shape.real
        if self.sweeps is not None:
            return BlockBatches(self.sweeps, partners, device, values)
        return DrawnAhead(self.sources, partners, device, values, self.max_vertices, rounds, real)

    def _loop(self, asked: bool | None) -> Loop | None:
        """The persistent kernel, or None if it is not supported; raises only if ``asked``."""
        if not isinstance(self.batches, DrawnAhead) or not isinstance(self.partners, OwnPartners):
            if asked:
                what = f"{self.options.mini_batch} mini-batches with {self.rule.name} partners"
                raise InputError(f"fused iterations are for stars with uniform or stratified partners, not for {what}")
            return None
        try:
            return Loop(self.device, self.kernels, self.values, self.batches, self.shape.real)
        except (ConfigError, CompileError):
            if asked:
                raise
            return None

    def state_chunks(self) -> list[tuple[int, int]]:
        """Ranges of vertices ``(first, stop)`` in which the state is read."""
        return list(State.chunk_ranges(self.shape))

    def close(self) -> None:
        """Release all device memory."""
        if self.loop is not None:
            self.loop.release()
        if self.shared is not None:
            self.shared.close()
        self.state.release()
        arrays.release([*self.values.values(), *self.held_values.values()])

    # The chain -----------------------------------------------------------------------------------------------

    def initialise(self, start: Start | None = None) -> None:
        """Start the chain: rows of pi are drawn from Dirichlet(1, ..., 1) or set from the sets of ``start``.

        theta is drawn from Gamma(eta, 1); for blocks it is a guess, which the first sweep replaces.
        """
        self.clipped()
        chain = self._first()
        self.chain = chain if start is None else chain._replace(course=Phases(start=start.name))
        if isinstance(self.state, SparseState):
            sets = (np.zeros(0, np.int64),) * 2 if start is None else (start.vertices, start.communities)
            size = self.options.initial_row_sum or float(self.shape.k)
            self.state.place(*sets, self.left_out, self.options.seed, size)
        else:
            self._initialise_rows(start)
        self.set_theta(first_theta(self.split.density, self.options))
        self.clear_samples()
        self.device.synchronize()

    def _initialise_rows(self, start: Start | None) -> None:
        n = self.split.graph.n_vertices
        sets = start is not None and start.vertices.size > 0
        size = self.options.initial_row_sum or (float(self.shape.k) if sets else 0.0)
        values = self.values | {"n_vertices": np.uint64(n), "row_sum": self.shape.real.type(size)}
        self.kernels["init_pi"].launch(n, values)
        self.state.reset_slots()
        if start is not None:
            start.place(self.state, self.options.seed, self.kernels.get("place_rows"))
        self.state.leave_out(self.left_out)

    def set_theta(self, theta: Array) -> None:
        """Write theta ``[2, K]`` to the device and update beta."""
        self.state.set_theta(theta)
        self.kernels["update_beta"].launch(self.shape.row, self.values)

    def step(self, goes_on: bool = False) -> Batch:
        """Queue the stages of one iteration; returns its mini-batch.

        Waits only for a sweep that ranks share to be exchanged or, if the chain ``goes_on``, for the one before it.
        If a rank is lost, the chain is as after the last sweep that was exchanged.
        """
        begin = time.perf_counter()
        batch = self.batches.batch(self.iteration + 1, self.launch)
        self.stages.add({"mini-batch": time.perf_counter() - begin})
        n = batch.n_vertices
        self.chain = self.chain.counted(1, n)
        if not n:
            return batch
        eps, values = self.eps, self._at_step
        # At most one group per pair: further groups would only add zeros.  Sparse rows have one.
        groups = max(1, min(batch.n_pairs, self.capacity.groups))
        step, round_ = self._theta_step(eps, n), batch.first // self.max_vertices
        values.update(StepScalars.of(self.iteration, batch, round_, eps, step, groups, self.shape.real.type)._asdict())
        adds_noise = self.sampling and self.options.phased
        self.partners.update(self.launch, n, values, adds_noise)
        if isinstance(self.state, SparseState):
            self.state.exchange()
        elif self.options.block:
            # Read after the launch: it replaces a configuration that fails.
            links = self.kernels[LINKS_DRAWN if adds_noise else LINKS]
            values["n_groups"] = np.uint32(links_groups(links.config))
        if not self.partners.in_place:
            self.launch("update_pi", "update_pi" if "update_pi" in self.kernels else "exchange_slots", n, values)
        if batch.n_pairs:
            self.launch("theta", "theta_partial", groups, values)
        if self.options.block or batch.n_pairs:
            drawn = self.options.block and self._draws_theta
            self.launch("theta", THETA_DRAWN if drawn else THETA, self.shape.row, values)
        if self.shared is not None:
            self.shared.settle(goes_on)
        return batch

    def settle(self) -> None:
        """Wait for the device, and before that for shared sweeps; if a rank is lost, as :meth:`step`."""
        if self.shared is not None:
            self.shared.settle()
        self.device.synchronize()

    def _undo(self, sweeps: int) -> None:
        assert self.sweeps is not None
        self.chain = self.chain.counted(-sweeps, -sweeps * self.sweeps.n_vertices)

    def advance(self, most: int) -> int:
        """Queue as many iterations as one launch can run, from 1 to ``most``; returns their number."""
        if self.loop is None or not isinstance(self.batches, DrawnAhead):
            self.step(goes_on=most > 1)
            return 1
        first = self.iteration + 1
        sizes = self.batches.sizes(first, self.launch)[:most]
        self.stages.launched("iterations", self.loop.run(first, len(sizes), self._steps))
        self.chain = self.chain.counted(len(sizes), int(sizes.sum()))
        return len(sizes)

    def iterate(self, count: int) -> None:
        """Queue ``count`` iterations, with as few launches as possible."""
        while count > 0:
            count -= self.advance(count)

    def _steps(self, iteration: int) -> tuple[float, float]:
        eps = self.options.step_sizes(float(iteration))
        return eps, eps * self.theta_scale

    def _theta_step(self, eps: float, n: int) -> float:
        if self.sweeps is None:
            return eps * self.theta_scale
        share = n / self.sweeps.n_vertices
        if self._draws_theta:
            return eps * share
        # The gain of a whole sweep, spread over its blocks.
        gain = 5.0 / (self.time + 5.0)
        return 1.0 - math.pow(1.0 - min(gain, 1.0 - 1e-9), share)

    def launch(self, stage: str, kernel: str, count: int, values: dict[str, Any]) -> Event:
        """Queue a kernel with its arguments from ``values``; its time counts towards a stage."""
        event = self.kernels[kernel].launch(count, values)
        self.stages.launched(stage, event)
        return event

    # Reading the state ---------------------------------------------------------------------------------------

    def accumulate(self) -> None:
        """Take the current pi and beta into their posterior means, and deviations if the run keeps them."""
        mean, n, before = self.values["mean"], self.split.graph.n_vertices, self.chain.averaged
        values = self.values | {"n_rows": np.uint32(n)}
        if self.options.keeps_spread:
            real = self.shape.real.type
            values |= {"sums": mean, "over": real(1 / max(1, before)), "weight": real(before / (before + 1))}
            self.launch("posterior", "add_moments", n * self.shape.row, values)
        else:
            values |= {"rows": mean, "sums": self.values["row_sums_out"], "first": np.uint32(0)}
            self.kernels["add_rows"].launch(n * self.shape.row, values)
        self.chain = self.chain.with_sample(self.state.beta())

    @property
    def averaged(self) -> int:
        """Number of samples whose mean the memberships are; 0 where they are the last state."""
        return self.chain.averaged if self.options.average else 0

    def beta(self) -> Array:
        """beta ``[K]`` in float64, of the memberships: a mean over samples with ``average``, else of the state."""
        return self.chain.beta_sum / self.averaged if self.averaged else self.state.beta()

    def moments(self, first: int, stop: int) -> tuple[Array, Array]:
        """Posterior mean and standard deviation ``[stop - first, K]`` of pi of a range, from two samples or more."""
        n, k, real = self.chain.averaged, self.shape.k, self.shape.real.type
        arrays = (self.device.download_range(self.values[name], first, stop) for name in ("mean", "squares"))
        sums, squares = (array[:, :k] for array in arrays)
        return sums / real(n), np.sqrt(squares / real(n - 1))

    def beta_moments(self) -> tuple[Array, Array]:
        """Posterior mean and standard deviation ``[K]`` of beta, as :meth:`moments`."""
        n = self.chain.averaged
        return self.chain.beta_sum / n, np.sqrt(self.chain.beta_squares / (n - 1))

    def rows(self, first: int, stop: int, mean: bool = False) -> tuple[Array, Array]:
        """pi ``[stop - first, K]``, with ``mean`` its posterior mean if memberships are, and row sums of a range."""
        if isinstance(self.state, SparseState):
            return self.state.rows(first, stop), self.device.download_range(self.values["row_sums"], first, stop)
        assert stop - first <= self.values["rows"].shape[0], "more rows at a time than the buffer holds"
        given = {"sums": self.values["row_sums_out"], "first": np.uint32(first), "n_rows": np.uint32(stop - first)}
        self.kernels["gather_rows"].launch((stop - first) * self.shape.row, self.values | given)
        sums = self.device.download_range(self.values["row_sums_out"], 0, stop - first)
        if mean and self.averaged:
            rows = self.device.download_range(self.values["mean"], first, stop) / self.shape.real.type(self.averaged)
        else:
            rows = self.device.download_range(self.values["rows"], 0, stop - first)
        return rows[:, : self.shape.k], sums

    def row_sums(self) -> Array:
        """Row sums ``[N]`` in the order of vertices."""
        sums = self.device.download(self.values["row_sums"])
        if not self.options.sparse:  # sums of spare rows may be anything
            sums = sums[self.device.download(self.values["slots"])]
        return np.asarray(sums, np.float64)

    def clipped(self) -> int:
        """Number of coordinates whose flow the split step has bounded so far."""
        own = partial(arrays.take_counts, self.device, self.values["clip_counts"])
        found = own() if self.shared is None else self.shared.report(own)
        self.chain = self.chain._replace(clips=self.chain.clips + found)
        return self.chain.clips
