"""NCCL's exchanges and a GPU's launches, on two queues: what touches the same memory has an order."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends.nvidia.cuda_kernel import CudaBuffer
from mmsbgen.backends.ranks import nccl_exchange
from mmsbgen.backends.ranks.nccl_exchange import NcclExchange
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import as_graph, split
from mmsbgen.sampler.ranks.following import _Chain
from mmsbgen.sampler.ranks.sharing import SCALARS, STEP, SharedSweeps, SweptRange, Team
from mmsbgen.sampler.state.device_state import StateShape
from mmsbgen.sampler.state.sparse_state import SparseState

N, K, R, SWEEPS, LAUNCHES = 400, 8, 4, 5, 1
#: What a sweep reads of all vertices, and writes of its own.
READ, WRITTEN = ("communities", "values", "totals", "beta"), ("new_communities", "new_values", "row_sums")


class Queues:
    """Records what is queued: each operation has a queue, the bytes that it reads and writes, and what it follows."""

    def __init__(self) -> None:
        self.done: list[tuple[int, str, list[range], list[range], Counter[int]]] = []
        self.clocks: dict[int, Counter[int]] = {}
        self.overlaps: set[tuple[str, str]] = set()

    def clock(self, queue: int) -> Counter[int]:
        return self.clocks.setdefault(queue, Counter())

    def put(self, queue: int, what: str, reads: list[range], writes: list[range]) -> None:
        clock = self.clock(queue)
        clock[queue] += 1
        for other, name, other_reads, other_writes, then in self.done:
            if clock[other] < then[other]:
                self.overlaps.add((name, what))
                both = itertools.chain(
                    itertools.product(writes, other_reads + other_writes), itertools.product(reads, other_writes)
                )
                assert not any(a.start < b.stop and b.start < a.stop for a, b in both), f"{what} races with {name}"
        self.done.append((queue, what, reads, writes, clock.copy()))

    def record(self, event: Any, queue: int) -> tuple[int]:
        event.clock = self.clock(queue).copy()
        return (0,)

    def wait(self, queue: int, event: Any, flags: int = 0) -> tuple[int]:
        self.clocks[queue] = self.clock(queue) | event.clock
        return (0,)


def whole(buffer: Any) -> range:
    return range(buffer.address, buffer.address + buffer.nbytes)


class Gpu:
    """Memory without content, whose copies go to the queue of launches."""

    profiling, allocated, stream = False, 0, SimpleNamespace(handle=LAUNCHES)
    info = SimpleNamespace(spec="cuda:0", global_memory=1 << 40, kind="gpu", name="a GPU", max_allocation=0)

    def __init__(self, queues: Queues) -> None:
        self.queues, self.addresses = queues, itertools.count(1 << 20, 1 << 20)

    def alloc(self, shape: Any, dtype: Any) -> CudaBuffer:
        return CudaBuffer((shape,) if isinstance(shape, int) else shape, np.dtype(dtype), next(self.addresses))

    zeros = alloc

    def upload(self, array: Any) -> CudaBuffer:
        return self.alloc(array.shape, array.dtype)

    def write(self, *given: Any) -> None:
        """No content."""

    def copy(self, to: Any, source: Any) -> None:
        self.queues.put(LAUNCHES, "copy", [whole(source)], [whole(to)])

    def record(self) -> Any:
        event = SimpleNamespace(query=lambda: True)
        self.queues.record(event, LAUNCHES)
        return event

    def active(self, *given: Any) -> Any:
        return nullcontext()


def nccl(queues: Queues, rank: int) -> Any:
    def moves(what: str, writes: bool) -> Any:
        def call(place: int, size: int, kind: int, peer: int, comm: Any, queue: int) -> None:
            there = [range(place, place + size)]
            queues.put(queue, what, [] if writes else there, there if writes else [])

        return call

    def broadcast(place: int, to: int, size: int, kind: int, root: int, comm: Any, queue: int) -> None:
        moves("share", rank > 0)(place, size, kind, root, comm, queue)

    def reduce(place: int, to: int, count: int, kind: int, operation: int, root: int, comm: Any, queue: int) -> None:
        there = [range(place, place + 8 * count)]
        queues.put(queue, "add", there, there if rank == 0 else [])

    nothing = lambda *given: None  # noqa: E731
    made = SimpleNamespace(from_buffer=nothing)
    calls = {"send": moves("send", False), "recv": moves("recv", True), "broadcast": broadcast, "reduce": reduce}
    names = ("group_start", "group_end", "comm_init_rank")
    return SimpleNamespace(UniqueId=made, NCCLError=OSError, **calls, **dict.fromkeys(names, nothing))


def driver(queues: Queues) -> Any:
    urgent = itertools.count(LAUNCHES + 1)
    return SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        cuCtxGetStreamPriorityRange=lambda: (0, 0, -5),
        cuStreamCreateWithPriority=lambda flags, priority: (0, next(urgent)),
        cuEventCreate=lambda flags: (0, SimpleNamespace(clock=Counter())),
        cuEventRecord=queues.record,
        cuStreamWaitEvent=queues.wait,
    )


@pytest.fixture(params=[0, 1])
def at_rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Queues, Gpu, NcclExchange]:
    rank, queues = request.param, Queues()
    monkeypatch.setattr(nccl_exchange, "_nccl", lambda: nccl(queues, rank))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver(queues)))  # type: ignore[arg-type]
    gpu = Gpu(queues)
    timer = SimpleNamespace(cancel=lambda: None)
    world: Any = SimpleNamespace(size=3, rank=rank, ends_after=lambda *given: timer, until=lambda *given, **more: None)
    return rank, queues, gpu, NcclExchange(world, gpu, b"")  # type: ignore[arg-type]


def test_a_device_without_sweeps_is_not_asked_whether_it_computes(
    at_rank: tuple[int, Queues, Gpu, NcclExchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be closed already."""
    _, _, gpu, exchange = at_rank
    monkeypatch.setattr(gpu, "active", None)
    assert not exchange._world.computes()


