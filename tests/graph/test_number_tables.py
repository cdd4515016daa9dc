"""Plain tables of integers are parsed in blocks: links, arcs, warnings and errors are those of the other reader."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import ReadingOptions, arc_sources, load_graph
from mmsbgen.graph.files import edgelist, number_tables, tokens

HEADS: list[list[str]] = [
    [],
    [],
    ["source", "target"],
    ["a", "b"],
    ["0", "1"],
    ["1", "b"],
    ["source", "target", "weight"],
    ["weight", "from", "to"],
    ["source", "target", '"weight"'],
    ["id", "source", "target", "name"],
]
ODD = ["0.5", "x", "", " 4", "07", '"5"', "1e3", "#9", "a b", "NA"]


def table(rng: random.Random) -> str:
    """Rows of small integers, with an odd word or row now and then."""
    mark, head = rng.choice(",;\t| ,,"), rng.choice(HEADS)
    width, noise = len(head) or rng.choice([2, 2, 3]), rng.choice([0, 0, 0.05])
    rows = [
        [rng.choice(ODD) if rng.random() < noise else str(rng.randint(-2, 30)) for _ in range(width)]
        for _ in range(rng.choice([0, 9, 9, 9, 9, 9]) if head else 9)
    ]
    weight = next((at for at, name in enumerate(head) if "weight" in name), None)
    for row in rows if weight is not None else []:
        row[weight] = rng.choice(["1", "1", "1.0", "2.5", "1.000000000000001"])
    if rows and rng.random() < 0.1:
        rows[-1] = rows[-1][:-1]
    end = rng.choice(["\n", "\r\n"])
    return end.join(mark.join(row) for row in ([head] if head else []) + rows) + rng.choice(["", end, end + end])


def outcome(read: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = read()
        except InputError as error:
            return str(error)
    names = ("ids", "links", "offsets", "targets", "weights")
    arrays = [np.asarray(getattr(found, name, None)).tolist() for name in names]
    return arrays, sorted(str(each.message) for each in told)


def test_both_readers_of_tables_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BLOCK_BYTES", 40)
    rng, parsed, file = random.Random(0), 0, tmp_path / "links.csv"
    found: list[Any] = []

    def recorded(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **more: found.append(real(*given, **more)) or found[-1]

    readers = (edgelist, "read_end_numbers"), (arc_sources, "read_arc_numbers")
    for _ in range(100):
        file.write_text(table(rng))
        columns = rng.choice([None, None, (1, 2), (2, 1), (1, 2, 3), ("source", "target"), ("a", "b")])
        rule = {"weights": rng.choice(["ignore", "threshold=1"])} if rng.random() < 0.3 else {}
        reads = [
            lambda columns=columns, rule=rule: load_graph(file, ReadingOptions(columns=columns, **rule)),
            lambda columns=columns: arc_sources.as_arcs(file, directed=True, columns=columns),
            lambda columns=columns: arc_sources.as_arcs(file, weights="weight", columns=columns),
        ]
        for read in reads:
            found.clear()
            for module, name in readers:
                monkeypatch.setattr(module, name, recorded(getattr(number_tables, name)))
            fast = outcome(read)
            parsed += any(each is not None for each in found)
            for module, name in readers:
                monkeypatch.setattr(module, name, lambda *given, **more: None)
            assert fast == outcome(read), file.read_text()
    assert parsed >= 40
