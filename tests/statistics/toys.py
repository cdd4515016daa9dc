"""Chains on a device whose law is known: many rows side by side, each of them an independent chain.

Vertices 0 to M - 1 are chains; the others are anchors, whose rows never change.  Two maps of slots are used in turns,
so that the new rows of one iteration are the old rows of the next and no other kernel is needed in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.blocks.link_kernels import links_groups
from mmsbgen.families.mmsb.numbers import row_layout
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length
from mmsbgen.families.mmsb.numbers.storage import storage_named
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.families.mmsb.stars.star_kernels import LABELS
from mmsbgen.kernels.build import BoundKernel, build, release, traits_of
from tests.statistics.laws import Floats

#: Launches after which the host waits, so that queues and their events stay short.
_QUEUED = 256


class Rows:
    """Rows ``[M, K]`` that the kernels of a mini-batch move.

    Args:
        device: where.
        pi: memberships of the chains ``[M, K]``.
        sums: their sums of phi ``[M]``.
        eps: step size; one step takes the time eps / 2.
        anchors: rows of the anchors ``[A, K]``; one flat row where None.
        beta: strengths ``[K]``; 1/2 where None.
        alpha: concentration; 1/K where None.
        delta, step, noise, dtype, storage, seed: as in a run.
        config: the configuration of the kernel that ends rows; its default where None.
    """

    def __init__(
        self,
        device: Device,
        pi: Floats,
        sums: Floats,
        eps: float,
        *,
        anchors: Any = None,
        beta: Any = None,
        alpha: float | None = None,
        delta: float = DELTA,
        step: str = "split",
        noise: bool = True,
        dtype: str = "float32",
        storage: str = "float32",
        seed: int = 1,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.device, self.storage = device, storage_named(storage, dtype)
        (self.m, self.k), self.real = pi.shape, np.dtype(dtype)
        anchors = np.full((1, self.k), 1 / self.k) if anchors is None else np.asarray(anchors)
        self.n_anchors, m, length = len(anchors), self.m, row_length(self.k)
        self.n_total = m + self.n_anchors
        self.iteration, self._flip = 0, False
        rows, row_sums = np.zeros((m + self.n_total, length)), np.ones(m + self.n_total)
        rows[:m, : self.k], row_sums[:m] = pi, sums
        rows[m : self.n_total, : self.k] = anchors
        strengths = np.full(length, 0.5)
        if beta is not None:
            strengths[: self.k] = beta
        here, there = np.arange(self.n_total), np.arange(self.n_total)
        there[:m] += self.n_total
        self.options = {"K": self.k, "N": self.n_total, "m": m, "dtype": dtype, "storage": storage, "step": step}
        self.options["noise"] = "on" if noise else "off"
        self.config = config
        arrays = {"pi": self.storage.nearest(rows), "row_sums": row_sums.astype(self.real)}
        arrays |= {"beta": strengths.astype(self.real), "clip_counts": np.zeros(m, np.uint32)}
        self.buffers = {name: device.upload(value) for name, value in arrays.items()}
        self.buffers["vertices"] = device.upload(np.arange(m, dtype=np.uint32))
        self._maps = [device.upload(each.astype(np.uint32)) for each in (here, there)]
        self._spares = [device.upload(each[:m].astype(np.uint32)) for each in (there, here)]
        real = self.real.type
        scalars = {"half_step": eps / 2, "decay": np.exp(-eps / 2), "spread": -np.expm1(-eps / 2)}
        scalars |= {"alpha": 1 / self.k if alpha is None else alpha, "delta": delta}
        self.scalars: dict[str, Any] = {name: real(value) for name, value in scalars.items()}
        self.scalars |= {"n_vertices": np.uint32(m), "first_vertex": np.uint32(0), "seed": np.uint64(seed)}

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the device memory back."""
        release(self.buffers | dict(enumerate([*self._maps, *self._spares])))

    def _build(self, name: str, problem: Any, config: dict[str, Any] | None = None) -> BoundKernel:
        spec = MMSB.kernel(name)
        chosen = config or dict(spec.default(problem, traits_of(self.device.info)))
        return build(self.device, spec, problem, chosen)

    def _launch(self, values: dict[str, Any]) -> Any:
        raise NotImplementedError

    def advance(self, count: int) -> None:
        """Make ``count`` iterations."""
        for _ in range(count):
            values = self.buffers | self.scalars
            values |= {"slots": self._maps[self._flip], "spares": self._spares[self._flip]}
            event = self._launch(values | {"iteration": np.uint32(self.iteration)})
            self.iteration += 1
            self._flip = not self._flip
            if self.iteration % _QUEUED == 0:
                event.wait()
        self.device.synchronize()

    def rows(self) -> tuple[Floats, Floats]:
        """Memberships ``[M, K]`` and sums ``[M]`` of the chains."""
        first = self.n_total if self._flip else 0
        pi = self.device.download_range(self.buffers["pi"], first, first + self.m)[:, : self.k]
        sums = self.device.download_range(self.buffers["row_sums"], first, first + self.m)
        return self.storage.values(pi).astype(np.float64), sums.astype(np.float64)

    def phi(self) -> Floats:
        """phi ``[M, K]``."""
        pi, sums = self.rows()
        return pi * sums[:, None]

    def clips(self) -> int:
        """Coordinates whose flow was bounded so far."""
        return int(self.device.download(self.buffers["clip_counts"]).sum())


