"""Which schedule ``auto`` takes: what the committed table says of it, and that the code takes the same."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.factorisation.fit_loop import Scaled
from mmsbgen.families.mf.schedules import REPEATING, automatic

REPORTS = Path(__file__).parents[2] / "docs" / "reports"


@pytest.fixture(scope="module")
def bench() -> Any:
    return importlib.import_module("bench_mf_schedules")


@pytest.fixture(scope="module")
def rows(bench: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((REPORTS / "mf-schedules.json").read_text())["CUDA"]
    return found


def test_the_committed_page_is_that_of_the_record(bench: Any, rows: list[dict[str, Any]]) -> None:
    page = (REPORTS / "mf-schedules.md").read_text()
    assert bench.INTRO in page
    assert "\n".join(bench.page_of(rows, "CUDA")) in page
    assert page.count("\n| ") == 2 + len({row["set"] for row in rows}) + len(bench.SHAPES)
    assert {row["set"] for row in rows} == {*bench.SETS, *bench.ROADS}


def test_the_schedule_of_the_other_sets_is_that_of_auto_and_near_the_best(
    bench: Any, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        others = bench.left_out([each for each in rows if each["K"] == row["K"]], row["set"])
        assert others == "adds"
        assert bench.loss(row, others, bench.TRIED) <= 0.1
        chosen = min(REPEATING, key=lambda schedule: row["waits"][schedule])
        assert bench.loss(row, chosen, REPEATING) <= 0.1


def test_nothing_is_lost_by_not_waiting(rows: list[dict[str, Any]]) -> None:
    """After 20 sweeps the error of adds is that of tiles."""
    for row in rows:
        if "rmse" in row:
            assert row["rmse"]["adds"] <= row["rmse"]["tiles"] + 0.002, row["set"]


@pytest.mark.parametrize("name", ["MovieLens 100K", "jokes", "roads"])
def test_the_code_finds_the_numbers_by_which_it_chooses(bench: Any, rows: list[dict[str, Any]], name: str) -> None:
    ratings = bench.ratings_of(name)
    (row,) = (row for row in rows if row["set"] == name and row["K"] == 32)
    cells = Scaled.of(ratings.values).cells(ratings)
    assert bench.waits(cells, row["tiles"]) == row["waits"]
    assert automatic("gpu", cells, deterministic=False) == ("adds",)
    assert automatic("gpu", cells, deterministic=True) == REPEATING
