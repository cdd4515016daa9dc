"""Results of a tuning run, for a reader and for JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmsbgen.backends import DeviceInfo
from mmsbgen.db.records.ranking import cost
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.tuner.measure.noise import FinalsVerdict
from mmsbgen.tuner.measure.roofs import Roofs
from mmsbgen.tuner.search.candidates import Candidates


@dataclass
class KernelReport:
    """One kernel's search.  ``trials`` has one record per configuration, ``finals`` those timed again in turns."""

    kernel: str
    key: Key
    space: Candidates
    default_digest: str
    budget: int | None = None
    """Most configurations to try; None without such a limit."""
    deadline: float | None = None
    """Value of ``time.monotonic()`` at which the search ends, if any."""
    trials: list[TrialRecord] = field(default_factory=list)
    finals: list[TrialRecord] = field(default_factory=list)
    reused: int = 0
    """Number of ``trials`` that were in the store already."""
    verdict: FinalsVerdict | None = None
    """The verdict on ``finals``; None if there was nothing to compare, or the objective is not time."""
    note: str = ""
    roof_gbps: float | None = None
    """Rate of its roof in this run; None if not measured."""
    roof: str = ""
    """What that is a rate of, if not of a plain gather of rows."""
    objective: str = "time"
    """What is minimised: one of :data:`mmsbgen.db.records.ranking.OBJECTIVES`."""

    @property
    def statuses(self) -> Counter[str]:
        """Number of configurations by status."""
        return Counter(trial.status for trial in self.trials)

    @property
    def ranked(self) -> list[TrialRecord]:
        """Usable trials, best first: the winner, the other finalists by their last timing, then the others."""
        again = {trial.config_digest for trial in self.finals}
        rest = [trial for trial in self.trials if trial.config_digest not in again]
        winner = [] if self.verdict is None else [self.finals[self.verdict.winner]]
        return winner + [
            trial
            for part in (self.finals, rest)
            for trial in sorted(part, key=self.cost)
            if math.isfinite(self.cost(trial)) and trial not in winner
        ]

    def cost(self, trial: TrialRecord) -> float:
        """Value of the objective, infinity if unknown."""
        return cost(trial, self.objective)

    @property
    def best(self) -> TrialRecord | None:
        """The winner, or None when no configuration works."""
        return self.ranked[0] if self.ranked else None

    @property
    def default(self) -> TrialRecord | None:
        """The built-in default's last timing, or None when it does not work here."""
        return next((trial for trial in self.ranked if trial.config_digest == self.default_digest), None)

    @property
    def worst_s(self) -> float | None:
        """Median seconds of the slowest configuration that works, a finalist's by its last timing."""
        again = {trial.config_digest for trial in self.finals}
        last = [*self.finals, *(trial for trial in self.trials if trial.config_digest not in again)]
        return max((_median(trial) for trial in last if trial.status == "ok"), default=None)

    @property
    def roof_fraction(self) -> float | None:
        """The winner's rate over the roof of this run, even if another run measured the winner."""
        if self.best is None or self.best.gbps is None or self.roof_gbps is None:
            return None
        return self.best.gbps / self.roof_gbps

    @property
    def barrier_fraction(self) -> float | None:
        """The part of the winner's time that its launches and barriers take at least."""
        return self.best.barrier_fraction if self.best else None

    @property
    def speedup_over_default(self) -> float | None:
        """The default's time over the winner's."""
        return _median(self.default) / _median(self.best) if self.best and self.default else None

    @property
    def speedup_over_worst(self) -> float | None:
        """The slowest working configuration's time over the winner's."""
        return self.worst_s / _median(self.best) if self.best and self.worst_s else None

    @property
    def margin(self) -> float | None:
        """How much slower the fastest other finalist is than the winner, relative; None without another.

        Negative where a simpler configuration was preferred to one that is faster within the noise.  For other
        objectives than time, the margin is in that objective.
        """
        if self.verdict is not None:
            return self.verdict.margin
        costs = sorted(map(self.cost, self.finals))
        return costs[1] / costs[0] - 1 if len(costs) > 1 and math.isfinite(costs[1]) else None

    @property
    def noise(self) -> float | None:
        """Half the width of the 90 % confidence interval of that margin; None for other objectives than time.

        It describes the rounds of the finals: how much results vary from one round to the next.
        """
        return None if self.verdict is None else self.verdict.noise

    @property
    def rival(self) -> TrialRecord | None:
        """The fastest other finalist."""
        return None if self.verdict is None else self.finals[self.verdict.rival]

    def as_dict(self) -> dict[str, Any]:
        """The report as values for JSON; None where a value is not available."""
        best, default, verdict = self.best, self.default, self.verdict
        own = [
            "kernel",
            "reused",
            "roof",
            "roof_fraction",
            "barrier_fraction",
            "objective",
            "margin",
            "noise",
            "worst_s",
            "note",
        ]
        own += ["speedup_over_default", "speedup_over_worst"]
        return {name: getattr(self, name) for name in own} | {
            "problem": dict(self.key.problem.params),
            "valid": len(self.space.configs),
            "refused": dict(self.space.refusals),
            "trials": dict(self.statuses),
            "best": None if best is None else dict(best.config),
            **{name: getattr(best, name, None) for name in ("median_s", "spread_s", "gbps", "energy_j")},
            "decided": None if verdict is None else verdict.decided,
            "tied": [] if verdict is None else [dict(self.finals[i].config) for i in verdict.tied],
            "near": [] if verdict is None else [dict(self.finals[i].config) for i in verdict.near],
            "given_up": sum(bool(trial.extra.get("given_up")) for trial in self.trials),
            "default": dict(self.space.default),
            "default_s": None if default is None else default.median_s,
        }


