from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.backends import open_device
from mmsbgen.backends.fake import FakeDevice, FakeLaunch
from mmsbgen.base.errors import CompileError, DeviceMemoryError, InputError, LaunchError


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


def test_keeps_buffers(device: FakeDevice) -> None:
    array = np.arange(12, dtype=np.int32).reshape(4, 3)
    buffer = device.upload(array)
    array[:] = 0
    np.testing.assert_array_equal(device.download_range(buffer, 1, 3), np.arange(3, 9).reshape(2, 3))
    device.write(buffer, np.full((1, 3), 5, np.int32), offset=3)
    other = device.zeros((4, 3), np.int32)
    device.copy(other, buffer)
    assert device.download(other)[3].tolist() == [5, 5, 5]
    assert device.allocated == 96
    device.close()
    assert device.allocated == 0
    with pytest.raises(InputError, match="released"):
        device.download(buffer)


def test_records_launches(device: FakeDevice) -> None:
    kernel = device.compile("void k()", ["k"]).kernel("k")
    buffer = device.zeros(3, np.float32)
    kernel.launch((2,), (64,), (buffer, np.float32(1)), shared=16)
    assert device.launches == [FakeLaunch("k", (2,), (64,), (buffer, np.float32(1)), 16)]


def test_launches_alone_move_its_clock(device: FakeDevice) -> None:
    kernel = device.compile("void k()", ["k"]).kernel("k")
    before = device.mark()
    first, second = (kernel.launch((1,), (64,)).seconds() for _ in range(2))
    assert 0 < first == pytest.approx(second)
    after = device.mark()
    assert after.seconds() == 0
    assert after.seconds_since(before) == pytest.approx(first + second)


def test_refuses_what_devices_refuse(device: FakeDevice) -> None:
    kernel = device.compile("void k()", ["k"]).kernel("k")
    with pytest.raises(LaunchError, match="2048"):
        kernel.launch((1,), (2048,))
    with pytest.raises(LaunchError, match="shared memory"):
        kernel.launch((1,), (1,), shared=10**6)
    with pytest.raises(CompileError, match="missing"):
        device.compile("void k()", ["missing"])
    with pytest.raises(InputError, match="no kernel 'other'"):
        device.compile("void k()", ["k"]).kernel("other")
    with pytest.raises(DeviceMemoryError, match="cannot allocate"):
        device.alloc(2**40, np.float32)


def test_opens_by_name() -> None:
    assert isinstance(open_device("fake"), FakeDevice)
