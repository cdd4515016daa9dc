"""What a tune that goes on need not measure again."""

from __future__ import annotations

from typing import Any

import pytest

from mmsbgen.db.store.tuning_store import Store
from mmsbgen.tuner.run.earlier_trials import known_trials


@pytest.mark.parametrize(
    ("backend", "seconds", "extra", "known"),
    [
        ("cuda", 2e-5, {}, False),
        ("cuda", 2e-5, {"batch": 50}, True),
        ("cuda", 2e-4, {}, True),
        ("opencl", 2e-5, {}, True),
    ],
)
def test_short_kernels_whose_launches_were_waited_for_are_measured_again(
    memory: Store, make: Any, backend: str, seconds: float, extra: dict[str, Any], known: bool
) -> None:
    key = make.key(backend=backend)
    memory.add_trial(make.trial(key, times=(seconds,) * 3, extra=extra))
    assert len(known_trials(memory, key)) == known


def test_a_short_kernel_that_failed_has_no_time_to_doubt(memory: Store, make: Any) -> None:
    key = make.key(backend="cuda")
    memory.add_trial(make.trial(key, status="wrong_result", times=()))
    assert len(known_trials(memory, key)) == 1
