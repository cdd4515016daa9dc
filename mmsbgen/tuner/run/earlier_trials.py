"""What a run takes over from those before it, however they ended."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import cost
from mmsbgen.db.records.tuning_records import Key, RunRecord, TrialRecord
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.timing import timed_alone

__all__ = ["end_dead_runs", "known_finals", "known_trials", "order_of_going_on", "this_process"]

_PROC = Path("/proc")
_MACHINE = Path("/etc/machine-id")


def this_process() -> dict[str, Any]:
    """What tells this process from all others of this machine, those before it with the same number included."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "numbers": _numbers(), "machine": _machine()}


def end_dead_runs(store: Store) -> list[RunRecord]:
    """Mark as interrupted the runs of this machine whose process is gone without having said so; return them.

    A process that was killed cannot end its run, nor can one whose machine lost its power and was started again.  Runs
    of other machines, and of containers that number their processes otherwise, are left alone.
    """
    dead = [run for run in store.runs() if run.status == "running" and run.host == platform.node() and _is_dead(run)]
    for run in dead:
        store.finish_run(run.uuid, status="interrupted")
    return dead


def known_trials(
    store: Store, key: Key, objective: str = "time", program: Callable[[Config], str] | None = None
) -> dict[str, TrialRecord]:
    """The newest trial of each configuration under ``key`` by ``config_digest``, those of searches before finals.

    Finals are timed in turns: a search that goes on ranks by what it had when it was ended.  What works, but was not
    measured for the objective, is not known.  Nor is what was given up, as that was about the best and the noise of the
    other run, what has the host's part in it (:func:`mmsbgen.tuner.measure.timing.timed_alone`), what was measured
    before the configuration failed in use and was quarantined, as only a new trial can lift that, and what a fleet lost
    with its workers.  ``program`` gives the digest of a configuration's program: trials of another one are not known.
    """
    failed: dict[str, str] = {}
    for failure in store.quarantined(family=key.kernel.family, kernel=key.kernel.name):
        if failure.key == key:
            for name in (failure.config_digest, failure.recorded_digest):
                failed[name] = max(failed.get(name, ""), failure.created_at)
    known: dict[str, TrialRecord] = {}
    for trial in reversed(_of_program(store, key, program)):
        if trial.created_at <= failed.get(trial.config_digest, "") or trial.extra.get("lost"):
            continue
        backend, batch = trial.key.device.backend, int(trial.extra.get("batch", 1))
        if trial.status == "ok" and (
            not math.isfinite(cost(trial, objective))
            or trial.extra.get("given_up")
            or timed_alone(backend, trial.median_s or 0.0, batch)
        ):
            continue
        before = known.get(trial.config_digest)
        if before is None or trial.round == 0 or before.round > 0:
            known[trial.config_digest] = trial
    return known


def order_of_going_on(
    store: Store, key: Key, configs: Sequence[dict[str, Value]], known: Collection[str]
) -> list[dict[str, Value]]:
    """``configs``: those of the digests ``known``, which take no time, then the untried, then the tried.

    What earlier runs gave up is not known, and is measured again: a run that goes on with a space, and has no time for
    all that is left of it, comes to what is new before.
    """
    tried = {trial.config_digest for trial in store.trials(key=key)}
    return sorted(configs, key=lambda config: 0 if (name := digest(config)) in known else 1 + (name in tried))


def _of_program(store: Store, key: Key, program: Callable[[Config], str] | None) -> list[TrialRecord]:
    """The trials under ``key`` of the programs that their configurations have today."""
    found = store.trials(key=key)
    return found if program is None else [trial for trial in found if trial.program == program(trial.config)]


def known_finals(
    store: Store,
    key: Key,
    configs: Sequence[Config],
    objective: str = "time",
    program: Callable[[Config], str] | None = None,
) -> Sequence[TrialRecord]:
    """The finals of the newest run that timed its finalists in turns, all of them among ``configs``.

    Empty without such a run, and where something was measured since, as the finals were then about older trials.
    What had been given up before changes nothing when it is given up again, or is measured and stays behind the winner:
    the same command measures it again, as nothing is known of its time.
    """
    allowed = {digest(dict(config)) for config in configs}
    by_run: defaultdict[str, dict[str, TrialRecord]] = defaultdict(dict)
    searched: list[TrialRecord] = []
    for trial in _of_program(store, key, program):
        if trial.round == 0:
            searched.append(trial)
        elif trial.status == "ok" and math.isfinite(cost(trial, objective)):
            by_run[trial.run].setdefault(trial.config_digest, trial)
    for finals in by_run.values():
        if finals.keys() <= allowed and len(finals) > 1 and not _overtaken(list(finals.values()), searched, objective):
            return list(finals.values())
    return []


def _overtaken(finals: Sequence[TrialRecord], searched: Sequence[TrialRecord], objective: str) -> bool:
    """Whether a search has measured something since that may change who wins."""
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
    """When a process started, in clock ticks since the machine did; None when it is gone, or only waits to be."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(fields[18])


def _numbers() -> str:
    """The start of the machine and the name space in which process numbers count; empty where that is not known."""
    try:
        return f"{(_PROC / 'sys/kernel/random/boot_id').read_text().strip()} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _machine() -> str:
    """Tells this installation of a system from others; empty where it has no number of its own."""
    try:
        number = _MACHINE.read_text().strip()
    except OSError:
        return ""
    # A digest, as the number itself is not to be told (machine-id(5)).
    return hashlib.sha256(f"mmsbgen {number}".encode()).hexdigest()[:32] if number else ""
