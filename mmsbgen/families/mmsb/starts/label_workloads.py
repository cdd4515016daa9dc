"""Test inputs and output check of best_labels, a step of local moving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from mmsbgen.families.mmsb.sparse.sparse_sizes import degree_of
from mmsbgen.families.mmsb.sparse.sparse_workloads import graph_of
from mmsbgen.families.mmsb.starts.label_tables import NO_GAIN, table_places
from mmsbgen.kernels.family import Array, Judge, Units, Workload, all_units
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

_LARGEST_WEIGHT = 5


def best_labels(problem: Problem, seed: int) -> Workload:
    """All vertices, most of which have the label of half of their neighbours; links have weights."""
    rng = np.random.default_rng(seed)
    n = problem.integer("N")
    home = rng.integers(0, max(1, n // 20), n)
    graph = graph_of(n, home, rng, degree_of(problem))
    offsets, ends = graph["neighbour_offsets"], graph["neighbours"]
    labels = np.where(rng.random(n) < 0.7, home, rng.integers(0, n, n))
    weights = rng.integers(1, _LARGEST_WEIGHT + 1, ends.size)
    degrees = np.diff(offsets.astype(np.int64))
    volumes = rng.integers(0, 3, n) + degrees * _LARGEST_WEIGHT
    label_volumes = np.bincount(labels, volumes, n)
    costs = rng.uniform(0.5, 2.0, n) / max(1, volumes.sum()) * volumes
    vertices = rng.permutation(n)
    places, numbers = table_places(degrees[vertices], 0)
    arguments = graph | {
        "vertices": vertices.astype(np.uint32),
        "weights": weights.astype(np.uint32),
        "labels": labels.astype(np.uint32),
        "label_volumes": label_volumes,
        "volumes": volumes.astype(np.float64),
        "costs": costs,
        "table_places": places,
        "tables": np.full(max(1, numbers), 7, np.uint32),
        "best": np.full(n, n, np.uint32),
        "n_vertices": np.uint32(n),
        "weighted": np.uint32(1),
        "no_gain": np.float64(NO_GAIN),
    }

    def best(vertex: int) -> int:
        own, cost = int(labels[vertex]), costs[vertex]
        sums: Counter[int] = Counter()
        for at in range(int(offsets[vertex]), int(offsets[vertex + 1])):
            sums[int(labels[ends[at]])] += int(weights[at])
        volume_of = {label: label_volumes[label] for label in {own, *sums}}
        volume_of[own] -= volumes[vertex]
        gains = {label: sums[label] - cost * volume for label, volume in volume_of.items()}
        most = max(gains[label] for label in sums) if sums else -np.inf
        if most <= gains[own] + NO_GAIN * max(1.0, abs(most)):
            return own
        return min(label for label in sums if gains[label] == most)

    def reference(units: Array) -> Judge:
        right = np.array([best(vertex) for vertex in vertices[units].tolist()])

        def judge(got: Mapping[str, Array], config: Config) -> str | None:
            wrong = np.flatnonzero(got["best"] != right)
            if not wrong.size:
                return None
            first = wrong[0]
            return (
                f"{wrong.size} of {right.size} labels are wrong: vertex {vertices[units[first]]} with "
                f"{degrees[vertices[units[first]]]} links gets {got['best'][first]} instead of {right[first]}"
            )

        return judge

    units = Units(n, lambda chosen: {"best": chosen}, lambda chosen, turn: reference(chosen))
    return Workload(arguments, n, all_units((units,)), units=(units,), repeats="same")
