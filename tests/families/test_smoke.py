"""Every kernel once: compile, run and check its default configuration on a small problem, for the quick round."""

from __future__ import annotations

import pytest

from mmsbgen.backends import Device
from mmsbgen.families import family
from mmsbgen.kernels.build import check, traits_of

MMSB = family()


@pytest.mark.smoke
@pytest.mark.parametrize("name", MMSB.written_in("opencl"))
def test_the_default_agrees_with_the_reference(pocl_device: Device, name: str) -> None:
    spec = MMSB.kernel(name)
    problem = MMSB.problem(K=20, N=30, m=4, n=3)
    config = spec.default(spec.check_problem(problem), traits_of(pocl_device.info))
    assert check(pocl_device, spec, problem, config) is None
