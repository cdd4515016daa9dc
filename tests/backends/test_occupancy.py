"""Blocks that are resident at once, against NVIDIA's cuda_occupancy.h for compute capability 9.0."""

from __future__ import annotations

import pytest

from mmsbgen.backends.nvidia.cuda_kernel import Multiprocessor, resident_blocks

H200 = Multiprocessor(threads=2048, registers=65536, shared_bytes=233472, blocks=32)


@pytest.mark.parametrize(
    ("block", "registers", "shared_bytes", "blocks"),
    [
        # Two warps a block: by the registers of the whole multiprocessor these would be 7, 5 and 9.
        (64, 136, 0, 6),
        (64, 178, 0, 4),
        (64, 111, 0, 8),
        (32, 136, 0, 12),
        (96, 80, 0, 8),
        (128, 126, 4096, 4),
        (160, 64, 0, 6),
        (192, 128, 1000, 2),
        (256, 40, 24576, 6),
        (256, 255, 0, 1),
        (512, 128, 49152, 1),
        (1024, 64, 0, 1),
        (1024, 65, 0, 0),
        (64, 40, 16000, 13),
        (64, 40, 15372, 14),
        (64, 40, 13700, 15),
        (128, 32, 200000, 1),
        (128, 32, 232448, 1),
        (128, 32, 232449, 0),
        (7, 16, 0, 32),
        (32, 255, 100, 8),
    ],
)
def test_as_many_as_by_nvidias_header(block: int, registers: int, shared_bytes: int, blocks: int) -> None:
    assert resident_blocks(block, registers, shared_bytes, H200) == blocks


def test_no_more_than_every_architecture_holds() -> None:
    assert resident_blocks(32, 16, 0, Multiprocessor(2048, 65536, 233472)) == 16
