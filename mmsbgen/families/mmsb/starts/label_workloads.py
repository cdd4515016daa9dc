"""Test inputs and output checks of the kernels of local moving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mmsbgen.families.mmsb.sparse.sparse_sizes import degree_of
from mmsbgen.families.mmsb.sparse.sparse_workloads import graph_of
from mmsbgen.families.mmsb.starts.label_tables import NO_GAIN, label_places, table_places
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
    label_volumes = np.bincount(labels, volumes, n).astype(np.int64)
    costs = rng.uniform(0.5, 2.0, n) / max(1, volumes.sum()) * volumes
    vertices = rng.permutation(n)
    places, numbers = table_places(degrees[vertices], 0)
    arguments = graph | {
        "vertices": vertices.astype(np.uint32),
        "weights": weights.astype(np.uint32),
        "labels": labels.astype(np.uint32),
        "label_volumes": label_volumes.astype(np.uint32),
        "volumes": volumes.astype(np.uint32),
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


def move_labels(problem: Problem, seed: int) -> Workload:
    """Some vertices, of which half get another label."""
    rng = np.random.default_rng(seed)
    n = problem.integer("N")
    labels, volumes = rng.integers(0, n, n), rng.integers(0, 1000, n)
    vertices = rng.permutation(n)[: max(1, 3 * n // 4)]
    best = np.where(rng.random(vertices.size) < 0.5, labels[vertices], rng.integers(0, n, vertices.size))
    after = labels.copy()
    after[vertices] = best
    arguments = {
        "vertices": vertices.astype(np.uint32),
        "best": best.astype(np.uint32),
        "volumes": volumes.astype(np.uint32),
        "labels": labels.astype(np.uint32),
        "label_volumes": np.bincount(labels, volumes, n).astype(np.uint32),
        "n_vertices": np.uint32(vertices.size),
    }

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        if not np.array_equal(got["labels"], after):
            return "labels are not the new ones"
        right = np.array_equal(got["label_volumes"], np.bincount(after, volumes, n))
        return None if right else "volumes are not those of the new labels"

    return Workload(arguments, vertices.size, judge, repeats="restored")


class _Contraction(NamedTuple):
    """Inputs of join_links, and the weights between each label and the others."""

    arguments: dict[str, Array]
    rows: list[Counter[int]]


def _contraction(problem: Problem, seed: int) -> _Contraction:
    """All vertices; links have weights, and some labels have no link to others."""
    rng = np.random.default_rng(seed)
    n = problem.integer("N")
    graph = graph_of(n, rng.integers(0, max(1, n // 20), n), rng, degree_of(problem))
    offsets, ends = graph["neighbour_offsets"].astype(np.int64), graph["neighbours"]
    labels = np.unique(rng.integers(0, max(1, n // 4), n), return_inverse=True)[1]
    weights = rng.integers(1, _LARGEST_WEIGHT + 1, ends.size)
    rows: list[Counter[int]] = [Counter() for _ in range(int(labels.max()) + 1)]
    for vertex in range(n):
        for at in range(offsets[vertex], offsets[vertex + 1]):
            if labels[ends[at]] != labels[vertex]:
                rows[labels[vertex]][int(labels[ends[at]])] += int(weights[at])
    return _Contraction(
        graph
        | {
            "weights": weights.astype(np.uint32),
            "labels": labels.astype(np.uint32),
            "label_places": label_places(labels, np.diff(offsets)),
        },
        rows,
    )


def join_links(problem: Problem, seed: int) -> Workload:
    """The last two thirds of a contraction to about N/4 labels."""
    given, rows = _contraction(problem, seed)
    first = len(rows) // 3
    places = given["label_places"].astype(np.int64)[first:]
    places -= places[0]
    vertices = np.random.default_rng(seed + 1).permutation(np.flatnonzero(given["labels"] >= first))
    arguments = given | {
        "vertices": vertices.astype(np.uint32),
        "joined": np.zeros(max(1, 2 * int(places[-1])), np.uint32),
        "counts": np.zeros(len(rows), np.uint32),
        "n_vertices": np.uint32(vertices.size),
        "weighted": np.uint32(1),
        "first_label": np.uint32(first),
    }

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        for label, (row, begin, end) in enumerate(zip(rows[first:], places, places[1:], strict=False), first):
            keys, sums = got["joined"][2 * begin : 2 * end].reshape(2, -1)
            used = keys > 0
            found = dict(zip((keys[used] - 1).tolist(), sums[used].tolist(), strict=True))
            if found != dict(row) or np.count_nonzero(used) != len(row) or got["counts"][label] != len(row):
                return f"the weights of label {label} are {found}, not {dict(row)}"
        return None

    return Workload(arguments, vertices.size, judge, repeats="restored")


def gather_links(problem: Problem, seed: int) -> Workload:
    """The last two thirds of the tables, whose places in use are drawn."""
    given, rows = _contraction(problem, seed)
    first = len(rows) // 3
    rng, rows = np.random.default_rng(seed + 1), rows[first:]
    places = given["label_places"].astype(np.int64)[first:]
    places -= places[0]
    joined = np.zeros(max(1, 2 * int(places[-1])), np.uint32)
    for row, begin, end in zip(rows, places, places[1:], strict=False):
        keys, sums = joined[2 * begin : 2 * end].reshape(2, -1)
        at = rng.permutation(keys.size)[: len(row)]
        keys[at], sums[at] = [label + 1 for label in row], list(row.values())
    counts = np.array([len(row) for row in rows])
    begins = np.concatenate([[0], np.cumsum(counts)])
    arguments = {
        "label_places": given["label_places"],
        "joined": joined,
        "row_places": begins[:-1].astype(np.uint64),
        "counts": np.concatenate([np.zeros(first, np.uint32), counts.astype(np.uint32)]),
        "joined_ends": np.full(max(1, int(begins[-1])), first + len(rows), np.uint32),
        "joined_weights": np.zeros(max(1, int(begins[-1])), np.uint32),
        "n_labels": np.uint32(len(rows)),
        "first_label": np.uint32(first),
    }

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        for label, row in enumerate(rows):
            part = slice(begins[label], begins[label + 1])
            ends, weights = (got[name][part].tolist() for name in ("joined_ends", "joined_weights"))
            if dict(zip(ends, weights, strict=True)) != dict(row):
                return f"the links of label {first + label} are not those of its table"
        return "counts are left" if got["counts"].any() else None

    return Workload(arguments, len(rows), judge, repeats="restored")
