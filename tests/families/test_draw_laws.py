"""Laws of the split step's draws on the device, where checks of single draws against the reference cannot see them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import build, release, upload

pytestmark = pytest.mark.opencl

ROWS = K = 1024


@pytest.mark.parametrize("rate", [2.0, 9.5, 10.5, 12.0])
def test_chance_of_no_poisson_event(opencl_device, rate):
    """A coordinate whose n is 0 falls below 1e-4 spread with chance (1e-4)^alpha; others practically never do."""
    problem = MMSB.problem(K=K, N=ROWS, m=ROWS, n=1)
    spec = MMSB.kernel("update_phi")
    workload = spec.workload(problem, 0)
    given = workload.arguments
    spread, decay = float(given["spread"]), float(given["decay"])
    given["pi"][:] = 1.0 / K
    given["row_sums"][:] = K * rate * spread / decay
    given["weights"][:] = 0.0
    given["vertices"] = np.arange(ROWS, dtype=np.uint32)
    config = {
        "placement": "THREAD",
        "team": "item",
        "vector_width": 16,
        "block_size": 1,
        "rows_in_flight": 1,
        "prefetch": 0,
        "normalise": False,
        "reduction": "none",
    }
    bound = build(opencl_device, spec, problem, config)
    placed = upload(opencl_device, workload)
    chance = math.exp(-rate) * (1e-4) ** (1.0 / K)
    launches = max(1, math.ceil(100 / (chance * ROWS * K)))
    found = 0
    try:
        for iteration in range(launches):
            bound.launch(ROWS, placed | {"iteration": np.uint32(iteration)}).wait()
            rows = opencl_device.download(placed["pi"])[given["spares"]]
            found += int((rows < 1e-4 * spread).sum())
    finally:
        release(placed)
    draws = launches * ROWS * K
    # One event leaves Gamma(1 + alpha), below 1e-4 with chance 1e-4: a tenth of a percent of the chance at rate 12.
    expected = draws * (chance + 1e-4 * rate * math.exp(-rate))
    assert abs(found - expected) < 5 * math.sqrt(expected), (found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_uniform_gives_a_poisson_draw_of_ordinary_size(opencl_device, dtype):
    """A sum of rounded terms may end below the largest uniform; the draw must not run away then."""
    source_of = build(opencl_device, MMSB.kernel("draws"), MMSB.problem(pairs=4096, dtype=dtype), {"block_size": 64})
    text = source_of.source.text
    probe = "*u1 = unit("
    assert probe in text
    forced = text.replace("poissons[i] = poisson(rates[i], u1", "poissons[i] = poisson(rates[i], unit(0xffffffffu)")
    assert forced != text
    kernel = opencl_device.compile(forced, ["draws"], ()).kernel("draws")
    workload = MMSB.kernel("draws").workload(MMSB.problem(pairs=4096, dtype=dtype), 0)
    workload.arguments["rates"] = np.linspace(0.01, 9.99, 4096).astype(dtype)
    placed = upload(opencl_device, workload)
    try:
        args = [placed[a.name] for a in MMSB.kernel("draws").arguments]
        kernel.launch((64,), (64,), args).wait()
        drawn = opencl_device.download(placed["poissons"])
    finally:
        release(placed)
    # P(n > 40 | rate < 10) < 1e-13, far below the 6e-8 that the largest uniform leaves.
    assert drawn.max() <= 40
