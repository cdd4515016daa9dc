"""Results that a run takes over from earlier runs, and runs whose process has died."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmsbgen.backends import DeviceInfo
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import cost
from mmsbgen.db.records.tuning_records import Key, RunRecord, TrialRecord
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.record_key import device_record
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.roofs import Roofs, within_budget
from mmsbgen.tuner.measure.timing import timed_alone

_DAY_S = 86400.0

_PROC = Path("/proc")
_MACHINE = Path("/etc/machine-id")


def this_process() -> dict[str, Any]:
    """Identity of this process, distinct from earlier processes with the same number."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "numbers": _numbers(), "machine": _machine()}


def end_dead_runs(store: Store) -> list[RunRecord]:
    """Mark runs of this machine as interrupted if their process is gone, and return them.

    A killed process cannot end its run itself, nor can one lost to a power failure.  Runs of other machines are left
    alone, as are those of containers that number their processes otherwise.
    """
    dead = [run for run in store.runs() if run.status == "running" and run.host == platform.node() and _is_dead(run)]
    for run in dead:
        store.finish_run(run.uuid, status="interrupted")
    return dead


def known_roofs(
    store: Store,
    info: DeviceInfo,
    row_bytes: int,
    buffer_bytes: int,
    seconds: float | None,
    others: Sequence[RoofKind] = (),
) -> Roofs | None:
    """The newest roofs of the device with its present driver, if they are younger than a day; else None.

    They were measured with ``others`` and such rows, in the buffer of a run of so many ``seconds`` with the same
    ``buffer_bytes``, or in a larger one.
    """
    least = within_budget(buffer_bytes, info, seconds)
    runs = {
        run.uuid
        for run in store.runs()
        if run.extra.get("roof_bytes") == buffer_bytes
        and within_budget(buffer_bytes, info, run.budget.get("seconds")) >= least
    }
    wanted = {("copy", None), ("gather", row_bytes), *((str(kind), kind.row_bytes) for kind in others)}
    measured: defaultdict[str, dict[tuple[str, int | None], float]] = defaultdict(dict)
    for roof in store.roofs(device=device_record(info)):
        age = (datetime.now(UTC) - datetime.fromisoformat(roof.measured_at)).total_seconds()
        kind = roof.kind, roof.row_bytes
        if roof.run in runs and kind in wanted and 0 <= age < _DAY_S:
            of_run = measured[roof.run]
            of_run[kind] = roof.gbps
            if len(of_run) == len(wanted):
                rates = {kind: of_run[str(kind), kind.row_bytes] for kind in others}
                return Roofs(of_run["copy", None], of_run["gather", row_bytes], row_bytes, others=rates, age_s=age)
    return None


def known_trials(
    store: Store, key: Key, objective: str = "time", program: Callable[[Config], str] | None = None, data: str = ""
) -> dict[str, TrialRecord]:
    """The newest usable trial of each configuration under ``key``, by ``config_digest``.

    Trials of a search are preferred to those of finals, which are timed in turns: a resumed search then ranks by the
    results that it had when it ended.  These trials are not usable:

    - those that succeeded, but were not measured for ``objective``;
    - those stopped early, as that depended on the best and the noise of their run, unless all their repetitions are
      slower than the winner of the last finals;
    - those whose times include the host's part (:func:`mmsbgen.tuner.measure.timing.timed_alone`);
    - those before the configuration failed in use and was quarantined, as only a new trial can lift that;
    - those that a fleet lost with its workers;
    - those of another program, if ``program`` gives the digest of a configuration's program;
    - those of other data than ``data``, see :class:`mmsbgen.kernels.family.Dataset`.
    """
    failed: dict[str, str] = {}
    for failure in store.quarantined(f"{key.kernel.family}/{key.kernel.name}"):
        if failure.key == key:
            for name in (failure.config_digest, failure.recorded_digest):
                failed[name] = max(failed.get(name, ""), failure.created_at)
    known: dict[str, TrialRecord] = {}
    found = _of_program(store, key, program, data)
    winner_s = next((trial.median_s for trial in found if trial.round > 1 and trial.median_s), math.inf)
    for trial in reversed(found):
        if trial.created_at <= failed.get(trial.config_digest, "") or trial.extra.get("lost"):
            continue
        backend, batch = trial.key.device.backend, int(trial.extra.get("batch", 1))
        if trial.status == "ok" and (
            not math.isfinite(cost(trial, objective))
            or (trial.extra.get("given_up") and min(trial.times) <= winner_s)
            or timed_alone(backend, trial.median_s or 0.0, batch)
        ):
            continue
        before = known.get(trial.config_digest)
        if before is None or trial.round == 0 or before.round > 0:
            known[trial.config_digest] = trial
    return known


