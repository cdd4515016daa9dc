"""One chain on one device: the six stages of the paper's Algorithm 1, in its order."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

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
from mmsbgen.sampler.minibatch.batch_sources import Batch, Batches, BlockBatches, HostBatches
from mmsbgen.sampler.minibatch.block_partners import LINKS, LINKS_DRAWN
from mmsbgen.sampler.minibatch.drawn_ahead import DrawnAhead
from mmsbgen.sampler.minibatch.partners import OwnPartners
from mmsbgen.sampler.options.options import SAMPLE_STEP, Options
from mmsbgen.sampler.options.phases import Phases
from mmsbgen.sampler.starts.start_methods import Start, first_theta
from mmsbgen.sampler.state import buffers
from mmsbgen.sampler.state.chain_state import ChainState
from mmsbgen.sampler.state.device_state import State
from mmsbgen.sampler.state.stage_clock import StageClock


class Sampler:
    """A chain over a split graph.

    Building one checks that it fits (:class:`mmsbgen.base.errors.DeviceMemoryError` with the numbers if not),
    allocates, and builds the kernels; :meth:`initialise` starts the chain; :meth:`advance` makes iterations,
    :meth:`step` one by one launch a stage.  ``fused`` says whether iterations of stars are made many a launch, by one
    persistent kernel: True or :class:`mmsbgen.base.errors.ConfigError`, None as :func:`fused_by_default` has it.
    ``plan`` is that of these options on this device, where there is one already and it is known to fit.
    """

    def __init__(
        self,
        split: Split,
        options: Options,
        runtime: Runtime,
        fused: bool | None = False,
        plan: Plan | None = None,
    ) -> None:
        if plan is None:
            plan = Plan(split, options, runtime.device.info)
            plan.require(runtime.device.allocated)
        self.needs = plan.needs
        self.split = split
        self.options = options = plan.options
        self.runtime = runtime
        self.device = runtime.device
        self.strategy, self.sources, self.sweeps = plan.strategy, plan.sources, plan.sweeps
        self.max_vertices, self.capacity = plan.max_vertices, plan.capacity
        self.rule, self.problem, self.shape, self.partners = plan.rule, plan.problem, plan.shape, plan.partners
        self.chain = self._first()
        """What the chain knows of itself; :meth:`restore` takes another one."""
        self.stages = StageClock(runtime.device)
        """Seconds by stage."""

        self.kernels: dict[str, BoundKernel] = {}
        self.values: dict[str, Any] = {}
        """Arrays and scalars that stay, by the kernels' names."""
        self._at_step: dict[str, Any] = {}
        """The same, with the scalars of the present iteration."""
        self.held_values: dict[str, Any] = {}
        self.loop: Loop | None = None
        """The kernel that makes many iterations a launch, in fused mode."""
        self.state = State(self.device, self.shape, options.average)
        try:
            placed, held_out = buffers.place(self.device, plan.specs)
            scalars = RunScalars.of(plan)._asdict() | buffers.edge_set_scalars(plan.links, plan.held)
            self.values = self.state.buffers | placed | scalars
            self._at_step = dict(self.values)
            self.held_values = self.values | held_out | {"n_pairs": np.uint32(len(split.validation.pairs))}
            own = self.partners.kernels + (() if options.block else ("theta_partial",))
            own += ("draw_stars",) if self.strategy.stars else ()
            own += ("place_rows",) if plan.starts_from_sets and not self.shape.stored.narrow else ()
            chosen(runtime, self.problem, options, self.shape, own, self.kernels)
            self.batches = self._batches(plan.rounds)
            if fused or (fused is None and fused_by_default(self.device.info.backend, options.mini_batch)):
                self.loop = self._loop(fused)
        except BaseException:
            self.close()
            raise

    def restore(self, chain: ChainState) -> None:
        """Take back a chain's state, as :attr:`chain` gave it, changed or not; arrays on the device stay."""
        self.chain = chain

    @property
    def iteration(self) -> int:
        """Iterations so far."""
        return self.chain.iteration

    @property
    def course(self) -> Phases:
        """What has been decided of the run."""
        return self.chain.course

    def clear_mean(self) -> None:
        """Let the posterior mean of pi begin anew."""
        for first, stop in self.state_chunks():
            zeros = np.zeros((stop - first, self.shape.row), self.shape.real)
            self.device.write(self.values["mean"], zeros, first)

    def _first(self) -> ChainState:
        return ChainState.first(len(self.split.validation.pairs), self.options.n_communities)

    # What is sampled -----------------------------------------------------------------------------------------

    @property
    def theta_scale(self) -> float:
        """eps of theta over eps of phi: by default one over the number of pairs that inform one community."""
        if self.options.theta_scale is not None:
            return self.options.theta_scale
        n, k = self.split.graph.n_vertices, self.options.n_communities
        return 1.0 / max(1.0, self.split.n_training_links / k + (n / k) ** 2 / 4)

    @property
    def time(self) -> float:
        """The schedule's time: iterations of stars, sweeps of blocks since its clock was set."""
        if self.options.block:
            return self.course.clock_at + (self.iteration - self.course.clock_from) / self.per_sweep
        return float(self.iteration)

    @property
    def per_sweep(self) -> int:
        """Iterations in which blocks go through all vertices once; 1 for stars."""
        return self.sweeps.per_sweep if self.sweeps else 1

    @property
    def limit(self) -> int:
        """The last iteration, as far as is known."""
        return self.course.limit(self.options, self.per_sweep)

    @property
    def sampling(self) -> bool:
        """Whether the present iteration belongs to those that draw after the optimum."""
        begin = self.course.sampling_from
        return self.options.phased and begin is not None and self.iteration > begin

    @property
    def eps(self) -> float:
        """The present iteration's step size."""
        return SAMPLE_STEP if self.sampling else self.options.step_sizes(self.time)

    # Memory --------------------------------------------------------------------------------------------------

    def _batches(self, rounds: int) -> Batches:
        partners, device, values, real = self.partners, self.device, self.values, self.shape.real
        if self.sweeps is not None:
            return BlockBatches(self.sweeps, partners, device, values)
        if self.strategy.stars is None:
            return HostBatches(self.strategy, self.sources, partners, device, values, real)
        return DrawnAhead(self.strategy.stars, self.sources, partners, device, values, self.max_vertices, rounds, real)

    def _loop(self, asked: bool | None) -> Loop | None:
        """Many iterations in one launch, where there is a kernel for them; only an error where ``asked`` for."""
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
        """Ranges of vertices in which the state is read."""
        return list(State.chunk_ranges(self.shape))

    def close(self) -> None:
        """Give all device memory back."""
        if self.loop is not None:
            self.loop.release()
        self.state.release()
        buffers.release([*self.values.values(), *self.held_values.values()])

    # The chain -----------------------------------------------------------------------------------------------

    def initialise(self, start: Start | None = None) -> None:
        """Start the chain: rows from Dirichlet(1, ..., 1) made on the device, or by the sets of ``start``.

        theta is drawn from Gamma(eta, 1); for blocks, whose first sweep moves it all the way, it is that of a guess.
        """
        self.clipped()
        chain = self._first()
        self.chain = chain if start is None else chain._replace(course=Phases(start=start.name))
        n = self.split.graph.n_vertices
        sets = start is not None and start.vertices.size > 0
        size = self.options.initial_row_sum or (float(self.shape.k) if sets else 0.0)
        values = self.values | {"n_vertices": np.uint64(n), "row_sum": self.shape.real.type(size)}
        self.kernels["init_pi"].launch(n, values)
        self.state.reset_slots()
        if start is not None:
            start.place(self.state, self.options.seed, self.kernels.get("place_rows"))
        self.set_theta(first_theta(self.split.graph, self.options))
        if self.options.average:
            self.clear_mean()
        self.device.synchronize()

    def set_theta(self, theta: Array) -> None:
        """Take theta ``[2, K]``, and beta of it."""
        self.state.set_theta(theta)
        self.kernels["update_beta"].launch(self.shape.row, self.values)

    def step(self) -> Batch:
        """One iteration: queue its stages and return what it is about; nothing waits for the device."""
        begin = time.perf_counter()
        batch = self.batches.batch(self.iteration + 1, self.launch)
        self.stages.add({"mini-batch": time.perf_counter() - begin})
        n = batch.n_vertices
        self.chain = self.chain.counted(1, n)
        if not n:
            return batch
        eps, values = self.eps, self._at_step
        if self.options.block:
            groups = links_groups(self.kernels[LINKS_DRAWN if self.sampling else LINKS].config)
        else:
            # No more groups than pairs: of a star of few, the others would only be added up.
            groups = min(batch.n_pairs, self.capacity.groups)
        step, round_ = self._theta_step(eps, n), batch.first // self.max_vertices
        values.update(StepScalars.of(self.iteration, batch, round_, eps, step, groups, self.shape.real.type)._asdict())
        self.partners.update(self.launch, n, values, self.sampling)
        if not self.partners.in_place:
            self.launch("update_pi", "update_pi" if "update_pi" in self.kernels else "exchange_slots", n, values)
        if batch.n_pairs:
            self.launch("theta", "theta_partial", groups, values)
        if self.options.block or batch.n_pairs:
            self.launch("theta", "theta_end", self.shape.row, values)
        return batch

    def advance(self, most: int) -> int:
        """At least one and at most ``most`` iterations, as many as one launch can make; returns how many."""
        if self.loop is None or not isinstance(self.batches, DrawnAhead):
            self.step()
            return 1
        first = self.iteration + 1
        sizes = self.batches.sizes(first, self.launch)[:most]
        self.stages.launched("iterations", self.loop.run(first, len(sizes), self._steps))
        self.chain = self.chain.counted(len(sizes), int(sizes.sum()))
        return len(sizes)

    def iterate(self, count: int) -> None:
        """Queue ``count`` iterations, as many a launch as one can make."""
        end = self.iteration + count
        while self.iteration < end:
            self.advance(end - self.iteration)

    def _steps(self, iteration: int) -> tuple[float, float]:
        eps = self.options.step_sizes(float(iteration))
        return eps, eps * self.theta_scale

    def _theta_step(self, eps: float, n: int) -> float:
        if not self.options.block:
            return eps * self.theta_scale
        # The share of the way that a whole sweep goes, spread over its blocks.
        gain = 5.0 / (self.time + 5.0)
        return 1.0 - math.pow(1.0 - min(gain, 1.0 - 1e-9), n / self.split.graph.n_vertices)

    def launch(self, stage: str, kernel: str, count: int, values: dict[str, Any]) -> None:
        """Queue a kernel with the arguments that it has among ``values``; its time counts towards a stage."""
        self.stages.launched(stage, self.kernels[kernel].launch(count, values))

    # What is seen of it --------------------------------------------------------------------------------------

    def accumulate(self) -> None:
        """Add the present pi and beta to their posterior means."""
        mean, n = self.values["mean"], self.split.graph.n_vertices
        values = self.values | {"rows": mean, "sums": self.values["row_sums_out"]}
        values |= {"first": np.uint32(0), "n_rows": np.uint32(n)}
        self.kernels["add_rows"].launch(n * self.shape.row, values)
        chain = self.chain
        self.chain = chain._replace(beta_sum=chain.beta_sum + self.state.beta(), averaged=chain.averaged + 1)

    def beta(self) -> Array:
        """beta ``[K]`` in float64; its posterior mean where that is kept."""
        averaged = self.chain.averaged
        return self.chain.beta_sum / averaged if averaged else self.state.beta()

    def rows(self, first: int, stop: int, mean: bool = False) -> tuple[Array, Array]:
        """pi ``[stop - first, K]`` and row sums of some vertices; with ``mean`` the posterior mean of pi."""
        assert stop - first <= self.values["rows"].shape[0], "more rows at a time than the buffer holds"
        values = self.values | {
            "sums": self.values["row_sums_out"],
            "first": np.uint32(first),
            "n_rows": np.uint32(stop - first),
        }
        self.kernels["gather_rows"].launch((stop - first) * self.shape.row, values)
        sums = self.device.download_range(self.values["row_sums_out"], 0, stop - first)
        averaged = self.chain.averaged
        if mean and averaged:
            rows = self.device.download_range(self.values["mean"], first, stop) / self.shape.real.type(averaged)
        else:
            rows = self.device.download_range(self.values["rows"], 0, stop - first)
        return rows[:, : self.shape.k], sums

    def row_sums(self) -> Array:
        """Row sums ``[N]`` in the order of vertices."""
        slots = self.device.download(self.values["slots"])
        sums: Array = self.device.download(self.values["row_sums"])[slots].astype(np.float64)
        return sums

    def clipped(self) -> int:
        """Coordinates whose flow the split step has bounded so far."""
        found = int(self.device.download(self.values["clip_counts"]).sum(dtype=np.int64))
        self.device.write(self.values["clip_counts"], np.zeros(self.max_vertices, np.uint32))
        self.chain = self.chain._replace(clips=self.chain.clips + found)
        return self.chain.clips
