"""Tuning runs for processes of their own, importable there."""

from __future__ import annotations

import os
import resource
import sys

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import resolve_family
from mmsbgen.families.mmsb import MMSB
from mmsbgen.tuner.measure.measurer import TrialLimits
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress


def tune_many(device: str, family: str, database: str, mark: str) -> None:
    """Try all of a space of 27; all processes that come of it have ``mark`` in their environment."""
    os.environ["TUNING_MARK"] = mark
    with open_store(database) as store:
        tune(
            device,
            family,
            ["many"],
            resolve_family(family).problem(n=1 << 14),
            store=store,
            strategy="exhaustive",
            limits=TrialLimits(run_s=200.0),
            patience=Patience(repetitions=3, enough_s=0.0),
            roof_bytes=1 << 20,
        )


class FullDisk(Progress):
    """No file of this process can be written from one trial on until the kernel's report."""

    def __init__(self, trials: int) -> None:
        self.trials = trials

    def trial(self, kernel: KernelReport, trial: TrialRecord) -> None:
        if len(kernel.trials) == self.trials:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def finished(self, kernel: KernelReport) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


#: Trials of :func:`tune_fake`.
TRIALS = 72


def tune_fake(database: str, kernel: str = "update_pi", strategy: str = "exhaustive", full_after: str = "") -> int:
    """Try ``TRIALS`` configurations on the device that computes nothing, without a check; the exit code."""
    try:
        with open_store(database) as store:
            tune(
                "fake",
                MMSB,
                [kernel],
                MMSB.problem(K=20, N=500, m=64, n=4, pairs=256),
                store=store,
                strategy=strategy,
                budget_trials=TRIALS,
                check=False,
                patience=Patience(repetitions=3, enough_s=0.0),
                roof_bytes=1 << 20,
                progress=FullDisk(int(full_after)) if full_after else None,
            )
    except MmsbgenError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(tune_fake(*sys.argv[1:]))
