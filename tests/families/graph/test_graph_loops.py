"""Fused loops of graph programs: right in every mode and on every shape, resumed, interrupted, refused with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmsbgen.algorithms import bfs
from mmsbgen.backends import Device
from mmsbgen.backends.fake import FakeDevice, FakeKernel
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.base.errors import ConfigError, InputError, LaunchLimitError
from mmsbgen.families import family
from mmsbgen.families.graph import inputs, launched_rounds
from mmsbgen.families.graph.generated import workload
from mmsbgen.families.graph.launched_rounds import LaunchedRounds
from mmsbgen.families.graph.ranks import pagerank, tiles
from mmsbgen.graph import Arcs
from mmsbgen.kernels.build import build, release, traits_of, upload
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits, describe
from tests.devices import HASTY
from tests.families.graph.shapes import arcs, shapes

GRAPH = family("graph")
PROBLEM = GRAPH.problem()
GROUP = {"loop": "whole", "block_size": 8, "per_item": 1, "frontier": "queue", "walk": 0, "blocks_per_unit": 1}
TILED = {"order": "degree", "balance": "tiles", "sums": 2, "block_size": 8}
FUSED: dict[str, list[dict[str, Any]]] = {
    "bfs": [
        {"team": "item", "direction": "push", "block_size": 64},
        {"team": "grid", "direction": "auto", "loop": "phases"},
        {"team": "grid", "direction": "auto", "to_pull": 60},
        {"team": "item", "direction": "pull"},
    ],
    "sssp": [
        {"team": "grid", "width": 0, "block_size": 64},
        {"team": "grid", "width": 1},
        {"team": "item", "width": 4, "loop": "phases"},
    ],
    "widest": [{"team": "grid"}, {"team": "item", "loop": "phases", "block_size": 64}],
    "cores": [{"team": "item", "block_size": 64}, {"team": "grid"}, {"team": "grid", "loop": "phases"}],
    "pagerank": [{"sums": 1, "block_size": 64}, {"sums": 4}, {"order": "degree"}, TILED, TILED | {"balance": "merge"}],
}
#: What PageRank of large graphs has beside the default.
LARGE = {"order": "degree", "caching": "shares", "held": 104, "block_size": 1024, "blocks_per_unit": 1}
CUDA = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024, compute_units=132)


def fused(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    rest = {"lanes": 1} if name == "pagerank" else {}
    config = dict(GRAPH.kernel(name).default(PROBLEM, Traits("opencl", "cpu"))) | GROUP | rest | changes
    return {key: value for key, value in config.items() if key in {axis.name for axis in GRAPH.kernel(name).space.axes}}


def graphs() -> dict[str, Arcs]:
    two_hubs = [(0, v) for v in range(2, 700)] + [(1, v) for v in range(300, 1000)]
    loops = [(v, v) for v in range(0, 50, 7)] + [(v, v + 1) for v in range(49)] + [(3, 4)] * 5
    return shapes() | {"two hubs": arcs(two_hubs, 1000), "loops": arcs(loops, 50)}


def wrong(device: Device, name: str, config: Mapping[str, Any], those: Mapping[str, Arcs]) -> Iterator[str]:
    """What a configuration gets wrong."""
    spec = GRAPH.kernel(name)
    bound = build(device, spec, PROBLEM, config)
    for shape, graph in those.items():
        if name == "cores":
            graph = graph.both_ways if graph.directed else graph
        given = workload(name, graph, PROBLEM, 0)
        placed = upload(device, given)
        bound.launch(given.count, placed).wait()
        got = {key: device.download(placed[key]) for key in spec.written}
        release(placed)
        if (error := given.verify(got, config)) is not None:
            yield f"{shape}, {describe(config)}: {error}"


@pytest.mark.slow
@pytest.mark.parametrize("name", FUSED)
def test_fused_loops_are_right_on_every_shape(
    name: str, opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PoCL one loop of each kernel; its covering sample, in families/test_device, has every value."""
    monkeypatch.setattr(inputs, "HUB", 40)
    for name_of, small in (("CUT", 8), ("PART", 300), ("CHUNK", 16)):
        monkeypatch.setattr(tiles, name_of, small)
    for changes in FUSED[name][: 1 if "Portable" in opencl_device.info.platform else None]:
        assert list(wrong(opencl_device, name, fused(name, changes), graphs())) == []


