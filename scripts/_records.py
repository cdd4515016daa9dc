"""Tuning records as the figures need them: one case for each device and problem, with its best, default and worst."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmsbgen.db.canonical import digest
from mmsbgen.db.ranking import candidate, ranked
from mmsbgen.db.records import DeviceRecord, TrialRecord
from mmsbgen.db_keys import recorded_traits
from mmsbgen.families import family

_PLATFORMS = {"Portable Computing Language": "PoCL", "Intel(R) OpenCL": "Intel OpenCL", "NVIDIA CUDA": "NVIDIA OpenCL"}


@dataclass
class Case:
    """What was measured of update_phi on one device for one problem, in the newest state of its template.

    ``times`` has the last median of every configuration that works, seconds, by the configuration's digest.
    """

    device: DeviceRecord
    problem: dict[str, Any]
    trials: list[TrialRecord]
    times: dict[str, float] = field(init=False)
    configs: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        order = ranked(map(candidate, self.trials))
        by_uid = {trial.uid: trial for trial in self.trials}
        self.times, self.configs = {}, {}
        for found in order:
            self.times.setdefault(found.config_digest, found.median_s)
            self.configs.setdefault(found.config_digest, dict(by_uid[found.uid].config))
        self._best = by_uid[order[0].uid]

    @property
    def label(self) -> str:
        """The device for a reader."""
        return device_label(self.device)

    @property
    def step(self) -> str:
        """How a row ends, and in what it is stored where that is 16 bits, for a reader."""
        stored = f", {self.problem['storage']} rows" if "storage" in self.problem else ""
        return f"{self.problem['step']} step{'' if self.problem['noise'] == 'on' else ' without noise'}{stored}"

    @property
    def k(self) -> int:
        """Communities."""
        return int(self.problem["K"])

    @property
    def date(self) -> str:
        """The day of the newest trial."""
        return max(trial.created_at for trial in self.trials)[:10]

    @property
    def best_s(self) -> float:
        """Median seconds of the best configuration."""
        return self.times[self._best.config_digest]

    @property
    def worst_s(self) -> float:
        """Median seconds of the slowest configuration that works."""
        return max(self.times.values())

    @cached_property
    def default_s(self) -> float | None:
        """Median seconds of the built-in default; None where it was not measured.

        Where the default has changed since, the configuration with which the first run began stands for it.
        """
        spec = family().kernel("update_phi")
        today = spec.default(family().problem(**self.problem), recorded_traits(self.device))
        first = min((trial for trial in self.trials if trial.round == 0), key=lambda t: t.created_at, default=None)
        return self.times.get(digest(dict(today)), self.times[first.config_digest] if first else None)

    @property
    def roof_fraction(self) -> float | None:
        """The best configuration's rate over the gather rate that its run measured."""
        return self._best.roof_fraction

    @property
    def roof_s(self) -> float | None:
        """Seconds of a call at the gather rate."""
        moved, roof = self._best.bytes_moved, self._best.roof_gbps
        return None if moved is None or roof is None else moved / roof / 1e9

    def fastest_by(self, *axes: str) -> dict[tuple[Any, ...], float]:
        """The least seconds at each combination of values of ``axes``, whatever the other axes have."""
        found: dict[tuple[Any, ...], float] = {}
        for name, config in self.configs.items():
            if all(axis in config for axis in axes):
                at = tuple(config[axis] for axis in axes)
                found[at] = min(found.get(at, self.times[name]), self.times[name])
        return found


def cases_of(trials: Iterable[TrialRecord]) -> list[Case]:
    """Cases by device, step and K; of several states of a template the newest counts."""
    groups: dict[Any, dict[str, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        key = trial.key
        if key.kernel.name == "update_phi" and trial.status == "ok":
            groups[key.device.identity, key.problem][key.kernel.template_digest].append(trial)
    found = []
    for states in groups.values():
        newest = max(states.values(), key=lambda members: max(trial.created_at for trial in members))
        found.append(Case(newest[0].key.device, dict(newest[0].key.problem.params), newest))
    return sorted(found, key=lambda case: (case.device.backend, case.label, case.problem["step"] != "split", case.k))


def by_device(cases: Iterable[Case], key: Callable[[Case], Any] = lambda case: case.label) -> dict[Any, list[Case]]:
    """Cases by their device, or by another key, in the order given."""
    found: dict[Any, list[Case]] = defaultdict(list)
    for case in cases:
        found[key(case)].append(case)
    return dict(found)


def device_label(device: DeviceRecord) -> str:
    """A device for a reader: a GPU by its name, an OpenCL device with its platform."""
    name = re.sub(r"^(?:pthread|cpu)(?:-[a-z0-9]+)*-", "", device.name)  # PoCL puts its target before the name
    if device.backend == "cuda":
        return name
    cores = f", {device.compute_units} cores" if device.kind == "cpu" else ""
    return f"{name}{cores} ({_PLATFORMS.get(device.platform, device.platform)})"
