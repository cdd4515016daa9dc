"""Occupancy: the number of blocks of a CUDA kernel that are resident on a multiprocessor."""

from __future__ import annotations

from dataclasses import dataclass

_WARP = 32
#: Partitions of a multiprocessor, each with its own registers and warps.  On GP100, which has two, the result may be
#: too small but never too large.
_PARTS = 4
#: Allocation unit of registers for a warp.
_REGISTERS_AT_A_TIME = 256
#: Allocation unit of shared memory for a block in bytes, and the bytes of each block that the driver reserves.
_SHARED_AT_A_TIME, _SHARED_OF_DRIVER = 128, 1024


@dataclass(frozen=True)
class Multiprocessor:
    """Resources that the blocks of a multiprocessor share."""

    threads: int
    registers: int
    shared_bytes: int
    blocks: int = 16
    """Architectures since Maxwell hold at least 16."""


def resident_blocks(block: int, registers: int, shared_bytes: int, of: Multiprocessor) -> int:
    """Number of blocks of ``block`` work-items that are resident on one multiprocessor at once.

    The rules are those of NVIDIA's cuda_occupancy.h: all registers of a warp are in one partition of the
    multiprocessor, so registers left over in several partitions cannot be combined.  The result never exceeds the true
    value, so a grid-wide barrier cannot deadlock if the kernel has the device for itself.

    Args:
        block: Work-items of a block.
        registers: Registers of a work-item.
        shared_bytes: Shared memory of a block in bytes.
        of: The multiprocessor.
    """
    warps = -(-block // _WARP)
    of_warp = _up(max(1, registers) * _WARP, _REGISTERS_AT_A_TIME)
    # A launch is refused as if a block's warps were distributed evenly over the partitions.
    if of_warp * _up(warps, _PARTS) > of.registers:
        return 0
    by_registers = _PARTS * (of.registers // _PARTS // of_warp) // warps
    by_shared = of.shared_bytes // _up(shared_bytes + _SHARED_OF_DRIVER, _SHARED_AT_A_TIME)
    return min(of.threads // (_WARP * warps), by_registers, by_shared, of.blocks)


def _up(value: int, step: int) -> int:
    """The least multiple of ``step`` that is at least ``value``."""
    return -(-value // step) * step
