"""The parts of a chain and their memory needs, before anything is allocated."""

from __future__ import annotations

import numpy as np

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.blocks.link_kernels import most_groups
from mmsbgen.families.mmsb.numbers.row_layout import theta_groups
from mmsbgen.graph import EdgeSet, Split
from mmsbgen.kernels.build import traits_of
from mmsbgen.sampler.chain.chain_problem import partner_rule, problem_of_sized
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.minibatch.block_partners import BlockSharedPartners
from mmsbgen.sampler.minibatch.block_sweeps import Sweeps
from mmsbgen.sampler.minibatch.drawn_ahead import rounds
from mmsbgen.sampler.minibatch.partners import AllPartners, OwnPartners, Partners, StarSharedPartners
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.posterior.draws import DrawRecorder
from mmsbgen.sampler.starts.background_search import only_moved
from mmsbgen.sampler.state import arrays, buffers, memory_needs
from mmsbgen.sampler.state.device_state import State, StateShape


class Plan:
    """Plan of a chain on a split graph and a device that is not opened yet.

    ``results`` are the bytes on the host that making results takes when the chain is finished.

    Raises :class:`mmsbgen.base.errors.InputError` for a graph without pairs, and for options that the device does not
    support.
    """

    def __init__(self, split: Split, options: Options, info: DeviceInfo, results: int = 0) -> None:
        graph = split.graph
        if graph.n_vertices < 2:
            raise InputError(f"{graph.name or 'the graph'} has {graph.n_vertices} vertices; pairs need at least 2")
        self.split, self.info = split, info
        self.options = options = options.sized_for(graph.n_vertices, graph.n_links)
        # Blocks take all links of their vertices; only stars look pairs up.
        nothing = np.zeros((0, 2), np.uint32)
        self.links = EdgeSet.build(nothing if options.block else split.training_links)
        self.held = EdgeSet.build(nothing if options.block else split.held_out_pairs)
        self.sources = strategies.Sources(split, self.links, self.held, options)
        self.max_pairs = max(1, most := strategies.most_pairs(self.sources))
        self.max_vertices = min(options.size, graph.n_vertices) if options.block else 1 + most
        self.sweeps = Sweeps(split, options.size, options.seed) if options.block else None
        self.rule = partner_rule(graph.n_vertices, options)
        self.problem = problem_of_sized(split, options, self.rule, info)
        self.shape = StateShape(
            graph.n_vertices,
            options.n_communities,
            0 if options.sparse else self.max_vertices,
            options.dtype,
            options.storage,
            options.entries if options.sparse else 0,
        )
        groups = self._groups()
        self.partners = self._partners()
        self.rounds = self._rounds()
        """Iterations whose mini-batches the device's arrays hold."""
        listed = graph.n_vertices if options.block else self.rounds * self.max_vertices
        self.capacity = buffers.Capacity(self.max_vertices, listed, self.rounds, self.max_pairs, groups)
        self.specs = buffers.specs(split, self.shape, self.capacity, self.export_rows)
        self.specs += self.partners.specs(self.rounds)
        self.specs += (
            buffers.explained_specs(split.n_training_links, self.shape) if options.refines or options.sparse else []
        )
        placed = self.shape.arrays(options.keeps_mean, options.keeps_spread) + self.specs
        on_device, largest = arrays.bytes_by_purpose(placed), arrays.largest(placed)
        host = self._host_bytes(results, sum(on_device.values()))
        self.needs = memory_needs.MemoryNeeds(on_device, host, largest, self._held())

    def require(self, used: int = 0) -> str:
        """Check the memory; returns what it takes in words, see :func:`mmsbgen.sampler.state.memory_needs.require`."""
        return memory_needs.require(self.needs, self.info, used)

    @property
    def starts_from_sets(self) -> bool:
        """Whether a start may set rows from sets of vertices."""
        return self.options.start != "random" or self.options.phased

    @property
    def theta_scale(self) -> float:
        """eps of theta over eps of phi: by default one over the number of pairs that inform one community."""
        if self.options.theta_scale is not None:
            return self.options.theta_scale
        n, k = self.shape.n_vertices, self.shape.k
        return 1.0 / max(1.0, self.split.n_training_links / k + (n / k) ** 2 / 4)

    @property
    def export_rows(self) -> int:
        """Rows of the state read at a time."""
        first, stop = next(iter(State.chunk_ranges(self.shape)))
        return stop - first

    def _groups(self) -> int:
        """Groups of theta's counts."""
        if self.options.sparse:
            return 1
        return most_groups(self.problem, traits_of(self.info)) if self.options.block else theta_groups(self.problem)

    def _partners(self) -> Partners:
        split, shape, problem = self.split, self.shape, self.problem
        if self.options.sparse:
            return AllPartners()
        if self.options.block:
            return BlockSharedPartners(split, shape, problem)
        if self.rule.shared:
            return StarSharedPartners(split, self.links, self.held, shape, problem)
        return OwnPartners(self.links, self.held, shape, self.rule.n)

    def _rounds(self) -> int:
        if self.options.block:
            return 1
        real = self.shape.real.itemsize
        each = self.max_vertices * (12 + real) + self.partners.bytes_each
        return rounds(self.info.kind, each)

    def _held(self) -> int:
        """Bytes of the graph that are in memory by now."""
        adjacency = self.split.training_adjacency
        return sum(array.nbytes for array in (self.split.graph.links, adjacency.offsets, adjacency.neighbours))

    def _host_bytes(self, results: int, on_device: int) -> dict[str, int]:
        graph, shape = self.split.graph, self.shape
        pairs = len(self.split.validation.pairs) + len(self.split.test.pairs)
        listed = 3 * 8 * graph.n_vertices if self.sweeps else self.max_pairs * 40
        rows, draws = self.export_rows * shape.row, DrawRecorder.bytes(len(self.split.validation.pairs), shape.k)
        each = memory_needs.NARROWED if shape.stored.narrow else shape.real.itemsize
        starts = 0
        if self.starts_from_sets:
            moved = only_moved(self.split, self.options, self.info, on_device)
            starts = memory_needs.of_start(graph.n_vertices, graph.n_links, rows * each, moved)
        if self.options.refines:
            # Refinement takes it after the starts.
            starts = max(starts, memory_needs.of_refinement(graph.n_links, graph.n_vertices * shape.entries))
        return {
            "graph": memory_needs.of_graph(graph.n_vertices, graph.n_links),
            "starts": starts,
            "results": max(0, results - starts),  # what starts took is free by then
            "edge sets": self.links.buckets.nbytes + self.held.buckets.nbytes,
            "mini-batches": listed + pairs * 64,
            **({"draws": draws * self.options.chains} if self.options.samples else {}),
            "programs and libraries": 300_000_000,
        }