def order_of_going_on(
    store: Store,
    key: Key,
    configs: Sequence[dict[str, Value]],
    known: Collection[str],
    program: Callable[[Config], str] | None = None,
    data: str = "",
) -> list[dict[str, Value]]:
    """Sort ``configs``: first those of the digests ``known``, which take no time, then the untried, then the tried.

    Trials that were stopped early are not known and are measured again.  A resumed run with too little time for the
    whole space reaches untried configurations before these.  Trials of another program than ``program`` gives do not
    count.
    """
    tried = {trial.config_digest for trial in _of_program(store, key, program, data)}
    return sorted(configs, key=lambda config: 0 if (name := digest(config)) in known else 1 + (name in tried))


def _of_program(store: Store, key: Key, program: Callable[[Config], str] | None, data: str) -> list[TrialRecord]:
    """The trials under ``key`` on these data, whose program is the one that their configuration has today."""
    found = [trial for trial in store.trials(key=key) if trial.extra.get("data", "") == data]
    return found if program is None else [trial for trial in found if trial.program == program(trial.config)]


def known_finals(
    store: Store,
    key: Key,
    configs: Sequence[Config],
    objective: str = "time",
    program: Callable[[Config], str] | None = None,
    data: str = "",
) -> Sequence[TrialRecord]:
    """The finals of the newest run that timed its finalists in turns, all of them among ``configs``.

    Empty without such a run, or if a later search trial may change the winner.  A configuration that was stopped early
    before the finals is measured again by later runs.  It does not change the winner if it is stopped early again or is
    slower than the winner.
    """
    by_run: defaultdict[str, dict[str, TrialRecord]] = defaultdict(dict)
    searched: list[TrialRecord] = []
    for trial in _of_program(store, key, program, data):
        if trial.round == 0:
            searched.append(trial)
        elif trial.status == "ok" and math.isfinite(cost(trial, objective)):
            by_run[trial.run].setdefault(trial.config_digest, trial)
    allowed = {digest(dict(config)) for config in configs} if by_run else set()
    for finals in by_run.values():
        if finals.keys() <= allowed and len(finals) > 1 and not _overtaken(list(finals.values()), searched, objective):
            return list(finals.values())
    return []


def _overtaken(finals: Sequence[TrialRecord], searched: Sequence[TrialRecord], objective: str) -> bool:
    """Whether a search trial since the finals may change the winner."""
    begin, best = min(trial.created_at for trial in finals), min(cost(trial, objective) for trial in finals)
    since = [trial for trial in searched if trial.created_at > begin and not trial.extra.get("given_up")]
    behind = {t.config_digest for t in searched if t.created_at <= begin and t.extra.get("given_up")}
    return any(
        trial.config_digest not in behind or trial.status != "ok" or not cost(trial, objective) > best
        for trial in since
    )


def _is_dead(run: RunRecord) -> bool:
    process = run.extra.get("process")
    if not isinstance(process, dict):
        return False
    here = this_process()
    if process.get("numbers") == here["numbers"]:
        pid = process.get("pid")
        return isinstance(pid, int) and _started(pid) != process.get("started")
    starts = [str(one.get("numbers", "")).partition(" ")[0] for one in (process, here)]
    same_machine = bool(here["machine"]) and process.get("machine") == here["machine"]
    return same_machine and all(starts) and starts[0] != starts[1]


def _started(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None if the process is gone or a zombie."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(fields[18])


def _numbers() -> str:
    """Boot id and process-id namespace; empty if unknown."""
    try:
        return f"{(_PROC / 'sys/kernel/random/boot_id').read_text().strip()} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _machine() -> str:
    """Identity of this installation of a system; empty if it has no machine id."""
    try:
        number = _MACHINE.read_text().strip()
    except OSError:
        return ""
    # A digest, as the id itself is confidential (machine-id(5)).
    return hashlib.sha256(f"mmsbgen {number}".encode()).hexdigest()[:32] if number else ""
