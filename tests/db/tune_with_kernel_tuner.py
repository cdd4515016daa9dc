"""A tune by kernel_tuner itself on PoCL: ``tune_with_kernel_tuner.py CACHE``; prints its results."""

from __future__ import annotations

import json
import os
import sys

os.environ["PYOPENCL_CTX"] = "0"
import kernel_tuner
import numpy as np
import pyopencl

SOURCE = """
__kernel void twice(__global float* y, __global const float* x, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def main(cache: str) -> None:
    platforms = pyopencl.get_platforms()
    pocl = next(number for number, p in enumerate(platforms) if "Portable" in p.name)
    n = 4096
    x = np.arange(n, dtype=np.float32)
    axes = {"block_size_x": [16, 64, 1 << 20], "width": [1, 2]}
    results, _ = kernel_tuner.tune_kernel(
        "twice",
        SOURCE,
        n,
        [np.zeros_like(x), x, np.int32(n)],
        axes,
        lang="OPENCL",
        platform=pocl,
        cache=cache,
        verbose=False,
        quiet=True,
    )
    names = (*axes, "time")
    print("RESULTS", json.dumps([{name: str(result[name]) for name in names} for result in results]))


if __name__ == "__main__":
    main(sys.argv[1])
