"""Limits of control groups, and refusal with numbers before anything is allocated."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import networkit  # noqa: F401 - an import of its own would count as memory of results
import numpy as np
import psutil
import pytest

from mmsbgen.backends.fake import FakeDevice
from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.graph import as_graph, split
from mmsbgen.sampler.diagnostics import communities
from mmsbgen.sampler.diagnostics.evaluation import evaluation
from mmsbgen.sampler.diagnostics.memberships import Memberships, by_community, largest_of_parts
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts import background_search
from mmsbgen.sampler.starts.start_methods import MOVED, of_sets
from mmsbgen.sampler.state import device_state, memory_needs
from mmsbgen.sampler.state.memory_needs import MemoryNeeds, available_host_memory, readable
from tests.devices import H200

GB = 10**9


def machine(root: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = cgroup / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return proc, cgroup


V1 = "5:devices:/\n4:cpu,memory:/job/step\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "left", "where"),
    [
        ("0::/\n", {"memory.max": "max", "memory.current": "5"}, 64 * GB, "machine"),
        ("0::/\n", {"memory.max": str(8 * GB), "memory.current": str(GB)}, 7 * GB, "8.00 GB"),
        (
            "0::/a/b\n",
            {
                "a/b/memory.max": str(9 * GB),
                "a/b/memory.current": str(GB),
                "a/memory.max": str(6 * GB),
                "a/memory.current": str(2 * GB),
                "a/memory.stat": f"anon 1\ninactive_file {GB}",
            },
            5 * GB,
            "group a",
        ),
        # A container whose group's path only the host can see: the mount's root counts.
        ("0::/host/only\n", {"memory.max": str(3 * GB), "memory.current": str(GB)}, 2 * GB, "3.00 GB"),
        (
            V1,
            {
                "memory/job/step/memory.limit_in_bytes": str(4 * GB),
                "memory/job/step/memory.usage_in_bytes": str(3 * GB),
                "memory/job/step/memory.stat": f"inactive_file 0\ntotal_inactive_file {2 * GB}",
                "memory/memory.limit_in_bytes": str(2**63 - 4096),
                "memory/memory.usage_in_bytes": "1",
            },
            3 * GB,
            "memory/job/step",
        ),
        (V1, {"memory/job/memory.limit_in_bytes": "1000", "memory/job/memory.usage_in_bytes": "5000"}, 0, "memory/job"),
        ("", {}, 64 * GB, "machine"),
    ],
)
def test_the_smallest_limit_counts(tmp_path, monkeypatch, groups, files, left, where):
    proc, cgroup = machine(tmp_path, groups, files)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GB))
    found, source = available_host_memory(proc, cgroup)
    assert found == pytest.approx(left, abs=1024)
    assert where in source


def test_readable():
    assert [readable(x) for x in (0, 999, 999_999, 1_500_000, 999_999_999, 1.3e9)] == [
        "0 B",
        "999 B",
        "1 MB",
        "1.5 MB",
        "1.00 GB",
        "1.30 GB",
    ]


def test_refused_with_numbers_before_anything_is_allocated(processor, chain, middling, monkeypatch):
    before = processor.allocated
    monkeypatch.setattr(memory_needs, "available_host_memory", lambda: (310_000_000, "the limit of this test"))
    with pytest.raises(
        DeviceMemoryError, match=r"does not fit: it needs .* MB on the device .*the limit of this test "
    ):
        chain(processor, middling, n_communities=100_000)
    assert processor.allocated == before
    chain(processor, middling, n_communities=5)


@pytest.mark.parametrize("start", ["communities", "random"])
def test_starts_are_counted_where_there_are_any(processor, chain, middling, start):
    """Stars from a random start need no graph of networkit's; whatever refines does."""
    stars = chain(processor, middling, n_communities=5, start=start)
    blocks = chain(processor, middling, n_communities=5, start=start, mini_batch="block", noise=None)
    counted = memory_needs.of_start(60, middling.graph.n_links, 60 * 16 * 4)
    assert blocks.needs.host["starts"] == counted > 10_000_000
    assert stars.needs.host["starts"] == (counted if start == "communities" else 0)


