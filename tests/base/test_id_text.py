from __future__ import annotations

import pytest

from mmsbgen.base.id_text import budget_text, error_text


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.02, " ± 0.020"), (0.1, " ± 0.10"), (0.0194, " ± 0.019"), (25.4, " ± 25"), (1e-5, " ± 1.0e-05")],
)
def test_a_standard_error_has_two_digits(error: float, text: str) -> None:
    assert error_text(error) == text


def test_seconds_of_a_budget_have_one_decimal() -> None:
    assert budget_text({"trials": None, "seconds": 8.811829031001253}) == "seconds=8.8"
    assert budget_text({"trials": 100, "seconds": 10.0}) == "trials=100 seconds=10.0"
