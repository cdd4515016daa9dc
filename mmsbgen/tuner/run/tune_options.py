"""Options of a tuning run, for the command line, the service and jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmsbgen.base.declared_options import check_options, option
from mmsbgen.db.records.ranking import OBJECTIVES

_MUCH = 1_000_000_000


def last_moment(begin: float, seconds: float) -> float:
    """When a run that began at ``begin`` ends what it measures: a tenth after its budget, and a second."""
    return begin + 1.1 * seconds + 1.0


@dataclass(frozen=True)
class TuneOptions:
    """Budgets, limits and objective of a tuning run; kernels and problem are given separately."""

    budget_trials: int | None = option(
        None, "Most configurations a kernel; 100 without any budget.", "everybody", least=1, most=_MUCH, metavar="N"
    )
    budget_seconds: float | None = option(
        None, "Begin nothing new after S seconds.", "everybody", above=0, most=_MUCH, metavar="S"
    )
    strategy: str = option(
        "default", "Search strategy; `mmsbgen tune --help-all` lists them.", "advanced", metavar="NAME"
    )
    objective: str = option("time", "What to minimise; edp is energy times time.", "advanced", choices=OBJECTIVES)
    seed: int = option(0, "Seed of search and inputs.", "advanced", least=0, most=2**63 - 1)
    retune: bool = option(False, "Measure again what the database already has.", "everybody")
    compile_limit: float = option(120, "Most seconds to compile.", above=0, most=_MUCH)
    run_limit: float = option(60, "Most seconds to check or time.", above=0, most=_MUCH)
    memory_limit: int | None = option(
        None, "Most memory; else four fifths of what is free.", least=1, most=1 << 40, metavar="MIB"
    )
    roof_mib: int = option(
        2048,
        "MiB of memory in which roofs are measured; a quarter on processors with a budget below 120 s.",
        least=1,
        most=1 << 20,
    )
    compilers: int | None = option(None, "Compile ahead with N processes, 0 with none.", least=0, most=256, metavar="N")

    def __post_init__(self) -> None:
        from mmsbgen.tuner.search.strategies import check_strategy

        check_options(self)
        check_strategy(self.strategy)

    def keywords(self) -> dict[str, Any]:
        """The keywords of :func:`mmsbgen.tuner.run.tune.tune`."""
        from mmsbgen.tuner.measure.measurer import TrialLimits

        memory = None if self.memory_limit is None else self.memory_limit << 20
        names = ("budget_trials", "budget_seconds", "strategy", "objective", "seed", "retune", "compilers")
        return {name: getattr(self, name) for name in names} | {
            "limits": TrialLimits(compile_s=self.compile_limit, run_s=self.run_limit, memory_bytes=memory),
            "roof_bytes": self.roof_mib << 20,
        }