@pytest.mark.parametrize(
    ("links", "changes", "taken", "moved"),
    [
        (10**9, {}, 0, True),
        (2**31, {}, 0, False),  # moved in threads
        (10**5, {}, 0, False),
        (10**9, {}, 7 * 2**34, False),
        (10**9, {"kind": "cpu"}, 0, False),
    ],
)
def test_a_gpu_that_moves_vertices_spares_the_host(monkeypatch, links, changes, taken, moved):
    monkeypatch.setattr(background_search, "worth_trying", lambda split, k: [MOVED])
    parts = SimpleNamespace(graph=SimpleNamespace(n_vertices=10**7), n_training_links=links)
    info = dataclasses.replace(H200, **changes)
    assert background_search.only_moved(parts, Options(10, start="auto"), info, taken) == moved


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_what_is_in_memory_already_counts_as_free(chain, processor, middling, monkeypatch, kind):
    held = chain(processor, middling, n_communities=5).needs.held
    adjacency = middling.training_adjacency
    assert held == 8 * middling.graph.n_links + 4 * adjacency.neighbours.size + 8 * (middling.graph.n_vertices + 1)
    monkeypatch.setattr(memory_needs, "available_host_memory", lambda: (1000, "this test"))
    info = dataclasses.replace(H200, kind=kind)
    needs = MemoryNeeds({"pi": 0}, {"graph": 1000 + held}, ("pi", 0), held)
    memory_needs.require(needs, info)
    with pytest.raises(DeviceMemoryError, match="this test leaves"):
        memory_needs.require(dataclasses.replace(needs, held=held - 1), info)


def test_too_large_for_this_machine(processor, chain, middling):
    with pytest.raises(DeviceMemoryError, match=r"does not fit: it.*\bpi .*\d+\.\d\d GB"):
        chain(processor, middling, n_communities=2**24, mini_batch_size=59, dtype="float64")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"partners": "shared"},
        {"partners": "shared", "products": "half"},
        {"partners": "shared-uniform", "products": "half", "n_partners": 60},
    ],
)
def test_an_iteration_ahead_takes_what_is_counted_for_it(chain, middling, options):
    sampler = chain(FakeDevice(H200), middling, mini_batch="random-node", mini_batch_size=30, **options)
    taken = [sum(spec.nbytes for spec in sampler.partners.specs(rounds)) for rounds in (1, 2, 7)]
    assert taken == [taken[0] + (rounds - 1) * sampler.partners.bytes_each for rounds in (1, 2, 7)]


def test_limits_of_a_device_are_kept(processor):
    info = processor.info
    needs = MemoryNeeds({"pi": 3 * GB}, {"graph": 1}, ("pi", 2 * GB))
    gpu = dataclasses.replace(info, kind="gpu", global_memory=2 * GB, max_allocation=GB)
    with pytest.raises(DeviceMemoryError, match=r"3\.00 GB on the device .* of 2\.00 GB"):
        memory_needs.require(needs, gpu)
    with pytest.raises(DeviceMemoryError, match=r"an array of pi takes 2\.00 GB.* at most 1\.00 GB at once"):
        memory_needs.require(needs, dataclasses.replace(gpu, global_memory=8 * GB))
    fits = memory_needs.require(needs, dataclasses.replace(gpu, global_memory=8 * GB, max_allocation=2 * GB))
    assert fits == "needs 3.00 GB of 8.00 GB"
    with pytest.raises(DeviceMemoryError, match=r"2\.00 GB are taken"):
        memory_needs.require(needs, dataclasses.replace(gpu, global_memory=4 * GB, max_allocation=0), used=2 * GB)
    if memory_needs.available_host_memory()[0] > 4 * GB:
        with pytest.raises(DeviceMemoryError, match=r"has 1\.00 GB"):
            memory_needs.require(needs, dataclasses.replace(info, global_memory=GB))


