"""Which configuration to run: exact record, else the nearest one that may be trusted, else the default."""

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
from mmsbgen.db.selection.transfer import Carry, Group, Loss, Near, TransferChoice, loss_of, ordered, unchanged

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import Store

__all__ = ["SHIPPED", "TIERS", "Group", "Index", "Key", "Selection", "shipped_groups", "without"]

TIERS = ("exact", "problem", "architecture", "vendor", "default")
SHIPPED = Path(__file__).parents[1] / "shipped"
"""Folder of the records that come with the package."""

_Kernel = tuple[str, str]
_FOLDS, _MOST = 24, 40
"""Enough problems and configurations of each to say what a selection costs, and few enough to do so at a start."""
_CHANGED = 64
"""After so many records of a tier whose programs have changed, all others of it are taken to have changed too."""
Program = Callable[[Key, Mapping[str, Any]], str]
"""The digest of the program that a recorded configuration has today; empty where it has none."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The answer to a look-up."""

    config: dict[str, Any]
    tier: str
    """One of ``TIERS``."""
    reason: str
    """One sentence: why this tier and not a better one."""
    trial_ref: str | None = None
    """``uid`` of the trial that the configuration comes from; None for the default."""
    expected_s: float | None = None
    """Median time of that trial, seconds, on its own device and problem."""
    loss: Loss | None = None
    """What selections of this tier cost so far, by the records; None for an exact one and where none can tell."""

    @property
    def outlook(self) -> str:
        """What to expect of it, for a reader; empty for an exact record."""
        if self.tier == "exact":
            return ""
        return str(self.loss) if self.loss else "expected loss not known: no records to measure it by"


class _Option(NamedTuple):
    """Records that answer for a key at one tier, nearest first, and why not better ones."""

    tier: str
    near: list[Near]
    reason: str


class _Plan(NamedTuple):
    """Where to look for one key, in order, and how many records are stale."""

    options: list[_Option]
    stale: int


class _Measure(NamedTuple):
    """How far apart problems are: parameters that do not count, and weights of those that count otherwise than 1."""

    irrelevant: frozenset[str]
    weights: tuple[tuple[str, float], ...]


