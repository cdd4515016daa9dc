"""Which devices may multiply on tensor cores."""

from __future__ import annotations

import dataclasses

import pytest

from mmsbgen.backends.fake import FakeDevice
from mmsbgen.errors import InputError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.sampler.blocks import check_products


@pytest.mark.parametrize(
    ("backend", "architecture", "able"),
    [("cuda", "sm_90", True), ("cuda", "sm_80", True), ("cuda", "sm_75", False), ("opencl", "sm_90", False)],
)
def test_half_products_need_tensor_cores(backend: str, architecture: str, able: bool) -> None:
    info = dataclasses.replace(FakeDevice().info, backend=backend, architecture=architecture)
    check_products(MMSB.problem(products="single"), info)
    if able:
        check_products(MMSB.problem(products="half"), info)
        return
    with pytest.raises(InputError, match=f"sm_80.*{architecture}.*products='single'"):
        check_products(MMSB.problem(products="half"), info)
