"""What the records that come with the package say of an H200 alone: nothing of a user's beside them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mmsbgen.backends import DeviceInfo
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.selection.index import SHIPPED, Index, Selection
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.graph import GRAPH
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.record_key import device_record, toolchain_record
from mmsbgen.kernels.runtime import look_up
from tests.devices import H200

RECORDS = SHIPPED / "nvidia-h200.jsonl"
CUDA = replace(
    H200,
    driver="580.159.04 (CUDA 13.0)",
    compiler="nvcc 13.0.88",
    global_memory=150109880320,
    max_allocation=150109880320,
    local_memory=232448,
    vector_width_float=4,
)
#: NVIDIA's OpenCL on the same GPU.
OPENCL = replace(
    CUDA,
    backend="opencl",
    vendor="NVIDIA Corporation",
    platform="NVIDIA CUDA",
    driver="580.159.04",
    compiler="NVIDIA CUDA 580.159.04",
    local_memory=49152,
    sub_group_sizes=(),
    vector_width_float=1,
)
SIZES = (128, 256, 512, 1024, 2048, 4096)
STARS: dict[str, Any] = {"N": 317080, "m": 4096, "n": 32, "partners": "uniform", "noise": "on"}
OF_STARS = (
    "draw_stars",
    "gather_rows",
    "init_pi",
    "perplexity_pairs",
    "sample_partners",
    "theta_end",
    "theta_partial",
    "update_beta",
    "update_phi",
    "update_pi",
)
BLOCKS: dict[str, Any] = {"N": 317080, "m": 32768, "n": 512, "partners": "block", "products": "half", "noise": "off"}
OF_BLOCKS = ("block_factors", "block_links", "block_scales", "block_strike", "block_sums", "shared_partners")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """The package's records beside an empty database."""
    with open_store(tmp_path_factory.mktemp("user") / "tuning.sqlite3") as store:
        assert store.trials() == []
        yield Index(store)


@pytest.mark.parametrize(
    ("kernel", "tiers"),
    [
        ("bfs", {"power-law": "exact", "large": "default", "grid": "architecture", "path": "default"}),
        ("sssp", {"power-law": "exact", "large": "architecture", "grid": "default"}),
        ("pagerank", {"power-law": "exact", "large": "architecture", "grid": "default"}),
        ("cores", {"power-law": "architecture", "large": "default", "grid": "default"}),
        ("components", {"power-law": "architecture", "large": "default"}),
    ],
)
def test_graph_programs_have_records_by_shape(index: Index, kernel: str, tiers: dict[str, str]) -> None:
    """Those of an H100 serve an H200 too, which has its own of com-DBLP; other shapes keep the defaults."""
    sizes = {"n": 317080, "mean_degree": 7, "largest_degree": 343}
    info = replace(CUDA, compiler="NVRTC 13.0.88")
    for shape, tier in tiers.items():
        problem = GRAPH.problem(**sizes, shape=shape, dtype="float64").only(GRAPH.kernel(kernel).parameters)
        found = look_up(index, info, GRAPH, kernel, problem)
        assert found.tier == tier, shape
        assert ("shipped in nvidia-h200-graphs.jsonl" in found.reason) == (tier == "exact")
        assert ("shipped in nvidia-h100.jsonl" in found.reason) == (tier == "architecture")


def _selected(index: Index, info: DeviceInfo, kernel: str, **problem: Any) -> Selection:
    return look_up(index, info, MMSB, kernel, MMSB.problem(**problem))


def _assert_exact(index: Index, info: DeviceInfo, kernels: Iterable[str], **problem: Any) -> None:
    """At every size the records of each kernel are its own."""
    for kernel, k in itertools.product(kernels, SIZES):
        found = _selected(index, info, kernel, K=k, **problem)
        got = (found.tier, found.reason.rpartition(" (")[2])
        assert got == ("exact", f"shipped in {RECORDS.name})"), (kernel, k, found.reason)


def test_the_devices_are_those_of_the_records() -> None:
    keys = [trial.key for trial in jsonl.read(RECORDS).trials]
    for info in (CUDA, OPENCL):
        assert any(key.device.key == device_record(info).key for key in keys)
        assert any(key.toolchain == toolchain_record(info) for key in keys)


@pytest.mark.parametrize("step", ["split", "reflected"])
def test_stars_have_records_of_their_own(index: Index, step: str) -> None:
    _assert_exact(index, CUDA, OF_STARS, step=step, **STARS)


def test_blocks_have_records_of_their_own(index: Index) -> None:
    _assert_exact(index, CUDA, OF_BLOCKS, theta_step="gain", **BLOCKS)


def test_update_phi_has_records_of_nvidias_opencl(index: Index) -> None:
    _assert_exact(index, OPENCL, ["update_phi"], step="split", **STARS)


def test_the_links_of_blocks_that_draw_have_records_of_their_own(index: Index) -> None:
    _assert_exact(index, CUDA, ["block_links"], **BLOCKS | {"noise": "on"})


@pytest.mark.parametrize("partners", ["shared", "shared-uniform"])
def test_stars_that_share_partners_have_records_of_their_own(index: Index, partners: str) -> None:
    shared = STARS | {"n": 256, "partners": partners, "products": "half", "step": "split"}
    _assert_exact(index, CUDA, ["star_factors", "star_rows", "star_scales", "star_sums"], **shared)


@pytest.mark.parametrize(("step", "noise"), [("split", "on"), ("reflected", "on"), ("reflected", "off")])
def test_rows_of_16_bits_have_records_of_their_own(index: Index, step: str, noise: str) -> None:
    rows = STARS | {"storage": "bfloat16", "step": step, "noise": noise}
    _assert_exact(index, CUDA, ["update_phi"], **rows)


@pytest.mark.parametrize(
    ("kernel", "k"), [("star_sums", 1024), ("star_sums", 2048), *(("block_sums", k) for k in SIZES if k >= 512)]
)
def test_sums_are_those_that_a_chain_is_fastest_with(index: Index, k: int, kernel: str) -> None:
    """By themselves sums by ``mma`` are ahead, in chains behind (docs/performance.md)."""
    shared = STARS | {"n": 256, "partners": "shared"} if kernel == "star_sums" else BLOCKS
    assert _selected(index, CUDA, kernel, K=k, **shared | {"products": "half"}).config["instruction"] == "wgmma"
