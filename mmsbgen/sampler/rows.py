"""Rows of pi by vertex, read from the device."""

from __future__ import annotations

import numpy as np

from mmsbgen.sampler.explain import Array, Ints, RowSource
from mmsbgen.sampler.sampler import Sampler


def row_source(sampler: Sampler, mean: bool = True) -> RowSource:
    """Reads rows ``[V, K]`` of pi of any vertices (with ``mean`` of its posterior mean where that is kept)."""
    device, values, shape = sampler.device, sampler.values, sampler.shape
    # The posterior mean is in the order of vertices.
    averaged = sampler.averaged if mean else 0
    where = np.arange(shape.n_vertices) if averaged else device.download(values["slots"])
    pi = values["mean"] if averaged else values["pi"]
    step = values["rows"].shape[0]
    gather = sampler.kernels["mean_rows" if averaged and shape.stored.narrow else "gather_rows"]

    def rows(vertices: Ints) -> Array:
        found = np.empty((len(vertices), shape.k), shape.real)
        for first in range(0, len(vertices), step):
            part = where[vertices[first : first + step]].astype(np.uint32)
            given = {"pi": pi, "sums": values["row_sums_out"], "first": np.uint32(0), "n_rows": np.uint32(len(part))}
            with device.upload(part) as slots:
                gather.launch(len(part) * shape.row, values | given | {"slots": slots})
                found[first : first + step] = device.download_range(values["rows"], 0, len(part))[:, : shape.k]
        if averaged:
            found /= shape.real.type(averaged)
        return found

    return rows
