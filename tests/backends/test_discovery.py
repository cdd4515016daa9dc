from __future__ import annotations

import dataclasses
import json
import sys

import pytest
from click.testing import CliRunner

from mmsbgen import backends
from mmsbgen.backends import DeviceInfo, discovery
from mmsbgen.backends.discovery import discover, select_device
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.backends.nvidia import cuda_device
from mmsbgen.backends.opencl import opencl_device
from mmsbgen.base.errors import InputError
from mmsbgen.cli import main

BASE = FakeDevice().info
GPU = dataclasses.replace(BASE, backend="cuda", index=1, name="NVIDIA H200", platform="CUDA", kind="gpu")
GPU_CL = dataclasses.replace(BASE, backend="opencl", index=0, name="NVIDIA H200", platform="NVIDIA CUDA", kind="gpu")
POCL = dataclasses.replace(BASE, backend="opencl", index=1, name="cpu", platform="Portable Computing Language")
INTEL = dataclasses.replace(BASE, backend="opencl", index=2, name="AMD EPYC", platform="Intel(R) OpenCL")


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> list[DeviceInfo]:
    monkeypatch.setattr(cuda_device, "discover", lambda: ([GPU], ["hint one"]))
    monkeypatch.setattr(opencl_device, "discover", lambda: ([GPU_CL, POCL, INTEL], []))
    return [GPU, GPU_CL, INTEL, POCL]


def test_the_best_comes_first(everything: list[DeviceInfo]) -> None:
    assert discover() == (everything, ["hint one"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, GPU),
        ("cuda:1", GPU),
        ("OpenCL:0", GPU_CL),
        ("opencl:2", INTEL),
        ("pocl", POCL),
        ("Intel", INTEL),
        ("epyc", INTEL),
        (" 2 ", INTEL),
        ("0", GPU_CL),
        ("cuda", GPU),
        ("amd epyc", INTEL),
        ("CPU", POCL),
        ("portable", POCL),
    ],
)
def test_selects(everything: list[DeviceInfo], spec: str | None, expected: DeviceInfo) -> None:
    assert select_device(spec, everything, []) == expected


# CPUs of which each platform has a name that has the other's in it, and the names of both have digits.
SKYLAKE = dataclasses.replace(POCL, index=0, name="pthread-skylake-avx512-AMD EPYC")
EPYC = dataclasses.replace(INTEL, index=1)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("0", SKYLAKE), ("1", EPYC), ("512", None), ("AMD EPYC", EPYC), ("skylake", SKYLAKE), ("intel", EPYC)],
)
def test_a_number_is_never_a_part_of_a_name(spec: str, expected: DeviceInfo | None) -> None:
    if expected is not None:
        assert select_device(spec, [EPYC, SKYLAKE], []) == expected
    else:
        with pytest.raises(InputError, match=f"no device matches '{spec}'"):
            select_device(spec, [EPYC, SKYLAKE], [])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("1", [GPU, POCL]), ("h200", [GPU, GPU_CL]), ("opencl", [GPU_CL, INTEL, POCL]), ("e", [GPU_CL, INTEL, POCL])],
)
def test_what_several_devices_match_lists_them(
    everything: list[DeviceInfo], spec: str, expected: list[DeviceInfo]
) -> None:
    with pytest.raises(InputError, match=f"'{spec}' may be several devices, name one by its first word") as caught:
        select_device(spec, everything, [])
    assert [line.split()[0] for line in str(caught.value).splitlines()[1:]] == [info.spec for info in expected]


@pytest.mark.parametrize("spec", ["opencl:9", "radeon", "", "cuda:0", "7"])
def test_unknown_devices_list_what_exists(everything: list[DeviceInfo], spec: str) -> None:
    with pytest.raises(InputError, match=r"(?s)no device matches.*cuda:1  NVIDIA H200.*opencl:1  cpu"):
        select_device(spec, everything, [])


def test_no_device_at_all_says_how_to_get_one() -> None:
    with pytest.raises(InputError, match="apt install x"):
        select_device(None, [], ["apt install x"])


@pytest.mark.parametrize(("module", "package"), [("pyopencl", "pyopencl"), ("pycuda", "'mmsbgen[cuda]'")])
def test_a_missing_library_is_a_hint(monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    backend = opencl_device if module == "pyopencl" else cuda_device
    found, (hint,) = backend.discover()
    assert found == []
    assert f"pip install {package}" in hint


@pytest.mark.opencl
def test_both_platforms_show_side_by_side(opencl_device: backends.Device) -> None:
    found, _ = discover()
    assert opencl_device.info.spec in {info.spec for info in found}
    assert len({info.spec for info in found}) == len(found)


def test_command_prints_a_table(everything: list[DeviceInfo]) -> None:
    result = CliRunner().invoke(main, ["devices"])
    assert result.exit_code == 0
    assert "Portable Computing Language" in result.output
    assert "Used when none is named: cuda:1" in result.output
    assert "hint one" in result.output


def test_command_prints_json(everything: list[DeviceInfo]) -> None:
    result = CliRunner().invoke(main, ["devices", "--json"])
    answer = json.loads(result.output)
    assert [device["spec"] for device in answer["devices"]] == [info.spec for info in everything]
    assert answer["hints"] == ["hint one"]


def test_command_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "discover", lambda: ([], ["get one"]))
    monkeypatch.setattr(backends, "discover", lambda: ([], ["get one"]))
    result = CliRunner().invoke(main, ["devices"])
    assert result.exit_code == 0
    assert "No device was found" in result.output
    assert "get one" in result.output
