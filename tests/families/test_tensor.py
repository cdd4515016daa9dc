"""Kernels of a block's products on tensor cores: what they declare, and what half-wide factors cost.

They run on GPUs only (scripts/gpu_check.py holds them against the reference there); here they are compiled.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda
from mmsbgen.base.errors import MissingDependencyError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.blocks import tensor_kernels
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR
from mmsbgen.families.mmsb.stars import star_kernels
from mmsbgen.kernels.build import check, traits_of
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits

CUDA = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32)
HOPPER = Traits("cuda", "gpu", sub_group_size=32, launch_memory=227 * 1024, warp_groups=True)
DELTA = 1e-4
TILES = [
    (128, 128, 32, 3, 256),
    (64, 64, 32, 4, 64),
    (128, 64, 64, 2, 128),
    (64, 128, 32, 2, 128),
    (64, 256, 32, 2, 256),
]


#: Those of four warps together.
WIDE_TILES = [(64, 64, 64, 4, 128), (128, 128, 64, 3, 256), (128, 256, 64, 4, 256), (64, 256, 64, 3, 128)]
CASES = [(CUDA, "mma", values) for values in TILES] + [(HOPPER, "wgmma", values) for values in WIDE_TILES]
#: Rows of one tile, for the first and the last tile of each instruction.
NARROW = [(1, CUDA, "mma", values) for values in TILES[:: len(TILES) - 1]]
NARROW += [(1, HOPPER, "wgmma", values) for values in WIDE_TILES[:: len(WIDE_TILES) - 1]]


def tile(*values: int, instruction: str = "mma") -> dict[str, Any]:
    sizes = dict(zip(("tile_rows", "tile_columns", "depth", "stages", "block_size"), values, strict=True))
    return sizes | {"instruction": instruction}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "traits", "instruction", "values"), [*((1000, *case) for case in CASES), *NARROW], ids=str
)
@pytest.mark.parametrize("kernel", ["block_scales", "block_sums", "star_scales", "star_sums"])
def test_launches_give_tiles_the_shared_memory_that_is_counted(
    kernel: str, k: int, traits: Traits, instruction: str, values: tuple[int, ...]
) -> None:
    """Compiled, not run: the ring is all the launch's, and with all registers there are, nothing is spilled."""
    spec, problem, config = MMSB.kernel(kernel), MMSB.problem(K=k, n=1200), tile(*values, instruction=instruction)
    assert spec.space.refusal(config, problem, traits) is None
    try:
        text = render(spec, problem, config, traits).text
        compiled = compile_cuda(text)
    except MissingDependencyError:
        pytest.skip("neither NVRTC nor nvcc is here")
    used = compiled.resources[kernel]
    assert "serialized" not in compiled.log  # what ptxas says of wgmma whose sums it must wait for
    launch = spec.launch(problem, config, 100, traits)
    assert used.shared_bytes == 0
    assert launch.shared == tensor_kernels.tile_bytes(problem, config, traits)
    # The ring's last stage begins at (stages - 1) times a stage's bytes.
    sizes = dict(re.findall(r"^#define (TM|TN|DEPTH|STAGES) (\d+)u$", text, re.MULTILINE))
    rows, columns, depth, stages = (int(sizes[name]) for name in ("TM", "TN", "DEPTH", "STAGES"))
    assert launch.shared == stages * (2 * rows * depth + 2 * columns * depth)
    for line in ("#define A_BYTES (2u * TM * DEPTH)", "#define STAGE_BYTES (A_BYTES + 2u * TN * DEPTH)"):
        assert line in text
    assert "stage == begin + ((STAGES - 1u) * STAGE_BYTES) ? begin" in text
    assert used.spill_stores == 0


@pytest.mark.parametrize(
    ("values", "traits", "reason"),
    [
        ((128, 128, 64, 3, 256), CUDA, "needs 98304 bytes of local memory"),
        ((128, 256, 32, 2, 128), CUDA, "256 sums a work-item; at most 128"),
        ((64, 64, 32, 2, 32), CUDA, "a tile is shared by 2, 4 or 8 warps"),
        ((128, 128, 32, 3, 256), Traits("opencl", "gpu", sub_group_size=32), "on CUDA"),
    ],
)
def test_tiles_are_refused_with_a_reason(values: tuple[int, ...], traits: Traits, reason: str) -> None:
    refused = MMSB.kernel("block_scales").space.refusal(tile(*values), MMSB.problem(n=512), traits)
    assert reason in str(refused)


