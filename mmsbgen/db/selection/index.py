"""Selects a configuration for a key: an exact record, else a transferred one, else the default."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.nearness import PROBLEM_PREFIX, differences, parts, problem_distance, sentence
from mmsbgen.db.records.ranking import Candidate, candidate, ranked
from mmsbgen.db.records.tuning_records import DeviceRecord, Key, QuarantineRecord, TrialRecord
from mmsbgen.db.selection.transfer import Carry, Group, Near, TransferChoice, ordered, unchanged

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import Store

__all__ = ["SHIPPED", "TIERS", "Group", "Index", "Key", "Selection", "shipped_groups", "without"]

TIERS = ("exact", "problem", "architecture", "vendor", "default")
SHIPPED = Path(__file__).parents[1] / "shipped"
"""Folder of the records that come with the package."""

_Kernel = tuple[str, str]
_CHANGED = 64
"""After this many records of an option with changed programs, runs with such a record are not rendered further.

Their remaining records count as changed too, unless their configurations have been rendered."""
Program = Callable[[Key, Mapping[str, Any]], str]
"""Returns the present program digest of a recorded configuration; empty if it cannot be rendered."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The result of a look-up."""

    config: dict[str, Any]
    tier: str
    """One of ``TIERS``."""
    reason: str
    """One sentence on why this tier was used and not a better one."""
    trial_ref: str | None = None
    """``uid`` of the trial that the configuration comes from; None for the default."""
    expected_s: float | None = None
    """Median time of that trial, seconds, on its own device and problem."""


class _Option(NamedTuple):
    """Records that are used together for a key at one tier, nearest first, and the reason."""

    tier: str
    near: list[Near]
    reason: str
    choices: list[TransferChoice]
    """Their configurations, best first; sorted by the first look-up that gets to them."""


