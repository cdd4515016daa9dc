"""Records made by hand, and stores for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.store.tuning_store import Store, open_store


class Make:
    """Makes records with sensible values for all that a test does not care about."""

    run = RunRecord(uuid="0" * 31 + "1", strategy="exhaustive", host="here", versions={"python": "3.11"})

    @staticmethod
    def device(**changes: Any) -> DeviceRecord:
        device = DeviceRecord(
            backend="cuda",
            platform="CUDA",
            vendor="NVIDIA",
            name="H200",
            architecture="sm_90",
            driver="580.1",
            kind="gpu",
            compute_units=132,
            memory_bytes=2**37,
        )
        return replace(device, **changes)

    @classmethod
    def key(
        cls,
        *,
        template: str = "aaaa",
        kernel: str = "gather",
        options: str = "-O3",
        params: dict[str, Any] | None = None,
        **device: Any,
    ) -> Key:
        return Key(
            cls.device(**device),
            ToolchainRecord("nvrtc", "13.0", options),
            KernelRecord("rows", kernel, template),
            ProblemRecord("rows", params or {"width": 1024, "count": 4096, "dtype": "float32"}),
        )

    @classmethod
    def trial(cls, key: Key | None = None, time: float | None = 1e-3, **changes: Any) -> TrialRecord:
        values: dict[str, Any] = {"config": {"block": 64}, "status": "ok", "times": () if time is None else (time,)}
        return TrialRecord(**{"run": cls.run.uuid, "key": key or cls.key(), **values, **changes})


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def store(url: str, make: Make) -> Iterator[Store]:
    """A new store that has one run."""
    with open_store(url) as opened:
        opened.begin_run(make.run)
        yield opened


@pytest.fixture
def memory(make: Make) -> Iterator[Store]:
    """A store in memory that has one run."""
    with open_store("sqlite://") as opened:
        opened.begin_run(make.run)
        yield opened
