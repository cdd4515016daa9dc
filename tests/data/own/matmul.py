import numpy as np

from mmsbgen.kernels.family import Launch
from mmsbgen.kernels.own_source import own_kernel


def arguments(sizes, rng):
    shape = (sizes["n"], sizes["n"])
    a, b = rng.random(shape, np.float32), rng.random(shape, np.float32)
    return {"c": np.zeros(shape, np.float32), "a": a, "b": b}


def rows(v):
    return v["block_size_y"] * v["tile_size_y"]


def columns(v):
    return v["block_size_x"] * v["tile_size_x"]


MATMUL = own_kernel(
    "matmul",
    sources=["matmul.cl", "matmul.cu"],
    sizes={"n": 1024},
    axes={
        "block_size_x": (16, 8, 32, 64),
        "block_size_y": (16, 1, 2, 4, 8),
        "tile_size_x": (1, 2, 4, 8),
        "tile_size_y": (1, 2, 4, 8, 16),
        "TILE_K": (16, 8, 32),
    },
    constraints={
        "a block has 32 to 1024 work-items": lambda v: 32 <= v["block_size_x"] * v["block_size_y"] <= 1024,
        "tiles divide the matrices": lambda v: not (v["n"] % rows(v) or v["n"] % columns(v) or v["n"] % v["TILE_K"]),
        "tiles fit into 48 KiB": lambda v: 4 * v["TILE_K"] * (rows(v) + columns(v)) <= 48 << 10,
    },
    launch=lambda v: Launch(
        (v["n"] // columns(v), v["n"] // rows(v)),
        (v["block_size_x"], v["block_size_y"]),
    ),
    arguments=arguments,
    answer=lambda given: {"c": given["a"] @ given["b"]},
    traffic=lambda sizes: 12 * sizes["n"] ** 2,
)