class Index:
    """Trials in memory, ready for look-ups.

    The first look-up of a kernel reads its records from ``store`` and from the folder ``shipped`` (None for none);
    later ones do no I/O.  Of equally near records the store's is preferred.  Shipped records are never written to the
    store: they apply to every database and are replaced with the package.
    """

    def __init__(self, store: Store | None = None, *, shipped: Path | None = SHIPPED) -> None:
        self._store = store
        self._shipped = shipped
        self._groups: dict[tuple[_Kernel, str], list[Group]] = {}
        self._options: dict[tuple[Any, ...], tuple[list[_Option], int]] = {}
        self._barred: dict[_Kernel, dict[tuple[str, str], QuarantineRecord]] = {}
        self._programs: dict[tuple[Key, str], str] = {}

    @classmethod
    def of_trials(cls, trials: Iterable[TrialRecord]) -> Index:
        """An index of the given trials with status 'ok' only."""
        index = cls(shipped=None)
        index._groups = {(kernel, kind): of for kernel, of in _by_kernel(trials).items() for kind in ("cpu", "gpu")}
        return index

    def select(
        self,
        key: Key,
        *,
        valid: Callable[[dict[str, Any]], bool],
        default: Mapping[str, Any],
        irrelevant: Collection[str] = (),
        modes: Mapping[str, Any] | None = None,
        weights: Mapping[str, float] | None = None,
        implied: Mapping[str, Any] | None = None,
        carry: Carry = unchanged,
        program: Program | None = None,
    ) -> Selection:
        """The best known configuration that ``valid`` accepts, from the first tier that has one.

        Tiers:
            'exact': the same key.
            'problem': near problems (:func:`problem_distance`) on the same device, driver and toolchain.
            'architecture': the same device with another driver or toolchain, or a device of the same backend and
            architecture.
            'vendor': a device of the same backend, vendor and kind.
            'default': no usable record.

        The configurations of several near problems are ranked together; see :mod:`mmsbgen.db.selection.transfer`.

        Args:
            key: The key to look up.
            valid: Whether a configuration may be used.
            default: The configuration of the tier 'default'.
            irrelevant: Problem parameters that do not count in the distance.  A record that differs in them only is
                the nearest of its tier, but not exact.
            modes: Values that the caller will set in every configuration.  Configurations that are quarantined for
                ``key`` with them are skipped.
            weights: Contribution of a factor of e to the distance, for parameters whose weight is not 1.
            implied: Values of parameters that a problem may leave out.
            carry: Adapts a configuration to another problem.
            program: Returns the present digest of a record's program; records with another digest are not used.
                Called once for each key and configuration that would be selected.
        """
        refused = barred = 0
        asked = key, frozenset(irrelevant), frozenset((weights or {}).items()), frozenset((implied or {}).items())
        if asked not in self._options:
            self._options[asked] = _options(key, self.groups(key), irrelevant, weights, implied)
        options, stale = self._options[asked]
        for tier, near, reason, choices in options:
            if not choices:  # ``carry`` depends on the kernel, a part of the key
                choices += ordered(near, key.problem.params, carry)
            changed = 0
            of_runs: set[str] = set()
            skipped: dict[str, Any] | None = None  # the records of a configuration follow each other
            for config, found, there, carried in choices:
                if config == skipped:
                    continue
                if self.quarantined(key, config | dict(modes or {}), program) is not None:
                    barred, skipped = barred + 1, config
                elif not valid(config):
                    refused, skipped = refused + 1, config
                elif self._has_changed(there, found, program, render=changed < _CHANGED or found.run not in of_runs):
                    changed += 1
                    of_runs.add(found.run)
                else:
                    notes = "; carried over to this problem's sizes" if carried else ""
                    notes += _notes(refused, barred, 0 if tier == "exact" else stale + changed)
                    return Selection(dict(config), tier, reason + notes, found.uid, found.median_s)
            stale += changed
        reason = "no record for this kernel on this device, its architecture or its vendor"
        if options:
            reason = "no usable record for this kernel"
        return Selection(dict(default), "default", reason + _notes(refused, barred, stale))

    def _has_changed(self, key: Key, found: Candidate, program: Program | None, *, render: bool) -> bool:
        """Whether a record's program has changed since it was measured.

        Unless ``render``, a program that has not been rendered before counts as changed.
        """
        if program is None:
            return False
        asked = key, found.config_digest
        if asked not in self._programs:
            if not render:
                return True
            self._programs[asked] = program(key, json.loads(found.config_json))
        return not found.program or found.program != self._programs[asked]

    def quarantined(
        self, key: Key, config: Mapping[str, Any], program: Program | None = None
    ) -> QuarantineRecord | None:
        """The failure for which a configuration must not be selected for ``key``, or None.

        A failure does not count if the program has changed since.
        """
        kernel = (key.kernel.family, key.kernel.name)
        if kernel not in self._barred:
            found = self._store.quarantined("/".join(kernel)) if self._store is not None else []
            self._barred[kernel] = {(failure.key.key, failure.config_digest): failure for failure in found}
        failure = self._barred[kernel].get((key.key, digest(config))) if self._barred[kernel] else None
        if failure is None or program is None or not failure.program:
            return failure
        asked = key, failure.config_digest
        if asked not in self._programs:
            self._programs[asked] = program(key, config)
        return failure if failure.program == self._programs[asked] else None

    def quarantine(self, failure: QuarantineRecord) -> bool:
        """Exclude a failed configuration from selection, in later runs too; returns False if it was not stored.

        If the database cannot be written, that is logged and no error is raised.
        """
        self.quarantined(failure.key, failure.config)
        kernel = (failure.key.kernel.family, failure.key.kernel.name)
        self._barred[kernel][failure.key.key, failure.config_digest] = failure
        if self._store is None:
            return False
        try:
            self._store.quarantine(failure)
        except MmsbgenError as error:
            log.warning("the failure could not be marked for later runs, which will try it again: %s", error)
            return False
        return True

    def groups(self, key: Key) -> list[Group]:
        """The records of a key's kernel, for any program; read at the first call."""
        kernel, kind = (key.kernel.family, key.kernel.name), key.device.kind
        if (kernel, kind) not in self._groups:
            self._groups[kernel, kind] = self._read(kernel, kind)
        return self._groups[kernel, kind]

    def _read(self, kernel: _Kernel, kind: str) -> list[Group]:
        """The records of a kernel; of shipped ones those for a ``kind`` of device."""
        own: list[tuple[Key, Candidate]] = []
        if self._store is not None:
            own = self._store.candidates(family=kernel[0], kernel=kernel[1])
        groups = _grouped(own)
        if self._shipped is not None:
            shipped = shipped_groups(self._shipped, kind).get(kernel, [])
            groups += without(shipped, {found.uid for _, found in own})
        return groups


def _grouped(pairs: Iterable[tuple[Key, Candidate]], source: str = "") -> list[Group]:
    by_key: defaultdict[Key, list[Candidate]] = defaultdict(list)
    for key, found in pairs:
        by_key[key].append(found)
    return [Group(key, source, ranked(found)) for key, found in by_key.items()]