def swept(queues: Queues, pieces: Any, rank: int) -> Any:
    """A launch of the sweep of the next piece."""
    turns = itertools.cycle(range(pieces.shape[1] - 1))

    def launch(count: int, values: Any) -> None:
        at = next(turns)
        own = []
        for name in WRITTEN:
            each = values[name].nbytes // N
            first, stop = (values[name].address + each * int(pieces[rank, at + i]) for i in (0, 1))
            own.append(range(first, stop))
        queues.put(LAUNCHES, "sweep", [whole(values[name]) for name in READ], [*own, whole(values["fixed_sums"])])

    return launch


def test_launches_and_exchanges_that_share_memory_have_an_order(
    at_rank: tuple[int, Queues, Gpu, NcclExchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, queues, gpu, exchange = at_rank
    links = np.stack([np.arange(N), (np.arange(N) + 1) % N], axis=1)
    parts = split(as_graph(np.sort(links, axis=1)), validation=0.0, seed=0)
    world: Any = exchange._world
    world.names, world.lost, world.has_swept = ["rank"] * 3, False, True
    world.tell = world.send = lambda *given: None
    world.answers = lambda own: [own] * 3
    shape = StateShape(N, K, 0, "float32", entries=R)
    step = dict.fromkeys((*SCALARS, *STEP), np.uint32(1))
    if rank == 0:
        state = SparseState(gpu, shape)  # type: ignore[arg-type]
        values = state.buffers | step | {"counts": gpu.alloc((1, 2, 16), np.float32)}
        state.users.append(values)
        shared = SharedSweeps(
            Team(world, exchange), parts, MMSB.problem(K=K, N=N, entries=R), state, values, {}, lambda sweeps: None
        )
        assert len(state._turns[0]) == 3
        launch = swept(queues, shared._swept._pieces, 0)

        def queue(stage: str, kernel: str, count: int, values: Any) -> None:
            if kernel == "sparse_totals":
                sums = whole(values["fixed_sums"])
                queues.put(LAUNCHES, kernel, [sums, whole(values["beta"])], [sums, whole(values["totals"])])
            else:
                launch(count, values)

        # As if the host were so fast that it never waited.
        for _ in range(SWEEPS):
            shared.update(queue, N, values, False)  # type: ignore[arg-type]
            state.exchange()
            changed = [whole(values[name]) for name in ("theta", "beta")]
            queues.put(LAUNCHES, "theta", [whole(values["counts"]), *changed], changed)
    else:
        chain: Any = object.__new__(_Chain)
        chain._world, chain._exchange, chain._device = world, exchange, gpu
        chain._state = SparseState(gpu, shape)  # type: ignore[arg-type]
        chain._buffers, chain._scalars = {"no_sums": gpu.alloc((3, 16), np.uint64)}, {}
        chain._swept = SweptRange(gpu, exchange, SimpleNamespace(launched=lambda *given: None))  # type: ignore[arg-type]
        pieces = np.linspace([0, 150, 260], [150, 260, N], 5, axis=1).astype(np.int64)
        chain._swept.cut(pieces, 1, np.arange(111, dtype=np.uint64))
        chain._kernels = {False: SimpleNamespace(launch=swept(queues, pieces, 1))}
        for at in range(SWEEPS):
            chain.sweep(False, at == 0, *(step[name] for name in STEP))
    names = Counter(name for _, name, *_ in queues.done)
    found = [names[name] for name in ("sweep", "add", "send", "recv")]
    assert found == [4 * SWEEPS, SWEEPS, 24 * SWEEPS, 24 * SWEEPS]
    # A piece's rows go out while the next one is swept.
    assert {("send", "sweep"), ("recv", "sweep")} <= queues.overlaps
