"""kernel_tuner's cache files: the results of one kernel for one problem on one device.

kernel_tuner can resume from a file that this module wrote.  Times in a cache are milliseconds.
"""

from __future__ import annotations

import json
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.ranking import candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import TrialRecord

_ERRORS = {
    "invalid": "InvalidConfig",
    "compile_error": "CompilationFailedConfig",
    "launch_error": "RuntimeFailedConfig",
    "wrong_result": "RuntimeFailedConfig",
    "timeout": "RuntimeFailedConfig",
    "crashed": "RuntimeFailedConfig",
}
_SPENT = ("verification_time", "benchmark_time", "strategy_time", "framework_time")


def text_of(bundle: Bundle) -> str:
    """The text of a cache file with the trials of ``bundle``.

    Raises ``InputError`` if there are no trials, trials of several keys, or configurations with different axes.
    """
    keys = {trial.key for trial in bundle.trials}
    if len(keys) != 1:
        raise InputError(
            f"a cache file has one kernel, device and problem, here are {len(keys)}: choose with --kernel, --device "
            "and --problem"
        )
    axes = {tuple(sorted(trial.config)) for trial in bundle.trials}
    if len(axes) != 1:
        raise InputError(f"a cache file has one set of axes, the configurations here have {len(axes)}")
    (names,), (key,) = axes, keys
    params = key.problem.params
    head = {
        "device_name": key.device.name,
        "kernel_name": key.kernel.name,
        "problem_size": params.get("problem_size", [value for value in params.values() if type(value) is int]),
        "tune_params_keys": list(names),
        "tune_params": {name: _values(bundle, name) for name in names},
        "objective": ["time"],
    }
    entries = {",".join(str(t.config[name]) for name in names): _entry(t, names) for t in _last(bundle)}
    # kernel_tuner removes the last three characters before it appends, and expects exactly these.
    return json.dumps({**head, "cache": entries}, allow_nan=False)[:-2] + "}\n}"


def _values(bundle: Bundle, name: str) -> list[Any]:
    found = {canonical_json(trial.config[name]): trial.config[name] for trial in bundle.trials}
    return [found[text] for text in sorted(found)]


def _last(bundle: Bundle) -> list[TrialRecord]:
    """One trial of each configuration: the best-ranked one, or the newest failure."""
    by_uid = {trial.uid: trial for trial in bundle.trials}
    newest = of_newest_programs(t for t in bundle.trials if t.status == "ok")
    order = [by_uid[c.uid] for c in ranked(map(candidate, newest))]
    order += sorted((t for t in bundle.trials if t.status != "ok"), key=lambda t: t.created_at, reverse=True)
    found: dict[str, TrialRecord] = {}
    for trial in order:
        found.setdefault(trial.config_digest, trial)
    return sorted(found.values(), key=lambda t: (t.created_at, t.uid))


def _entry(trial: TrialRecord, names: tuple[str, ...]) -> dict[str, Any]:
    config = {name: trial.config[name] for name in names}
    entry: dict[str, Any] = {**config, "timestamp": trial.created_at, "compile_time": (trial.compile_s or 0.0) * 1e3}
    entry |= dict.fromkeys(_SPENT, 0.0)
    if trial.status == "ok" and trial.median_s is not None:
        return entry | {"time": trial.median_s * 1e3, "times": [t * 1e3 for t in trial.times]}
    return entry | {"time": _ERRORS[trial.status], "__error__": _ERRORS[trial.status]}
