import numpy as np

from mmsbgen.kernels.family import Launch
from mmsbgen.kernels.own_source import own_kernel


def arguments(sizes, rng):
    n = sizes["n"]
    a, b = rng.random(n, np.float32), rng.random(n, np.float32)
    return {"c": np.zeros(n, np.float32), "a": a, "b": b, "n": np.int32(n)}


VECTOR_ADD = own_kernel(
    "vector_add",
    sources=["vector_add.cl", "vector_add.cu"],
    sizes={"n": 10_000_000},
    axes={"block_size_x": (64, 16, 32, 128, 256, 512, 1024)},
    launch=lambda v: Launch(-(-v["n"] // v["block_size_x"]), v["block_size_x"]),
    arguments=arguments,
    answer=lambda given: {"c": given["a"] + given["b"]},
    traffic=lambda sizes: 12 * sizes["n"],
)
