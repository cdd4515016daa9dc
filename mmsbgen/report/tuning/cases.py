"""Tuning records grouped by device, kernel and problem, with the best, default and worst time of each group."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import DeviceRecord, KernelRecord, TrialRecord
from mmsbgen.families import family
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.record_key import recorded_traits

_PLATFORMS = {"Portable Computing Language": "PoCL", "Intel(R) OpenCL": "Intel OpenCL", "NVIDIA CUDA": "NVIDIA OpenCL"}


@dataclass
class Case:
    """Successful trials of a kernel on one device for one problem, with the newest program of each configuration.

    ``times`` has the median seconds of every working configuration, ``configs`` its values, by the configuration's
    digest.
    """

    device: DeviceRecord
    kernel: KernelRecord
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
            self.configs.setdefault(found.config_digest, _scalars(by_uid[found.uid].config))
        self.best = by_uid[order[0].uid]

    @property
    def label(self) -> str:
        """The device's readable name."""
        return device_label(self.device)

    @cached_property
    def spec(self) -> KernelSpec | None:
        """The kernel's declaration; None for a kernel of another program or version."""
        try:
            return family(self.kernel.family).kernels.get(self.kernel.name)
        except InputError:
            return None

    @property
    def variant(self) -> str:
        """The properties of the problem besides its sizes, as text."""
        return "" if self.spec is None or self.spec.sweep is None else self.spec.sweep.variant(self.problem)

    @property
    def title(self) -> str:
        """Device and variant."""
        return f"{self.label}, {self.variant}" if self.variant else self.label

    @property
    def size(self) -> int:
        """The value of the kernel's size parameter; 0 if none is declared."""
        found = 0 if self.spec is None or self.spec.sweep is None else self.problem.get(self.spec.sweep.size, 0)
        return found if isinstance(found, int) else 0

    @property
    def best_s(self) -> float:
        """Median seconds of the best configuration."""
        return self.times[self.best.config_digest]

    @property
    def worst_s(self) -> float:
        """Median seconds of the slowest configuration that works."""
        return max(self.times.values())

    @cached_property
    def default_s(self) -> float | None:
        """Median seconds of the built-in default; None if it was not measured.

        If today's default was not measured, the first configuration of the first run is used instead.
        """
        first = min((trial for trial in self.trials if trial.round == 0), key=lambda t: t.created_at, default=None)
        began = self.times.get(first.config_digest) if first else None
        if self.spec is None:
            return began
        try:
            problem, traits = family(self.kernel.family).problem(**self.problem), recorded_traits(self.device)
        except (InputError, TypeError, ValueError):  # a record of another version, with other values
            return began
        return self.times.get(digest(dict(self.spec.default(problem, traits))), began)

    @property
    def roof_s(self) -> float | None:
        """Seconds of a call at the rate of the roof; None if unknown."""
        moved, roof = self.best.bytes_moved, self.best.roof_gbps
        return None if moved is None or roof is None else moved / roof / 1e9

    def fastest_by(self, *axes: str) -> dict[tuple[Any, ...], float]:
        """The least seconds for each combination of values of ``axes``, over all values of the other axes."""
        found: dict[tuple[Any, ...], float] = {}
        for name, config in self.configs.items():
            if all(axis in config for axis in axes):
                at = tuple(config[axis] for axis in axes)
                found[at] = min(found.get(at, self.times[name]), self.times[name])
        return found


def _scalars(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration that can be compared; older versions stored others too."""
    return {name: value for name, value in config.items() if isinstance(value, str | int | float)}


def cases_of(trials: Iterable[TrialRecord]) -> list[Case]:
    """Cases sorted by device, kernel and problem; of several programs of a configuration only the newest.

    Of records with a digest of the whole template, only those of the newest template count.
    """
    groups: dict[Any, dict[str, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        key = trial.key
        if trial.status == "ok":
            named = (key.kernel.family, key.kernel.name)
            groups[key.device.identity, named, key.problem][key.kernel.template_digest].append(trial)
    found = []
    for states in groups.values():
        newest = max(states.values(), key=lambda members: max(trial.created_at for trial in members))
        key = newest[0].key
        found.append(Case(key.device, key.kernel, dict(key.problem.params), of_newest_programs(newest)))
    return sorted(found, key=_order)


def _order(case: Case) -> tuple[Any, ...]:
    default = {} if case.spec is None else {p.name: p.default for p in family(case.kernel.family).parameters}
    odd = sum(case.problem[name] != default.get(name) for name in case.problem if isinstance(case.problem[name], str))
    return (case.device.backend, case.label, case.kernel.name, odd, case.variant, case.size, str(case.problem))


def by_device(cases: Iterable[Case], key: Callable[[Case], Any] = lambda case: case.label) -> dict[Any, list[Case]]:
    """Cases grouped by their device, or by another key, in the order given."""
    found: dict[Any, list[Case]] = defaultdict(list)
    for case in cases:
        found[key(case)].append(case)
    return dict(found)


def problem_texts(problems: Iterable[Mapping[str, Any]]) -> list[str]:
    """A text for each problem with the parameters in which the problems differ, or all if they do not differ."""
    listed = [dict(problem) for problem in problems]
    names = sorted({name for problem in listed for name in problem})
    differ = [name for name in names if len({repr(problem.get(name)) for problem in listed}) > 1] or names
    return [" ".join(f"{name}={problem[name]}" for name in differ if name in problem) for problem in listed]


def device_label(device: DeviceRecord) -> str:
    """A device's readable name; OpenCL devices with their platform, CPUs with their cores."""
    name = re.sub(r"^(?:pthread|cpu)(?:-[a-z0-9]+)*-", "", device.name)  # PoCL puts its target before the name
    if device.backend == "cuda" or not device.platform:
        return name
    cores = f", {device.compute_units} cores" if device.kind == "cpu" else ""
    return f"{name}{cores} ({_PLATFORMS.get(device.platform, device.platform)})"
