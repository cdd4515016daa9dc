"""Trials of update_phi on a GPU, for tests of what is made of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.families import family
from mmsbgen.kernels.record_key import program_digest
from mmsbgen.kernels.space import Traits

GPU = DeviceRecord(
    backend="cuda",
    platform="CUDA",
    vendor="NVIDIA",
    name="NVIDIA H200",
    architecture="sm_90",
    driver="580",
    kind="gpu",
    compute_units=132,
    memory_bytes=2**37,
    extra={"local_memory": 232448, "max_block_size": 1024, "sub_group_sizes": [32], "vector_width_float": 4},
)
RUN = RunRecord(strategy="default", host="here")
PHI = family().kernel("update_phi")


def program(key: Key, config: Mapping[str, Any]) -> dict[str, Any]:
    """The ``extra`` of a trial or a failure of a configuration's present program."""
    return {"program": program_digest(family(key.kernel.family), key, config)}


def trial(seconds: float, *, k: int = 1024, digest: str = "a", minute: int = 0, **changes: Any) -> TrialRecord:
    device = changes.pop("device", GPU)
    step = changes.pop("step", "split")
    problem = family().problem(K=k, step=step)
    kernel, params = KernelRecord("mmsb", "update_phi", digest), ProblemRecord("mmsb", problem.only(PHI.parameters))
    traits = Traits("cuda", "gpu", sub_group_size=32, compute_units=132)
    config = {**PHI.default(problem, traits), **changes}
    return TrialRecord(
        run=RUN.uuid,
        key=Key(device, ToolchainRecord("nvcc", "13"), kernel, params),
        config=config,
        status="ok",
        times=(seconds,),
        bytes_moved=PHI.traffic(problem),
        roof_gbps=4000.0,
        created_at=f"2026-11-2{minute}T12:00:00Z",
    )