class Index:
    """Trials in memory, ready for look-ups.

    The first look-up of a kernel reads its records from ``store`` and from the folder ``shipped`` (None for
    none); later ones do no I/O.  Where both have a record of the same nearness, the store's counts.  Shipped
    records are read where they lie and never written to the store, so they hold for every database, neither an
    import doubles them nor a new version of the package leaves old ones behind.
    """

    def __init__(self, store: Store | None = None, *, shipped: Path | None = SHIPPED) -> None:
        self._store = store
        self._shipped = shipped
        self._groups: dict[_Kernel, list[Group]] = {}
        self._barred: dict[_Kernel, dict[tuple[str, str], QuarantineRecord]] = {}
        self._plans: dict[tuple[str, _Measure], _Plan] = {}
        self._orders: dict[tuple[str, _Measure, int], list[TransferChoice]] = {}
        self._losses: dict[tuple[Any, ...], Loss | None] = {}
        self._programs: dict[str, str] = {}

    @classmethod
    def of_trials(cls, trials: Iterable[TrialRecord]) -> Index:
        """An index of these trials only; those whose status is not 'ok' are left out."""
        index = cls(shipped=None)
        found: defaultdict[_Kernel, list[tuple[Key, Candidate]]] = defaultdict(list)
        for trial in trials:
            if trial.status == "ok":
                found[trial.key.kernel.family, trial.key.kernel.name].append((trial.key, candidate(trial)))
        for kernel, pairs in found.items():
            index._groups[kernel] = _grouped(pairs)
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
        carry: Carry = unchanged,
        program: Program | None = None,
    ) -> Selection:
        """The best known configuration that ``valid`` accepts, from the first tier that has one.

        Tiers: 'exact', the same key in every part; 'problem', the nearest problem (:func:`problem_distance`)
        on the same device, driver and toolchain; 'architecture', the same device with another driver or
        toolchain, or one of the same backend and architecture; 'vendor', one of the same backend, vendor and
        kind; 'default'.  ``program`` gives the digest of a record's program today: no tier uses records of which it
        is another one.  It is asked for what would be selected, once for each record.  ``irrelevant`` names problem
        parameters that add nothing to the distance; a record that differs in them only is the nearest of its
        tier, but not exact.  ``modes`` are values with which every configuration will be used: what is quarantined
        for ``key`` with them is passed over.  ``weights`` say how much a factor of e counts in the distance for some
        parameters, 1 for all others.  Of several near problems all are asked (:mod:`mmsbgen.db.selection.transfer`);
        ``carry`` makes a configuration of one problem into one of another.
        """
        measure = _Measure(frozenset(irrelevant), tuple(sorted((weights or {}).items())))
        plan = self._plans.get((key.key, measure))
        if plan is None:
            plan = self._plans[key.key, measure] = _plan(key, self.groups(key), measure)
        refused = barred = 0
        stale = plan.stale
        for place, (tier, near, reason) in enumerate(plan.options):
            # How a configuration is carried over is the kernel's, and the kernel is a part of the key.
            asked = (key.key, measure, place)
            if asked not in self._orders:
                self._orders[asked] = ordered(near, key.problem.params, carry)
            changed = 0
            for config, found, there, carried in self._orders[asked]:
                if self.quarantined(key, config | dict(modes or {}), program) is not None:
                    barred += 1
                elif not valid(config):
                    refused += 1
                elif changed == _CHANGED or self._has_changed(there, found, program):
                    changed += 1
                else:
                    notes = "; carried over to this problem's sizes" if carried else ""
                    notes += _notes(refused, barred, 0 if tier == "exact" else stale + changed)
                    loss = None if tier == "exact" else self.loss(key, tier, measure, carry)
                    return Selection(dict(config), tier, reason + notes, found.uid, found.median_s, loss)
            stale += changed
        reason = "no record for this kernel on this device, its architecture or its vendor"
        if plan.options:
            reason = "no usable record for this kernel"
        return Selection(dict(default), "default", reason + _notes(refused, barred, stale))

    def _has_changed(self, key: Key, found: Candidate, program: Program | None) -> bool:
        """Whether a record's program is another one today."""
        if program is None:
            return False
        if found.uid not in self._programs:
            self._programs[found.uid] = program(key, json.loads(found.config_json))
        return not found.program or found.program != self._programs[found.uid]

    def loss(self, key: Key, tier: str, measure: _Measure, carry: Carry) -> Loss | None:
        """What selections of ``tier`` cost by the records of a key's kernel, for 'problem' those of its device.

        Times of programs that have changed since count too: rendering all of them would take seconds.
        """
        asked = (key.kernel, tier, key.device.key if tier == "problem" else "", measure)
        if asked not in self._losses:
            groups = [group for group in self.groups(key) if group.key.kernel == key.kernel]
            folds = []
            for target in groups:
                if tier == "problem" and target.key.device.key != key.device.key:
                    continue
                rest = [group for group in groups if group.key != target.key]
                options = _plan(target.key, rest, measure).options
                near = next((option.near for option in options if option.tier == tier), None)
                if near is not None:
                    folds.append((target, [_shortened(one) for one in near]))
            self._losses[asked] = loss_of(folds[:_FOLDS], carry)
        return self._losses[asked]

    def quarantined(
        self, key: Key, config: Mapping[str, Any], program: Program | None = None
    ) -> QuarantineRecord | None:
        """Why a configuration must not be selected for ``key``: its failure there, or None.

        A failure of a program that has changed since does not count.
        """
        kernel = (key.kernel.family, key.kernel.name)
        if kernel not in self._barred:
            found = self._store.quarantined(family=kernel[0], kernel=kernel[1]) if self._store is not None else []
            self._barred[kernel] = {(failure.key.key, failure.config_digest): failure for failure in found}
        failure = self._barred[kernel].get((key.key, digest(config))) if self._barred[kernel] else None
        if failure is None or program is None or not failure.program:
            return failure
        if failure.uid not in self._programs:
            self._programs[failure.uid] = program(key, config)
        return failure if failure.program == self._programs[failure.uid] else None

    def quarantine(self, failure: QuarantineRecord) -> bool:
        """Bar a configuration that failed from now on, and in later runs too; False where that cannot be stored.

        A database that cannot be written is reported, and no reason to stop.
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
        """The records of a key's kernel, whatever their programs; read when first asked for."""
        kernel = (key.kernel.family, key.kernel.name)
        if kernel not in self._groups:
            own: list[tuple[Key, Candidate]] = []
            if self._store is not None:
                own = self._store.candidates(family=kernel[0], kernel=kernel[1])
            groups = _grouped(own)
            if self._shipped is not None:
                groups += without(shipped_groups(self._shipped).get(kernel, []), {found.uid for _, found in own})
            self._groups[kernel] = groups
        return self._groups[kernel]

    def refresh(self) -> None:
        """Forget what was read, so that the next look-up sees new trials."""
        self._groups.clear()
        self._barred.clear()
        self._plans.clear()
        self._orders.clear()
        self._losses.clear()
        self._programs.clear()