@pytest.mark.parametrize(
    ("values", "traits", "reason"),
    [
        ((128, 128, 64, 3, 256), CUDA, "wgmma is an instruction of sm_90 alone"),
        ((64, 128, 64, 3, 256), HOPPER, "64 rows of a tile for every four warps"),
        ((128, 128, 32, 3, 256), HOPPER, "slices of 64"),
        ((128, 128, 64, 2, 256), HOPPER, "one multiplied, one waited for and one copied"),
    ],
)
def test_what_four_warps_cannot_multiply_is_refused(values: tuple[int, ...], traits: Traits, reason: str) -> None:
    config = tile(*values, instruction="wgmma")
    assert reason in str(MMSB.kernel("block_sums").space.refusal(config, MMSB.problem(n=512), traits))


def test_the_default_takes_what_the_device_has() -> None:
    spec, problem = MMSB.kernel("block_scales"), MMSB.problem(n=512)
    assert spec.default(problem, HOPPER)["instruction"] == "wgmma"
    assert spec.default(problem, CUDA)["instruction"] == "mma"


def test_tiles_cover_a_row_and_warps_a_block() -> None:
    problem, valid = MMSB.problem(n=512), 0
    for config in tensor_kernels.TILES.product():
        if tensor_kernels.TILES.refusal(config, problem, CUDA) is None:
            valid += 1
            used = tensor_kernels.BLOCK_SUMS.variables(problem, config, CUDA)
            assert used["warps_m"] * used["warps_n"] * 32 == config["block_size"]
            assert used["tiles"] * used["TN"] >= 1024 > (used["tiles"] - 1) * used["TN"]
    assert valid > 20


@pytest.mark.parametrize("strength", [0.9, 0.999, 0.99978, 1 - 1e-6])
def test_dots_near_1_give_no_scale_beyond_their_own(strength: float) -> None:
    """Two vertices that act in one strong community alone, and are no link: as ``two_float16`` rounds, toward zero."""

    def toward_zero(x: float) -> float:
        near = np.float16(x)
        return float(near if float(near) <= x else np.nextafter(near, np.float16(0)))

    own, row = np.float32(1.0) * np.float32(strength - DELTA), np.float32(1.0)
    z = max((1 - DELTA) - toward_zero(float(own)) * toward_zero(float(row)), BETA_FLOOR)
    right = (1 - DELTA) - float(own)
    assert z >= min(right, BETA_FLOOR) * (1 - 1e-6)
    assert z <= right + 2.0**-10
    if strength < 0.9995:
        assert z == pytest.approx(right, rel=1.0)


@pytest.mark.parametrize(
    ("kernel", "partners"),
    [
        *((spec.name, "block") for spec in tensor_kernels.KERNELS),
        *((spec.name, "shared") for spec in star_kernels.KERNELS),
        ("star_marks", "shared"),
        *((name, "shared-uniform") for name in ("star_marks", "star_factors", "star_scales")),
    ],
)
@pytest.mark.parametrize("k", [1, 7, 100, 1024])
@pytest.mark.parametrize("n", [6, 100, 1025])
def test_kernels_equal_the_reference(cuda_device: Device, kernel: str, partners: str, k: int, n: int) -> None:
    spec = MMSB.kernel(kernel)
    problem = spec.check_problem(MMSB.problem(K=k, n=n, partners=partners, products="half"))
    config = spec.default(problem, traits_of(cuda_device.info))
    assert check(cuda_device, spec, problem, config) is None


@pytest.mark.parametrize(("traits", "instruction", "values"), CASES, ids=str)
@pytest.mark.parametrize("kernel", ["block_scales", "block_sums"])
def test_tiles_equal_the_reference(
    cuda_device: Device, kernel: str, traits: Traits, instruction: str, values: tuple[int, ...]
) -> None:
    """Both instructions, whichever is the device's default; wgmma where it has that."""
    spec, config = MMSB.kernel(kernel), tile(*values, instruction=instruction)
    problem = spec.check_problem(MMSB.problem(K=1000, n=1025, partners="block", products="half"))
    if instruction == "wgmma" and not traits_of(cuda_device.info).warp_groups:
        pytest.skip("wgmma is an instruction of sm_90 alone")
    assert check(cuda_device, spec, problem, config) is None
