"""What a run needs is told before anything is allocated for it, on the device or by the search for starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmsbgen.backends import find_device
from mmsbgen.backends.opencl.opencl_device import OpenCLDevice
from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.detection.detect import Request, perform
from mmsbgen.detection.plan_chain import planned
from mmsbgen.graph import as_graph, split
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts import background_search
from mmsbgen.sampler.state import memory_needs
from tests.detection.detections import RING

pytestmark = pytest.mark.opencl


@pytest.fixture
def events(monkeypatch) -> list[str]:
    """Words on needs, allocations and searches for starts, in their order; every graph counts as a large one."""
    found: list[str] = []
    alloc, init = OpenCLDevice.alloc, background_search.StartSearch.__init__

    def allocates(self, *args):
        found.append("allocates")
        return alloc(self, *args)

    def seeks(self, *args):
        found.append("seeks")
        init(self, *args)

    monkeypatch.setattr(OpenCLDevice, "alloc", allocates)
    monkeypatch.setattr(background_search.StartSearch, "__init__", seeks)
    monkeypatch.setattr(background_search, "MANY", 10)
    return found


def go(events: list[str], **more) -> None:
    def tell(text: str) -> None:
        if " needs " in text and text.endswith(" free."):
            events.append("needs")

    given = {"options": {"n_communities": 3, "iterations": 4}, "device": "pocl", "on_message": tell, "on_detail": tell}
    perform(RING, Request(**given | more))


def test_needs_come_first(events):
    go(events)
    assert events[:3] == ["needs", "seeks", "allocates"]
    assert events.count("needs") == events.count("seeks") == 1


def test_results_are_announced_before_the_chain(events, monkeypatch):
    """A run that has room for its chain, and none for the entries that are to be kept, does not begin."""
    path = as_graph([(vertex, vertex + 1) for vertex in range(20_000)])
    given, parts = {"n_communities": 64, "mini_batch": "random-node"}, split(path, validation=0.01, seed=0)
    info = find_device("pocl")
    needs = [planned(parts, Options(**given), info, Request(given, top=top)).needs for top in (1, 64)]
    small, large = (one.device_total + one.host_total for one in needs)
    assert large - small > 20_000 * 63 * 8
    monkeypatch.setattr(memory_needs, "available_host_memory", lambda: (large - 1, "the limit of this test"))
    with pytest.raises(DeviceMemoryError, match="does not fit"):
        perform(path, Request(given, device="pocl", top=64))
    assert events == []


def test_of_every_number_of_communities_that_is_tried(events):
    go(events, options={"iterations": 4, "validation": 0.2, "n_communities": "auto"})
    assert "seeks" not in events
    turns = [event for event, before in zip(events, [None, *events[:-1]], strict=True) if event != before]
    assert turns[0] == "needs"
    assert turns[-2:] == ["needs", "allocates"]


def test_what_does_not_fit_is_refused_before_starts_are_sought(events, monkeypatch):
    monkeypatch.setattr(memory_needs, "available_host_memory", lambda: (1_000_000, "the limit of this test"))
    with pytest.raises(DeviceMemoryError, match="does not fit"):
        go(events)
    assert events == []


def test_the_device_seeks_starts_only_with_room_beside_the_chain(monkeypatch):
    path, info = as_graph([(vertex, vertex + 1) for vertex in range(3000)]), find_device("pocl")
    parts = split(path, validation=0.01, seed=0)
    plan = planned(parts, Options(5), info, Request({}))
    enough = plan.needs.device_total + plan.needs.host_total + 2 * background_search.device_bytes(3001, 3000)
    for room, device in ((enough, info.spec), (plan.needs.host_total, None)):
        monkeypatch.setattr(memory_needs, "available_host_memory", lambda room=room: (room, "the limit of this test"))
        assert background_search.searching_device(parts, info, plan.needs) == device
    gpu = replace(info, kind="gpu", global_memory=plan.needs.device_total)
    assert background_search.searching_device(parts, gpu, plan.needs) is None


@pytest.mark.slow
@pytest.mark.parametrize("works", [True, False])
def test_the_process_waits_for_the_device(events, monkeypatch, caplog, works):
    """A configuration that the device refuses leads to threads and a warning; other starts need no device."""
    sent, use = [], background_search.StartSearch.use_device

    def seen(self, config):
        sent.append(config if works else config | {"block_size": 3})
        use(self, sent[-1])

    monkeypatch.setattr(background_search.StartSearch, "use_device", seen)
    go(events, options={"n_communities": 3, "iterations": 4, "start": "communities"})
    assert len(sent) == 1
    assert ["as the device fails" in record.getMessage() for record in caplog.records] == [True] * (not works)
    go(events, options={"n_communities": 3, "iterations": 4, "start": "ego"})
    assert len(sent) == 1
