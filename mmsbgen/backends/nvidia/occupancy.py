"""How many blocks of a CUDA kernel a multiprocessor holds at once."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Multiprocessor", "resident_blocks"]

_WARP = 32
#: Parts of a multiprocessor with registers and warps of their own.  The first of Pascal's has two, for which this is
#: too few blocks, and never too many.
_PARTS = 4
#: Registers are given to a warp so many at a time.
_REGISTERS_AT_A_TIME = 256
#: Bytes of shared memory are given to a block so many at a time, beyond what the driver keeps of each block's.
_SHARED_AT_A_TIME, _SHARED_OF_DRIVER = 128, 1024


@dataclass(frozen=True)
class Multiprocessor:
    """What the blocks of a multiprocessor share."""

    threads: int
    registers: int
    shared_bytes: int
    blocks: int = 16
    """Architectures from Maxwell on hold 16 at the least."""


def resident_blocks(block: int, registers: int, shared_bytes: int, of: Multiprocessor) -> int:
    """Blocks of ``block`` work-items, with so many registers each and bytes a block, that are resident at once.

    As cuda_occupancy.h of NVIDIA has it: a warp has all its registers in one part of the multiprocessor, so that
    registers which are left over in several parts serve nobody.  Never more than the hardware holds, so that a barrier
    of the grid opens, as long as nothing else waits for places there: such a kernel has the device for itself.
    """
    warps = -(-block // _WARP)
    of_warp = _up(max(1, registers) * _WARP, _REGISTERS_AT_A_TIME)
    # A launch is refused as though a block's warps were dealt out to all parts evenly.
    if of_warp * _up(warps, _PARTS) > of.registers:
        return 0
    by_registers = _PARTS * (of.registers // _PARTS // of_warp) // warps
    by_shared = of.shared_bytes // _up(shared_bytes + _SHARED_OF_DRIVER, _SHARED_AT_A_TIME)
    return min(of.threads // (_WARP * warps), by_registers, by_shared, of.blocks)


def _up(value: int, step: int) -> int:
    """The least multiple of ``step`` that is not less."""
    return -(-value // step) * step