class ListedRows(Rows):
    """Rows moved by update_phi.

    ``partners`` and ``weights`` are ``[n]`` (the same for all chains), ``[M, n]``, or ``[R, M, n]`` for R iterations
    that are gone through in turns; partners are numbers of anchors.  Without them, one partner of weight 0.
    """

    def __init__(self, *args: Any, partners: Any = (0,), weights: Any = (0.0,), **options: Any) -> None:
        super().__init__(*args, **options)
        n = np.shape(partners)[-1]
        self.rounds = np.shape(partners)[0] if np.ndim(partners) == 3 else 1
        shape = (self.rounds, self.m, n)
        problem = MMSB.problem(**self.options, n=n)
        self.bound = self._build("update_phi", problem, self.config)
        assert self.bound.config["normalise"]
        self.buffers["vertices"].release()
        vertices = np.tile(np.arange(self.m, dtype=np.uint32), self.rounds)
        self.buffers["vertices"] = self.device.upload(vertices)
        self.buffers["partners"] = self.device.upload(np.zeros(shape, np.uint32))
        self.buffers["weights"] = self.device.upload(np.zeros(shape, self.real))
        self.scalars["n_partners"] = np.uint32(n)
        self.set_partners(partners, weights)

    def set_partners(self, partners: Any, weights: Any) -> None:
        """Other partners, of the same shape."""
        shape = self.buffers["partners"].shape
        ids = np.broadcast_to(np.asarray(partners) + self.m, shape)
        self.device.write(self.buffers["partners"], np.ascontiguousarray(ids, np.uint32))
        signed = np.broadcast_to(np.asarray(weights), shape)
        self.device.write(self.buffers["weights"], np.ascontiguousarray(signed, self.real))

    def _launch(self, values: dict[str, Any]) -> Any:
        first = np.uint32(self.iteration % self.rounds * self.m)
        return self.bound.launch(self.m, values | {"first_vertex": first})


class BlockRows(Rows):
    """Rows moved by block_shared and block_links: every chain is linked to the anchors ``linked``.

    The block shares one partner, of weight 0, so that the links alone inform.
    """

    def __init__(self, *args: Any, linked: Any = (), **options: Any) -> None:
        super().__init__(*args, **options)
        linked = np.sort(np.asarray(linked, np.int64)) + self.m
        problem = MMSB.problem(**self.options, n=1)
        room = row_layout.room(problem)
        offsets = np.minimum(np.arange(self.n_total + 1), self.m) * linked.size
        arrays: dict[str, Any] = {
            "neighbour_offsets": offsets.astype(np.uint64),
            "neighbours": np.append(np.tile(linked, self.m), 0).astype(np.uint32),
            "held_offsets": np.zeros(self.n_total + 1, np.uint64),
            "held_neighbours": np.zeros(1, np.uint32),
            "places": np.zeros(self.n_total, np.uint32),
            "shared": np.full(room, self.m, np.uint32),
            "drawn": np.full(room, self.m, np.uint32),
            "shared_weights": np.zeros(room, self.real),
            "n_shared": np.ones(1, np.uint32),
            "counts": np.zeros((row_layout.MOST_GROUPS, 2, row_length(self.k)), self.real),
        }
        self.buffers |= {name: self.device.upload(value) for name, value in arrays.items()}
        self.bound = [self._build("block_shared", problem), self._build("block_links", problem, self.config)]

    def _launch(self, values: dict[str, Any]) -> Any:
        ones = {"non_link_scale": self.real.type(1), "link_scale": self.real.type(1), "first_vertex": np.uint32(0)}
        self.bound[0].launch(self.m, values | ones)
        return self.bound[1].launch(self.m, values | ones)


