"""Staging through page-locked memory, with a driver whose copies leave when the test says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.backends.nvidia.pinned_memory import LARGEST, Pinned


class Driver:
    """What :class:`Pinned` asks of PyCUDA; no copy leaves before it is waited for."""

    Error = RuntimeError

    def __init__(self, most: int = 10**9) -> None:
        self.most = most
        self.allocated = self.waits = 0
        self.waiting: list[tuple[int, Any]] = []
        self.memory: dict[int, bytes] = {}

    def pagelocked_empty(self, size: int, dtype: Any) -> Any:
        if self.allocated + size > self.most:
            raise self.Error("out of memory")
        self.allocated += size
        return np.empty(size, dtype)

    def memcpy_htod_async(self, address: int, part: Any, stream: object) -> None:
        self.waiting.append((address, part))

    def memcpy_htod(self, address: int, array: Any) -> None:
        self.leave(len(self.waiting))
        self.memory[address] = array.tobytes()

    def leave(self, count: int) -> None:
        for address, part in self.waiting[:count]:
            self.memory[address] = part.tobytes()
        del self.waiting[:count]

    def Event(self) -> Any:  # noqa: N802
        return _Event(self)


class _Event:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def record(self, stream: object) -> None:
        self.last = self.driver.waiting[-1]

    def query(self) -> bool:
        return all(waiting is not self.last for waiting in self.driver.waiting)

    def synchronize(self) -> None:
        if not self.query():
            self.driver.waits += 1
            self.driver.leave(1 + next(i for i, w in enumerate(self.driver.waiting) if w is self.last))


def written(driver: Driver, pinned: Pinned, count: int, size: int) -> None:
    """Write arrays that change at once, and look what arrived."""
    array = np.empty(size, np.uint8)
    for number in range(count):
        array[:] = number % 251
        pinned.queue(number, array)
        array[:] = 255
    pinned.clear()
    assert driver.memory == {number: bytes([number % 251]) * size for number in range(count)}


@pytest.mark.parametrize(("size", "without_a_wait"), [(1, 64), (5000, 64), (1 << 20, 8), (LARGEST, 4)])
def test_arrays_arrive_as_they_were(size: int, without_a_wait: int) -> None:
    driver = Driver()
    pinned = Pinned(driver, None)
    for number in range(without_a_wait):
        pinned.queue(number, np.zeros(size, np.uint8))
    assert driver.waits == 0
    pinned.queue(0, np.zeros(size, np.uint8))
    assert driver.waits == 1
    pinned.clear()
    again = Driver()
    written(again, Pinned(again, None), 3 * without_a_wait, size)
    assert again.allocated <= max(8 << 20, 4 * LARGEST)


def test_buffers_that_left_are_taken_again() -> None:
    driver = Driver()
    pinned = Pinned(driver, None)
    for number in range(100):
        pinned.queue(number, np.zeros(100, np.uint8))
        driver.leave(1)
    assert (driver.allocated, driver.waits) == (4096, 0)


def test_a_host_without_such_memory_waits_instead() -> None:
    driver = Driver(most=3 * 4096)
    written(driver, Pinned(driver, None), 20, 100)