def _by_kernel(trials: Iterable[TrialRecord], source: str = "") -> dict[_Kernel, list[Group]]:
    """The trials with status 'ok', by family and name of their kernel."""
    found: defaultdict[_Kernel, list[tuple[Key, Candidate]]] = defaultdict(list)
    for trial in trials:
        if trial.status == "ok":
            found[trial.key.kernel.family, trial.key.kernel.name].append((trial.key, candidate(trial)))
    return {kernel: _grouped(pairs, source) for kernel, pairs in found.items()}


def without(groups: Iterable[Group], uids: Collection[str]) -> list[Group]:
    """Groups without the trials ``uids``: shipped ones that the user has imported too."""
    left = [group._replace(candidates=[c for c in group.candidates if c.uid not in uids]) for group in groups]
    return [group for group in left if group.candidates]


@cache
def shipped_groups(folder: Path = SHIPPED, kind: str = "") -> dict[tuple[str, str], list[Group]]:
    """The records that come with the package, of a ``kind`` of device or all, by family and name of the kernel."""
    groups: defaultdict[_Kernel, list[Group]] = defaultdict(list)
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        if kind and path.suffix == ".jsonl" and f'"kind":"{kind}"'.encode() not in path.read_bytes():
            continue
        for kernel, found in _by_kernel(jsonl.read(path).trials, path.name).items():
            groups[kernel] += found
    return dict(groups)


def _options(
    key: Key,
    groups: Iterable[Group],
    irrelevant: Collection[str],
    weights: Mapping[str, float] | None,
    implied: Mapping[str, Any] | None,
) -> tuple[list[_Option], int]:
    """The options for a key in order of preference, and the number of stale records."""
    wanted = parts(key)
    soft_parts = {PROBLEM_PREFIX + name for name in irrelevant}
    stale = 0
    ranked_groups: list[tuple[tuple[Any, ...], Any, Near, _Option]] = []
    for group in groups:
        there = group.key
        if there.kernel != key.kernel:
            stale += len(group.candidates) if there.device.backend == key.device.backend else 0
            continue
        sizes = key.problem.params, there.problem.params
        distance = problem_distance(*sizes, irrelevant=irrelevant, weights=weights, implied=implied)
        tier = _tier(key, there, distance)
        if tier == "default":
            continue
        found = differences(wanted, parts(there))
        soft = tuple((d.part, str(d.found)) for d in found if d.part in soft_parts)
        reason = sentence(found) if found else "tuned for this device, driver, compiler, template and problem"
        reason += f" (shipped in {group.source})" if group.shipped else ""
        other_device = there.device.identity != key.device.identity
        order = (TIERS.index(tier), other_device, distance, len(soft), group.shipped, len(found))
        near = Near(group, distance)
        # Near problems on one device are ranked together; a record of the same problem is an option of its own.
        together = (tier, there.device.key, there.toolchain.key, soft, group.source, distance == 0 and there.key)
        ranked_groups.append(((*order, group.candidates[0].median_s), together, near, _Option(tier, [], reason, [])))
    options: dict[Any, _Option] = {}
    for _, together, near, option in sorted(ranked_groups, key=lambda entry: entry[0]):
        options.setdefault(together, option).near.append(near)
    return list(options.values()), stale


def _tier(key: Key, there: Key, distance: float) -> str:
    """The tier at which records of ``there`` apply to ``key``; 'default' if they do not."""
    if math.isinf(distance):
        return "default"
    if there.device.key == key.device.key:
        if there.toolchain == key.toolchain:
            return "exact" if problem_distance(key.problem.params, there.problem.params) == 0 else "problem"
        return "architecture"
    return _device_tier(key.device, there.device)


def _device_tier(device: DeviceRecord, there: DeviceRecord) -> str:
    if device.identity == there.identity:
        return "architecture"
    if device.backend != there.backend:
        return "default"
    if device.architecture and device.architecture == there.architecture:
        return "architecture"
    return "vendor" if (device.vendor, device.kind) == (there.vendor, there.kind) else "default"


def _notes(refused: int, barred: int, stale: int) -> str:
    notes = ""
    if refused:
        notes += f"; {_records(refused)} not valid here"
    if barred:
        notes += f"; {_records(barred)} quarantined: failed here before"
    if stale:
        notes += f"; {_records(stale, 'has', 'have')} another template digest: stale"
    return notes


def _records(count: int, one: str = "is", more: str = "are") -> str:
    return f"1 record {one}" if count == 1 else f"{count} records {more}"