class Strengths:
    """theta of K communities as independent chains, by theta_partial and theta_end.

    Community k has vertices k and K + k, which act in it alone; their pair is observed once as a link, of weight
    ``links``, and once as a non-link, of weight ``non_links``: so many pairs of each kind that inform beta_k.
    """

    def __init__(
        self,
        device: Device,
        k: int,
        links: float,
        non_links: float,
        eps: float,
        *,
        seed: int = 1,
        noise: bool = True,
        theta_step: str = "reflected",
    ) -> None:
        self.device, self.k, self.iteration = device, k, 0
        length, groups = row_length(k), 16
        problem = MMSB.problem(K=k, N=2 * k, m=2 * k, noise="on" if noise else "off", theta_step=theta_step)
        rows = np.zeros((2 * k, length), np.float32)
        rows[:, :k] = np.tile(np.eye(k), (2, 1))
        theta = np.random.default_rng(seed).gamma(1.0, size=(2, length)) + 1e-3
        weights = np.repeat([links, -non_links], k).astype(np.float32)
        arrays = {
            "pi": rows,
            "slots": np.arange(2 * k, dtype=np.uint32),
            "pairs_a": np.tile(np.arange(k), 2).astype(np.uint32),
            "pairs_b": np.tile(np.arange(k), 2).astype(np.uint32) + np.uint32(k),
            "pair_weights": weights,
            "counts": np.zeros((groups, 2, length), np.float32),
            "theta": theta.astype(np.float32),
            "beta": (theta[1] / theta.sum(axis=0)).astype(np.float32),
        }
        self.buffers = {name: device.upload(value) for name, value in arrays.items()}
        self.scalars: dict[str, Any] = {
            "first_pair": np.uint64(0),
            "n_pairs": np.uint32(2 * k),
            "n_groups": np.uint32(groups),
            "delta": np.float32(DELTA),
            "step": np.float64(eps),
            "eta_0": np.float64(1.0),
            "eta_1": np.float64(1.0),
            "seed": np.uint64(seed),
        }
        traits = traits_of(device.info)
        self.partial, self.end = (
            build(device, spec, problem, dict(spec.default(problem, traits)))
            for spec in (MMSB.kernel("theta_partial"), MMSB.kernel("theta_end"))
        )
        self.groups, self.length = groups, length

    def __enter__(self) -> Strengths:
        return self

    def __exit__(self, *about: object) -> None:
        release(self.buffers)

    def advance(self, count: int) -> None:
        """Make ``count`` iterations."""
        for _ in range(count):
            values = self.buffers | self.scalars | {"iteration": np.uint32(self.iteration)}
            self.partial.launch(self.groups, values)
            event = self.end.launch(self.length, values)
            self.iteration += 1
            if self.iteration % _QUEUED == 0:
                event.wait()
        self.device.synchronize()

    def beta(self) -> Floats:
        """beta ``[K]``."""
        return self.device.download(self.buffers["beta"])[: self.k].astype(np.float64)