@pytest.mark.slow
def test_launches_of_few_rounds_go_on_where_the_last_ended(processor: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    some = {shape: graphs()[shape] for shape in ("path", "hub on a path", "two hubs", "pieces", "clique")}
    for most in (1, 3):
        monkeypatch.setattr(launched_rounds, "MOST_ROUNDS", most)
        monkeypatch.setattr(launched_rounds, "MOST_WORK", most)
        monkeypatch.setattr(pagerank, "MOST_AT_ONCE", most * 1000)
        for name, (first, *_) in FUSED.items():
            assert list(wrong(processor, name, fused(name, first), some)) == []
            default = GRAPH.kernel(name).default(PROBLEM, traits_of(processor.info))
            assert list(wrong(processor, name, default, some)) == []


@pytest.mark.slow
def test_lists_that_overflow_at_once(processor: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work-items keep 64 vertices before they write them out; here 1, 2 or 3."""
    some = {shape: graphs()[shape] for shape in ("star", "clique", "two hubs", "loops", "one way")}
    for room in (1, 2, 3):
        for name in ("bfs", "sssp", "cores", "searches"):
            spec = GRAPH.kernel(name)
            small = replace(spec, variables=lambda *of, spec=spec, room=room: spec.variables(*of) | {"buffer": room})
            monkeypatch.setitem(GRAPH.kernels, name, small)  # type: ignore[arg-type]
            config = dict(spec.default(PROBLEM, Traits("opencl", "cpu", compute_units=64))) | {"walk": 0}
            assert list(wrong(processor, name, config, some)) == []
            monkeypatch.setitem(GRAPH.kernels, name, spec)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bfs", "sssp", "cores"])
def test_bins_that_overflow_are_scanned_for(name: str, processor: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A work-item has one vertex or the arcs of many; bins of 64 have room, those of 1, 2 and 3 often do not."""
    some = {shape: graphs()[shape] for shape in ("clique", "two hubs", "loops", "one way", "hub on a path")}
    launch, launched = LaunchedRounds._launch, list[str]()
    monkeypatch.setattr(
        LaunchedRounds,
        "_launch",
        lambda self, entry, *of, **more: (launched.append(entry), launch(self, entry, *of, **more)),
    )
    spec = GRAPH.kernel(name)
    for changes in ({"team": "item", "block_size": 1}, {"team": "merge", "block_size": 8}):
        config = dict(spec.default(PROBLEM, Traits("opencl", "cpu"))) | {"walk": 0, "per_item": 16, "frontier": "bins"}
        for room in (1, 2, 3, 64):
            monkeypatch.setattr(launched_rounds, "CAPACITY", room)
            launched.clear()
            assert list(wrong(processor, name, config | changes, some)) == []
            assert "concatenate" in launched
            assert "collect" in launched or name == "cores" or room == 64


@pytest.mark.slow
def test_ctrl_c_between_launches_leaves_nothing_behind(pocl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    path = graphs()["path"]
    plain = Arcs(path.offsets, path.targets, path.ids)
    read, reads = Launches.read, []

    def interrupted(self: Launches, name: str, rows: int | None = None) -> Any:
        reads.append(name)
        if len(reads) == 4:
            raise KeyboardInterrupt
        return read(self, name, rows)

    monkeypatch.setattr(launched_rounds, "MOST_WORK", 100)
    monkeypatch.setattr(Launches, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bfs(plain, 0, device=pocl_device.info.spec)
    assert bfs(plain, 0, device=pocl_device.info.spec).values.tolist() == list(range(1000))
    assert len(reads) > 10


def test_more_blocks_than_are_resident_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def launches(device: FakeDevice) -> Launches:
        kernel = device.compile("void rounds(", ["rounds"]).kernel("rounds")
        return Launches(device, {"rounds": kernel}, {"rounds": []}, {}, 1, (PROBLEM, {}, CUDA))

    with FakeDevice() as device:
        launches(device).launch_cooperative("rounds", 1, 64)
        with pytest.raises(LaunchLimitError, match="fake device lets 1 of these blocks wait for each other"):
            launches(device).launch_cooperative("rounds", 264, 256)
        monkeypatch.setattr(FakeKernel, "resident_blocks", lambda self, block, shared=0: 132)
        with pytest.raises(LaunchLimitError, match=".133,., block .256,.: fake device lets 132 of these.*give fewer"):
            launches(device).launch_cooperative("rounds", 133, 256)
        launches(device).launch_cooperative("rounds", 132, 256)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loop": "launches", "per_item": 64, "team": "grid"}, "only fused loops have it: team must be item"),
        ({"block_size": 1}, "block_size must be at least 8"),
        ({"blocks_per_unit": 2}, "groups of OpenCL cannot wait for each other"),
        ({"team": "warp"}, "OpenCL 1.2 has no warps"),
        ({"walk": 64}, "a group of OpenCL is always alone"),
        ({"per_item": 16}, "per_item must be 1"),
        ({"loop": "phases", "direction": "push"}, "loop must be whole"),
        ({"visited": "bitmap"}, "visited must be state"),
        ({"team": "merge"}, "need launches of their own"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], reason: str) -> None:
    spec = GRAPH.kernel("bfs")
    with pytest.raises(ConfigError, match=reason):
        spec.space.check(fused("bfs", changes), PROBLEM, Traits("opencl", "cpu"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": "given", "held": 64}, "of order=degree: held must be 0"),
        ({"loop": "launches", "lanes": 1, "caching": "all"}, "only fused loops of CUDA hold shares"),
        ({"loop": "launches", "lanes": 1, "held": 0}, "only fused loops of CUDA tell caches what to keep"),
        ({"order": "given", "held": 0, "balance": "tiles"}, "only fused loops of order=degree have chunks"),
        ({"blocks_per_unit": 2}, "2 blocks need 122880 bytes each of the 232448 of local memory"),
    ],
)
def test_shares_are_held_where_there_is_room(changes: dict[str, Any], reason: str) -> None:
    spec, large = GRAPH.kernel("pagerank"), PROBLEM.replace(shape="large")
    default = dict(spec.default(large, CUDA))
    assert default == dict(spec.default(PROBLEM, CUDA)) | LARGE
    with pytest.raises(ConfigError, match=reason):
        spec.space.check(default | changes, large, CUDA)
    # A device of less local memory caches them.
    small = replace(CUDA, launch_memory=100 * 1024)
    assert dict(spec.default(large, small))["held"] == 0
    assert spec.space.refusal(dict(spec.default(large, small)), large, small) is None


def test_vertices_with_most_arcs_out_come_first() -> None:
    graph = arcs([(0, 1), (2, 1), (2, 0), (2, 3), (3, 3)], 5)
    order = np.argsort(tiles.arranged_array(graph, "places", None))
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4]
    assert np.all(np.diff(graph.degrees[order]) <= 0)


@pytest.mark.slow
def test_arcs_are_sorted_once_a_graph(processor: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew for another order."""
    sorted_by: list[int] = []
    sort_arcs = tiles.sort_arcs
    monkeypatch.setattr(tiles, "sort_arcs", lambda on, count: (sorted_by.append(count), sort_arcs(on, count)))
    spec = GRAPH.kernel("pagerank")
    given = workload("pagerank", graphs()["two hubs"], PROBLEM, 0)
    placed, ranks = upload(processor, given), []
    for balance in ("tiles", "tiles", "merge", "rows", "tiles"):
        bound = build(processor, spec, PROBLEM, fused("pagerank", TILED | {"balance": balance}))
        for name in ("share", "rank", "settings"):
            processor.write(placed[name], given.arguments[name])
        bound.launch(given.count, placed).wait()
        ranks.append(processor.download(placed["rank"]))
        assert given.verify({key: processor.download(placed[key]) for key in spec.written}, {}) is None
    release(placed)
    assert sorted_by == [tiles.TILES + 1, 1, tiles.TILES + 1]
    assert np.array_equal(ranks[0], ranks[1])


def test_more_arcs_than_32_bits_count_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "NONE", 34 * tiles.CHUNK - 1)
    with pytest.raises(
        InputError, match="698 arcs in an order by tiles need 139264 places of 32 bits: take balance=rows"
    ):
        tiles.arranged(arcs([(0, v) for v in range(2, 700)], 700), np.float32)


@pytest.mark.slow
def test_fused_loops_compile_for_cuda() -> None:
    compiler = find_compiler("nvrtc")  # it belongs to the development install
    for name, changes in (
        ("bfs", {"loop": "phases", "team": "warp", "blocks_per_unit": 8}),
        ("bfs", {"team": "item", "visited": "state", "direction": "pull"}),
        ("sssp", {"loop": "phases", "team": "item", "walk": 1024}),
        ("cores", {"loop": "phases", "block_size": 1024}),
        ("widest", {"loop": "phases", "team": "warp"}),
        ("sssp", {"loop": "launches", "team": "merge", "frontier": "bins", "blocks_per_unit": 1}),
        ("cores", {"loop": "launches", "team": "item", "frontier": "bins", "blocks_per_unit": 1}),
        ("pagerank", {"lanes": 4, "blocks_per_unit": 1}),
        ("pagerank", LARGE),
        ("pagerank", LARGE | {"balance": "tiles", "held": 208}),
        ("pagerank", LARGE | {"balance": "merge", "held": 0, "sums": 1, "caching": "all"}),
        ("pagerank", LARGE | {"lanes": 8, "block_size": 256, "blocks_per_unit": 2}),
    ):
        spec, problem = GRAPH.kernel(name), PROBLEM.replace(weights="real")
        config = dict(spec.default(problem, CUDA)) | changes
        compiled = compile_cuda(render(spec, problem, config, CUDA).text, "sm_90", HASTY, compiler=compiler)
        assert set(compiled.resources) == set(spec.entry_points(config))
        assert [line for line in compiled.log.splitlines() if ": warning" in line] == []