_IN_CHILD = """
import os
import sys
from pathlib import Path
import numpy as np
from mmsbgen.graph import as_graph, split
from mmsbgen.sampler.starts import start_methods as starts

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def measure(n_links, n_vertices, number):
    if number == "many":
        starts.MANY = 0
    ends = np.random.default_rng(0).integers(0, n_vertices, (n_links, 2))
    parts = split(as_graph(ends[ends[:, 0] != ends[:, 1]]), validation=0.01, seed=0)
    parts.training_adjacency
    small = split(as_graph(np.array([[0, 1], [1, 2]])), validation=0.0, seed=0)
    for start in (starts.communities, starts.ego_nets):
        start(small, 2, 0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    for start in (starts.communities, starts.ego_nets):
        start(parts, 100, 0)
    print(resident("VmHWM") - before, parts.n_training_links, parts.graph.n_vertices, flush=True)

for n_links, n_vertices in ((200_000, 30_000), (40_000, 80_000)):
    for number in ("few", "many"):
        child = os.fork()
        if not child:
            measure(n_links, n_vertices, number)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{n_links} links, {n_vertices} vertices, {number} failed")
"""


@pytest.mark.slow
def test_starts_take_no_more_of_the_host_than_is_counted():
    """The peak of processes of their own; more links than vertices, and more vertices than links."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _IN_CHILD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(measured) == 4
    for grown, links, vertices in measured:
        counted = memory_needs.of_start(vertices, links, 0)
        assert counted / 3 < grown < counted, (links, vertices)


_REFINEMENT = """
from pathlib import Path
import numpy as np
from mmsbgen.sampler.run import refine

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