class SharingGraph:
    """One iteration in which all vertices of a graph share ``n`` draws, from the same state each time.

    ``pi`` is ``[N, K]``, ``links`` and ``held`` are pairs ``[E, 2]`` and ``[H, 2]``.  ``partners`` as in a problem:
    a block's, or those of a star that has all vertices.
    """

    def __init__(
        self,
        device: Device,
        pi: Floats,
        sums: Floats,
        beta: Floats,
        links: Any,
        held: Any,
        *,
        n: int,
        partners: str = "block",
        step: str = "split",
        noise: bool = True,
        alpha: float | None = None,
        delta: float = 1e-4,
        tau: float = 1e-3,
        dtype: str = "float64",
        seed: int = 1,
    ) -> None:
        total, k = pi.shape
        self.device, self.n_total, self.k, self.tau, real = device, total, k, tau, np.dtype(dtype)
        problem = MMSB.problem(
            K=k, N=total, m=total, n=n, dtype=dtype, step=step, noise="on" if noise else "off", partners=partners
        )
        rows, room = np.zeros((2 * total, row_length(k)), real), row_layout.room(problem)
        rows[:total, :k] = pi
        strengths = np.full(row_length(k), 0.5, real)
        strengths[:k] = beta
        arrays: dict[str, Any] = {
            "pi": rows,
            "row_sums": np.append(sums, np.zeros(total)).astype(real),
            "beta": strengths,
            "slots": np.arange(total, dtype=np.uint32),
            "spares": np.arange(total, 2 * total, dtype=np.uint32),
            "vertices": np.arange(total, dtype=np.uint32),
            "clip_counts": np.zeros(total, np.uint32),
            "places": np.zeros(total, np.uint32),
            "shared_weights": np.zeros(room, real),
            "n_shared": np.zeros(1, np.uint32),
            "counts": np.zeros((row_layout.MOST_GROUPS, 2, row_length(k)), real),
        }
        arrays |= {name: np.zeros(room, np.uint32) for name in ("draws", "times", "drawn", "shared")}
        for pairs, names in ((links, ("neighbour_offsets", "neighbours")), (held, ("held_offsets", "held_neighbours"))):
            arrays |= dict(zip(names, stage_workloads.adjacency(total, np.asarray(pairs)), strict=True))
        self.buffers = {name: device.upload(value) for name, value in arrays.items()}
        # Rows of labelled partners end where they were: they are written anew before each iteration.
        self.begin = {name: arrays[name] for name in ("pi", "row_sums")}
        self.first = 0 if partners == LABELS else total
        scalars = {"half_step": tau, "decay": np.exp(-tau), "spread": -np.expm1(-tau), "delta": delta}
        scalars |= {"non_link_scale": 0.5, "link_scale": 0.5}
        scalars["alpha"] = 1 / k if alpha is None else alpha
        self.scalars: dict[str, Any] = {name: real.type(value) for name, value in scalars.items()}
        counts = {"n_partners": n, "n_total": total, "n_vertices": total, "first_vertex": 0}
        counts |= {"n_rounds": 1, "shared_round": 0}
        self.scalars |= {name: np.uint32(value) for name, value in counts.items()} | {"seed": np.uint64(seed)}
        traits = traits_of(device.info)
        names = ("shared_partners", "block_shared", "block_links")
        if partners != "block":
            names = ("draw_shared", "star_shared", "star_rows")
        specs = [MMSB.kernel(name) for name in names]
        self.bound = [build(device, spec, problem, dict(spec.default(problem, traits))) for spec in specs]

    def __enter__(self) -> SharingGraph:
        return self

    def __exit__(self, *about: object) -> None:
        release(self.buffers)

    def step(self, iteration: int) -> tuple[Floats, Any]:
        """phi after the iteration ``[N, K]``, and the distinct vertices that were shared."""
        for name, value in self.begin.items():
            self.device.write(self.buffers[name], value)
        values = self.buffers | self.scalars | {"iteration": np.uint32(iteration)}
        for bound, count in zip(self.bound, (1, self.n_total, self.n_total), strict=True):
            bound.launch(count, values)
        self.device.synchronize()
        ended = self.first, self.first + self.n_total
        pi = self.device.download_range(self.buffers["pi"], *ended)[:, : self.k]
        sums = self.device.download_range(self.buffers["row_sums"], *ended)
        (count,) = self.device.download(self.buffers["n_shared"])
        return pi.astype(np.float64) * sums.astype(np.float64)[:, None], self.device.download(self.buffers["drawn"])[
            :count
        ]

    def theta_counts(self) -> Floats:
        """What the last iteration of a block counts for theta: ``[2, K]``, non-links and links."""
        groups = links_groups(self.bound[-1].config)
        counts = self.device.download_range(self.buffers["counts"], 0, groups)
        return counts.astype(np.float64).sum(axis=0)[:, : self.k]
