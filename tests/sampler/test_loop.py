"""Many iterations in one launch, on a CUDA device: against the reference, and against one launch a stage."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mmsbgen.backends.fake import FakeDevice, FakeKernel
from mmsbgen.base.errors import CompileError, ConfigError, LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.stars.star_loop import STAGES
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from tests.devices import H200
from tests.sampler.test_iteration import batch_of, compare, everything, state_of


def fused(device, parts, **options):
    """A chain in fused mode; close it."""
    options = {"n_communities": 5, "seed": 11, "mini_batch": "random-node", **options}
    return Sampler(parts, Options(**options), Runtime(device, MMSB), fused=True)


@pytest.mark.parametrize("mini_batch", ["random-node", "random-node-link", "random-node-non-link"])
@pytest.mark.parametrize(("step", "noise"), [("split", True), ("reflected", True), ("split", False)])
def test_an_iteration_is_the_references(cuda_device, middling, mini_batch, step, noise):
    chain = fused(
        cuda_device, middling, mini_batch=mini_batch, mini_batch_size=20, step=step, noise=noise, dtype="float64"
    )
    try:
        chain.initialise()
        compared = 0
        for _ in range(40):
            before = state_of(chain)
            assert chain.advance(1) == 1
            batch = batch_of(chain)
            if batch.pairs_a.size > 1:
                compare(chain, before, batch, 2.0**-53)
                compared += 1
        assert compared > 10
    finally:
        chain.close()


@pytest.mark.parametrize("communities", [5, 64, 1024])
def test_many_iterations_are_those_of_single_launches(cuda_device, chain, middling, communities):
    options = {"n_communities": communities, "mini_batch_size": 30, "dtype": "float64", "delta": 1e-4}
    single = chain(cuda_device, middling, **options)
    loop = fused(cuda_device, middling, **options)
    try:
        for sampler in (single, loop):
            sampler.initialise()
        while loop.iteration < 150:
            loop.advance(150 - loop.iteration)
        for _ in range(150):
            single.step()
        assert loop.chain.vertex_updates == single.chain.vertex_updates
        for x, y in zip(everything(single), everything(loop), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-12)
    finally:
        loop.close()


def test_devices_whose_blocks_must_not_wait_are_refused(pocl_device, middling):
    with pytest.raises(ConfigError, match="need CUDA.*use --separate"):
        fused(pocl_device, middling)


@pytest.fixture
def named(monkeypatch):
    """What errors begin with; fake devices hold blocks at once."""
    monkeypatch.setattr(FakeKernel, "resident_blocks", lambda *_: 132)
    return "^star_loop [(]" + ", ".join(f"{stage}: [^:]*=[^:]*" for stage in STAGES) + "[)]"


def test_what_its_launches_are_refused_for_names_the_stages(middling, monkeypatch, named):
    real = FakeKernel._check

    def check(self, *arguments):
        if self.name == "star_loop":
            raise LaunchError("too many resources")
        return real(self, *arguments)

    chain = fused(FakeDevice(H200), middling)
    chain.initialise()
    monkeypatch.setattr(FakeKernel, "_check", check)
    with pytest.raises(LaunchError, match=named + ": too many resources") as caught:
        chain.advance(1)
    assert f"({chain.loop._kernel.configuration}): " in str(caught.value), "told where queued work fails too"
    chain.close()


def test_one_that_does_not_compile_names_the_stages(middling, monkeypatch, named):
    real = FakeDevice.compile

    def compile_(self, source, names, *arguments, **options):
        if names == ["star_loop"]:
            raise CompileError("too many registers")
        return real(self, source, names, *arguments, **options)

    monkeypatch.setattr(FakeDevice, "compile", compile_)
    with pytest.raises(CompileError, match=named + " does not compile: too many registers"):
        fused(FakeDevice(H200), middling)


def test_a_device_that_does_not_answer_is_told_of_the_stages(middling, monkeypatch, named):
    def resident_blocks(self, block):
        raise LaunchError("no device")

    monkeypatch.setattr(FakeKernel, "resident_blocks", resident_blocks)
    with pytest.raises(LaunchError, match=named + ": no device"):
        fused(FakeDevice(H200), middling)


@pytest.mark.parametrize(
    ("backend", "mini_batch", "fused"),
    [
        ("cuda", "random-node", True),
        ("cuda", "random-node-link", True),
        ("cuda", "random-node-non-link", False),
        ("cuda", "block", False),
        ("opencl", "random-node", False),
    ],
)
def test_what_is_fused_by_default_follows_from_device_and_mini_batch(middling, named, backend, mini_batch, fused):
    info = dataclasses.replace(H200, backend=backend)
    chain = Sampler(
        middling, Options(mini_batch=mini_batch, n_communities=5), Runtime(FakeDevice(info), MMSB), fused=None
    )
    assert (chain.loop is not None) == fused
    chain.close()