refine.MANY, rng = 0, np.random.default_rng(0)
ends = np.sort(rng.integers(30_000, size=(200_000, 2)), axis=1)
links = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
refine.moves(np.stack(np.triu_indices(6, 1), axis=1), np.zeros(15, int), np.ones(15), 3, 0)
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
refine.moves(links, rng.integers(4990, size=len(links)), np.ones(len(links)), 5000, 0)
print(resident("VmHWM") - before, len(links))
"""


@pytest.mark.slow
def test_refinement_takes_no_more_of_the_host_than_is_counted():
    """Of links whose ends are in other communities nearly each time."""
    command = [sys.executable, "-W", "ignore", "-c", _REFINEMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, links = map(int, done.stdout.split())
    assert memory_needs.of_refinement(links) / 2 < grown < memory_needs.of_refinement(links)


@pytest.mark.slow
def test_refinement_is_counted_where_it_takes_more_than_starts(processor, chain):
    ends = np.sort(np.random.default_rng(0).integers(2000, size=(100_000, 2)), axis=1)
    dense = split(as_graph(ends[ends[:, 0] != ends[:, 1]]), validation=0.01, seed=0)
    given = {"n_communities": 4, "mini_batch": "block", "noise": None}
    with_it, without = (chain(processor, dense, **given, refine=refine).needs.host for refine in (True, False))
    assert with_it["starts"] == memory_needs.of_refinement(dense.graph.n_links) > without["starts"] > 0


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "float16"])
def test_rows_of_a_start_take_no_more_than_is_counted(storage):
    n, k, each = 4000, 256, 4 if storage == "float32" else memory_needs.NARROWED
    start, shape = of_sets("one", [np.arange(n)]), device_state.StateShape(n, k, 1, "float32", storage)
    tracemalloc.start()
    try:
        vertices, rows = start.rows(0, n, shape)
        shape.stored.drawn(rows, vertices, 0, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Some numbers a vertex come beside the rows.
    assert n * k * each * 0.5 < peak < n * k * each + n * 100


@pytest.mark.parametrize(
    ("rule", "threshold", "top"),
    [("share", None, 16), ("share", None, 256), ("share", 0.01, 1), ("top", 200.0, 256), ("threshold", 0.005, 16)],
)
def test_results_take_no_more_than_is_counted(rule, threshold, top):
    """From rows of pi that are read in parts to communities and the entries that are kept."""
    n, k = 4000, 256
    rng = np.random.default_rng(2)
    members = rng.integers(0, k, n)
    links = np.sort(np.stack([np.arange(400), (np.arange(400) + 1) % 400], axis=1), axis=1)

    def parts():
        for first in range(0, n, 50):
            rows = rng.exponential(size=(50, k)).astype(np.float32)
            rows[np.arange(50), members[first : first + 50]] += k / 4
            yield rows / rows.sum(axis=1, keepdims=True)

    needed = communities.entries_needed(rule, communities.checked_threshold(rule, threshold), k)
    entries = max(needed, top)
    tracemalloc.start()
    try:
        found = largest_of_parts(parts(), entries, (n, k), np.float32)
        wide = Memberships(np.arange(n), *found[:2], np.full(k, 0.1), rest=found[2], spread=found[3])
        _, numbered = communities.cover(wide, links, rule, threshold)
        kept = numbered.first(top)
        mass = by_community(wide.indices, wide.values, k)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert mass.sum() == pytest.approx(1.0 * n, rel=0.9)
    assert kept.values.shape == (n, top)
    counted = memory_needs.of_results(n, k, 4, top, needed, is_fixed=rule == "top")
    assert peak < counted + 6_000_000  # what does not grow with the vertices
    assert entries < 100 or peak > counted / 3


def test_all_chains_and_codes_are_counted():
    one = memory_needs.of_results(2_000_000, 256, 4, 256, 8)
    assert one > 6.1 * GB, "two arrays of the entries, and indices in another numbering"
    assert memory_needs.of_results(2_000_000, 256, 4, 256, 8, chains=3) == one + 2 * 2_000_000 * 256 * 8
    with_codes = memory_needs.of_results(10_000, 256, 4, 16, 8)
    assert with_codes - memory_needs.of_results(10_000, 17, 4, 16, 8) == 10_000 * (256 - 17)
    sampled = memory_needs.of_results(10_000, 256, 4, 16, 8, keeps_spread=True)
    assert sampled - with_codes == 10_000 * 2 * 2 * (256 + 16 * 4), "and the parts of which they are made"
    assert memory_needs.of_results(10_000, 10, 8, 16, 8) == memory_needs.of_results(10_000, 10, 8, 10, 8)


@pytest.mark.parametrize(
    ("average", "noise"), [(False, None), (True, None), (False, True)], ids=["state", "average", "noise"]
)
@pytest.mark.parametrize(
    ("mini_batch", "storage"),
    [("random-node", "float32"), ("random-node", "bfloat16"), ("random-node", "float16"), ("block", "float32")],
)
def test_every_byte_is_counted_and_no_phi_matrix_exists(
    processor, chain, middling, monkeypatch, average, noise, mini_batch, storage
):
    """Means are the average's; deviations are of runs that sample, if they were asked to sample or to average."""
    monkeypatch.setattr(device_state, "CHUNK_ROWS", 10)
    before = processor.allocated
    sampler = chain(
        processor,
        middling,
        n_communities=64,
        average=average,
        noise=noise,
        mini_batch=mini_batch,
        storage=storage,
        mini_batch_size=8,
        n_partners=4,
    )
    sampler.initialise()
    for _ in range(3):
        sampler.step()
        evaluation(sampler, 0.0)
    assert processor.allocated - before == sampler.needs.device_total
    n, k = 60, 64
    # Groups' counts for theta have a shape of their own, [groups, 2, K], and do not grow with the graph.
    alive = [b for b in processor._buffers if not b.released and b.size >= n * k]
    rows = [b for b in alive if len(b.shape) == 2 and b.shape[-1] == 64]
    samples = mini_batch != "block" or noise
    assert len(rows) == 1 + (bool(average or noise) * (1 + bool(samples)))
    assert ("posterior deviations" in sampler.needs.device) == (len(rows) == 3)
    assert ("draws" in sampler.needs.host) == bool(samples)
    assert sampler.state.buffers["pi"].shape == (n + sampler.max_vertices, 64)
    assert sampler.needs.device["pi"] == (n + sampler.max_vertices) * 64 * (4 if storage == "float32" else 2)
    sampler.close()
    assert processor.allocated == before


def test_a_failed_build_gives_everything_back(processor, chain, middling, monkeypatch):
    from mmsbgen.kernels.runtime import Runtime

    before = processor.allocated

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(Runtime, "kernel", fail)
    with pytest.raises(RuntimeError, match="no"):
        chain(processor, middling)
    assert processor.allocated == before
