"""Which devices multiply on tensor cores."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mmsbgen.backends.fake import FakeDevice
from mmsbgen.base.errors import InputError
from mmsbgen.sampler.chain.chain_problem import products_of
from mmsbgen.sampler.options.options import Options

INFO = FakeDevice().info


@pytest.mark.parametrize(
    ("backend", "architecture", "able"),
    [("cuda", "sm_90", True), ("cuda", "sm_80", True), ("cuda", "sm_75", False), ("opencl", "sm_90", False)],
)
def test_half_products_need_tensor_cores(backend: str, architecture: str, able: bool) -> None:
    info = dataclasses.replace(INFO, backend=backend, architecture=architecture)
    asked = {name: Options(4, mini_batch="block", products=name) for name in ("single", "half")}
    assert products_of(asked["single"], info) == "single"
    if able:
        assert products_of(asked["half"], info) == "half"
        return
    with pytest.raises(InputError, match=f"sm_80.*{architecture}.*products='single'"):
        products_of(asked["half"], info)


@pytest.mark.parametrize(
    ("options", "default"),
    [
        ({"mini_batch": "block"}, "half"),
        ({"mini_batch": "block", "dtype": "float64"}, "single"),
        ({"mini_batch": "random-node"}, "single"),
        ({"mini_batch": "random-node", "partners": "shared"}, "single"),
        ({"mini_batch": "random-node", "partners": "shared-uniform"}, "single"),
        ({"mini_batch": "random-node", "partners": "shared-uniform", "dtype": "float64"}, "single"),
    ],
)
def test_tensor_cores_are_used_where_they_can_be(options: dict[str, Any], default: str) -> None:
    gpu = dataclasses.replace(INFO, backend="cuda", architecture="sm_90")
    cpu = dataclasses.replace(INFO, backend="opencl", architecture="cpu-0")
    assert products_of(Options(4, **options), gpu) == default
    assert products_of(Options(4, **options), cpu) == "single"


def test_stars_that_share_take_tensor_cores_when_asked() -> None:
    gpu = dataclasses.replace(INFO, backend="cuda", architecture="sm_90")
    assert products_of(Options(4, mini_batch="random-node", partners="shared", products="half"), gpu) == "half"
