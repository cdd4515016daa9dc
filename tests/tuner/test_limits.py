from __future__ import annotations

from dataclasses import replace

import pytest

from mmsbgen.backends import Device, open_device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.base.errors import InputError
from mmsbgen.kernels.build import check, compiler_options, traits_of
from mmsbgen.kernels.render import render
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Traits
from mmsbgen.tuner.measure.roof_kernels import ROOFS
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES, measure_roofs, within_budget
from tests.devices import HASTY

GPU = Traits("cuda", "gpu", sub_group_size=32)
USED = {"roof_counts": {"row_bytes": 4}}
FEWEST = {"roof_adds": 2, "roof_counts": 2, "roof_launch": 1, "roof_barrier": 1}


@pytest.mark.parametrize("kernel", sorted(ROOFS.kernels))
def test_every_shape_answers_right(opencl_device: Device, kernel: str) -> None:
    spec, traits = ROOFS.kernel(kernel), traits_of(opencl_device.info)
    problem = ROOFS.problem(**USED.get(kernel, {}))
    configs = spec.space.configs(problem, traits)
    assert len(configs) >= FEWEST.get(kernel, 4)
    for config in configs:
        assert check(opencl_device, spec, problem, config) is None, config


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sorted(ROOFS.kernels))
def test_every_shape_compiles_for_cuda(kernel: str) -> None:
    spec, problem = ROOFS.kernel(kernel), ROOFS.problem(**USED.get(kernel, {}))
    configs = spec.space.configs(problem, GPU)
    assert len(configs) >= FEWEST.get(kernel, 4)
    for config in configs:
        source = render(spec, problem, config, GPU)
        compile_cuda(source.text, "sm_90", (*compiler_options(GPU), *HASTY), compiler=find_compiler("nvrtc"))


@pytest.mark.alone
def test_roofs_are_rates_that_memory_can_have(opencl_device: Device) -> None:
    roofs = measure_roofs(opencl_device, 4096, buffer_bytes=256 << 20)
    assert 0.5 < roofs.copy < 2000
    assert 0.5 < roofs.gather < 2000
    assert roofs.row_bytes == 4096
    assert "block_size=" in roofs.shape
    assert opencl_device.allocated == 0


@pytest.mark.parametrize("row_bytes", [4, 20, 64, 3 << 20])
def test_rows_of_any_size(pocl_device: Device, row_bytes: int) -> None:
    assert measure_roofs(pocl_device, row_bytes, buffer_bytes=16 << 20).gather > 0


test_rows_of_any_size = pytest.mark.opencl(test_rows_of_any_size)


def test_rows_must_be_whole_numbers() -> None:
    with open_device("fake") as device, pytest.raises(InputError, match="needs a multiple of 4"):
        measure_roofs(device, 6)


def test_kinds_that_a_device_cannot_do_are_left_out() -> None:
    """A GPU without sub-groups has no shape for rows of 4 bytes."""
    kinds = [RoofKind("counts", 4, 1 << 16), RoofKind("update", 64, 1 << 16), RoofKind("launch")]
    with open_device("fake") as device:
        device.info = replace(device.info, kind="gpu", sub_group_sizes=())
        assert [*measure_roofs(device, 64, 1 << 20, kinds).others] == kinds[1:]


def test_short_tunes_on_processors_measure_roofs_in_a_smaller_buffer(pocl_device: Device) -> None:
    """A buffer that the user chose stays, as does that of a GPU, which is quick."""
    gpu = replace(pocl_device.info, kind="gpu")
    assert within_budget(BUFFER_BYTES, pocl_device.info, 5.0) == BUFFER_BYTES // 4
    assert within_budget(BUFFER_BYTES, pocl_device.info, 120.0) == BUFFER_BYTES
    assert within_budget(BUFFER_BYTES, pocl_device.info, None) == BUFFER_BYTES
    assert within_budget(16 << 20, pocl_device.info, 5.0) == 16 << 20
    assert within_budget(BUFFER_BYTES, gpu, 5.0) == BUFFER_BYTES
