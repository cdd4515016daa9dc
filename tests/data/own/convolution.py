import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mmsbgen.kernels.family import Launch
from mmsbgen.kernels.own_source import own_kernel


def arguments(sizes, rng):
    size, window = (sizes["height"], sizes["width"]), (sizes["filter_height"], sizes["filter_width"])
    inputs = tuple(n + more - 1 for n, more in zip(size, window, strict=True))
    return {
        "output": np.zeros(size, np.float32),
        "input": rng.random(inputs, np.float32),
        "filter": rng.random(window, np.float32),
    }


def tile(v, side, direction):
    return v[f"block_size_{direction}"] * v[f"tile_size_{direction}"] + v[f"filter_{side}"] - 1


def traffic(v):
    inputs = (v["height"] + v["filter_height"] - 1) * (v["width"] + v["filter_width"] - 1)
    return 4 * (v["height"] * v["width"] + inputs)


CONVOLUTION = own_kernel(
    "convolution",
    sources=["convolution.cl", "convolution.cu"],
    sizes={"width": 2048, "height": 2048, "filter_width": 17, "filter_height": 17},
    axes={
        "block_size_x": (16, 32, 64, 128),
        "block_size_y": (1, 2, 4, 8, 16),
        "tile_size_x": (1, 2, 4, 8),
        "tile_size_y": (1, 2, 4, 8),
        "use_shared": (0, 1),
    },
    constraints={
        "a block has 32 to 1024 work-items": lambda v: 32 <= v["block_size_x"] * v["block_size_y"] <= 1024,
        "the part of the input fits into 48 KiB": lambda v: (
            not v["use_shared"] or 4 * tile(v, "width", "x") * tile(v, "height", "y") <= 48 << 10
        ),
    },
    launch=lambda v: Launch(
        (
            -(-v["width"] // (v["block_size_x"] * v["tile_size_x"])),
            -(-v["height"] // (v["block_size_y"] * v["tile_size_y"])),
        ),
        (v["block_size_x"], v["block_size_y"]),
    ),
    arguments=arguments,
    answer=lambda given: {
        "output": np.einsum("yxij,ij->yx", sliding_window_view(given["input"], given["filter"].shape), given["filter"])
    },
    traffic=traffic,
    check_sizes={"width": 157, "height": 93},
)