def _grouped(pairs: Iterable[tuple[Key, Candidate]], source: str = "") -> list[Group]:
    by_key: defaultdict[Key, list[Candidate]] = defaultdict(list)
    for key, found in pairs:
        by_key[key].append(found)
    return [Group(key, source, ranked(found)) for key, found in by_key.items()]


def without(groups: Iterable[Group], uids: Collection[str]) -> list[Group]:
    """Groups without the trials named, which the user has imported from the very file that was shipped."""
    left = [group._replace(candidates=[c for c in group.candidates if c.uid not in uids]) for group in groups]
    return [group for group in left if group.candidates]


@cache
def shipped_groups(folder: Path = SHIPPED) -> dict[tuple[str, str], list[Group]]:
    """The records that come with the package, by family and name of their kernel; read once."""
    groups: defaultdict[_Kernel, list[Group]] = defaultdict(list)
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        pairs: defaultdict[_Kernel, list[tuple[Key, Candidate]]] = defaultdict(list)
        for trial in jsonl.read(path).trials:
            if trial.status == "ok":
                pairs[trial.key.kernel.family, trial.key.kernel.name].append((trial.key, candidate(trial)))
        for kernel, found in pairs.items():
            groups[kernel] += _grouped(found, path.name)
    return dict(groups)


def _plan(key: Key, groups: Iterable[Group], measure: _Measure) -> _Plan:
    wanted = parts(key)
    soft_parts = {PROBLEM_PREFIX + name for name in measure.irrelevant}
    weights = dict(measure.weights)
    stale = 0
    ranked_groups: list[tuple[tuple[Any, ...], Any, Near, _Option]] = []
    for group in groups:
        there = group.key
        if there.kernel != key.kernel:
            stale += len(group.candidates) if there.device.backend == key.device.backend else 0
            continue
        distance = problem_distance(
            key.problem.params, there.problem.params, irrelevant=measure.irrelevant, weights=weights
        )
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
        # Problems on one device are asked together; a record of the very problem speaks for itself.
        together = (tier, there.device.key, there.toolchain.key, soft, group.source, distance == 0 and there.key)
        ranked_groups.append(((*order, group.candidates[0].median_s), together, near, _Option(tier, [], reason)))
    options: dict[Any, _Option] = {}
    for _, together, near, option in sorted(ranked_groups, key=lambda entry: entry[0]):
        options.setdefault(together, option).near.append(near)
    return _Plan(list(options.values()), stale)


def _shortened(near: Near) -> Near:
    return near._replace(group=near.group._replace(candidates=near.group.candidates[:_MOST]))


def _tier(key: Key, there: Key, distance: float) -> str:
    """The tier at which a record of ``there`` answers ``key``, 'default' when at none."""
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