@dataclass
class TuneReport:
    """A tuning run: ``status`` is 'finished' or 'interrupted'."""

    run: str
    info: DeviceInfo
    roofs: Roofs | None = None
    asked: Sequence[str] = ()
    """Names of the kernels to tune."""
    kernels: list[KernelReport] = field(default_factory=list)
    status: str = "running"
    seconds: float = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped from outside; its measurements are stored nonetheless."""
        return self.status == "interrupted"

    @property
    def untried(self) -> list[str]:
        """The kernels of which no configuration was tried, as the run ended before."""
        tried = {kernel.kernel for kernel in self.kernels if kernel.trials}
        return [name for name in self.asked if name not in tried]

    def as_dict(self) -> dict[str, Any]:
        """The report as values that JSON can hold."""
        roofs = self.roofs
        return {
            "run": self.run,
            "status": self.status,
            "device": self.info.as_dict(),
            "roofs": roofs
            and {name: getattr(roofs, name) for name in ("copy", "gather", "row_bytes", "age_s")}
            | {"others": [{"kind": str(k), "row_bytes": k.row_bytes, "gbps": v} for k, v in roofs.others.items()]},
            "kernels": [kernel.as_dict() for kernel in self.kernels],
            "untried": self.untried,
            "seconds": self.seconds,
        }


class Progress:
    """Progress callbacks of a run; this base class ignores them."""

    def started(self, report: TuneReport) -> None:
        """The device is open, and the run is in the store."""

    def roofs(self, roofs: Roofs) -> None:
        """The device's roofs are known."""

    def kernel(self, report: KernelReport) -> None:
        """A kernel's search begins."""

    def trial(self, report: KernelReport, trial: TrialRecord) -> None:
        """A configuration was tried, or found in the store; it is the last of ``report.trials``."""

    def finished(self, report: KernelReport) -> None:
        """A kernel is done, its finalists timed again."""

    def waiting(self, device: str) -> None:
        """Another process has been measuring on the device for two seconds; the run continues when that is done."""

    def interrupted(self) -> None:
        """Ctrl-C was pressed: the run ends after the current configuration."""


def _median(trial: TrialRecord) -> float:
    if trial.median_s is None:
        raise ValueError("a trial without times has no median")
    return trial.median_s
