"""What selection loses on the recorded sweeps: the committed table is what the script finds, and good enough."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest


@pytest.fixture(scope="module")
def selection() -> Any:
    return importlib.import_module("bench_selection")


@pytest.fixture(scope="module")
def found(selection: Any) -> Any:
    return selection.report(selection.load())


def test_the_committed_table_is_what_the_script_finds(selection: Any, found: Any) -> None:
    renew = "run scripts/bench/bench_selection.py and read the difference"
    assert json.loads((selection.REPORTS / "selection.json").read_text()) == found, renew
    assert (selection.REPORTS / "selection.md").read_text() == selection.page(found)


def test_another_k_of_a_device_loses_less_than_a_twentieth_in_the_median(selection: Any, found: Any) -> None:
    other_k = found["sets"]["another K"]
    for sweep in ("all sweeps", *selection.SWEEPS[:2]):
        s = other_k[sweep]
        assert s["median"] >= 0.95
        assert s["median with these"] >= 0.95
        assert s["problems"] == s["choice tried"] + s["next one stood in"] + s["nothing tried"]
        assert s["minimum"] > 0
    assert other_k[selection.SWEEPS[0]]["median with 0 for all that is not known"] >= 0.95
    ways = {name: s["median with these"] for name, s in found["ways"].items()}
    assert max(ways, key=lambda name: ways[name]).endswith("(in use)")


def test_every_problem_left_out_is_listed(found: Any) -> None:
    for name, listed in found["folds"].items():
        whole = found["sets"][name]["all sweeps"]
        assert len(listed) == whole["problems"]
        assert sum(fold["tried"] for fold in listed) == whole["choice tried"]
        assert all(0 < fold["efficiency"] <= 1 for fold in listed if fold["efficiency"] is not None)
