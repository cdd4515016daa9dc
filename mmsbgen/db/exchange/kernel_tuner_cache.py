"""kernel_tuner's cache files: the results of one kernel for one problem on one device.

kernel_tuner goes on from a file that this module wrote.  Our own records lie beside its fields in an object called
``mmsbgen``, before ``cache``, since kernel_tuner appends to the end of the file; entries that it has appended are taken
in as trials of a run of their own.  Times in a cache are milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.imported_records import Named, moment, positive, run_of, seconds
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.ranking import candidate, ranked
from mmsbgen.db.records.tuning_records import Key, TrialRecord

OURS = "mmsbgen"
_KEPT = "kernel_tuner"
_ERRORS = {
    "invalid": "InvalidConfig",
    "compile_error": "CompilationFailedConfig",
    "launch_error": "RuntimeFailedConfig",
    "wrong_result": "RuntimeFailedConfig",
    "timeout": "RuntimeFailedConfig",
    "crashed": "RuntimeFailedConfig",
}
_STATUS = {
    "InvalidConfig": "invalid",
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "launch_error",
    "ErrorConfig": "launch_error",
}
_HEAD = ("device_name", "kernel_name", "problem_size", "tune_params_keys", "tune_params", "objective")
_SPENT = ("verification_time", "benchmark_time", "strategy_time", "framework_time")


def text_of(bundle: Bundle) -> str:
    """A cache file of the trials of ``bundle``.

    Raises ``InputError`` where there are none, of several keys, or with configurations of different axes.
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
    kept: dict[str, Any] = next((run.extra[_KEPT] for run in bundle.runs if _KEPT in run.extra), {})
    (names,), (key,) = axes, keys
    names = tuple(kept.get("tune_params_keys", names))
    head = {
        "device_name": key.device.name,
        "kernel_name": key.kernel.name,
        "problem_size": _problem_size(key),
        "tune_params_keys": list(names),
        "tune_params": {name: _values(bundle, name) for name in names},
        "objective": ["time"],
        **kept,
        OURS: {"records": [json.loads(line) for line in jsonl.lines(bundle)]},
    }
    entries = {",".join(str(t.config[name]) for name in names): _entry(t, names) for t in _last(bundle)}
    # kernel_tuner takes the last three characters away before it appends, and expects exactly these.
    return json.dumps({**head, "cache": entries}, allow_nan=False)[:-2] + "}\n}"


def _values(bundle: Bundle, name: str) -> list[Any]:
    found = {canonical_json(trial.config[name]): trial.config[name] for trial in bundle.trials}
    return [found[text] for text in sorted(found)]


def _problem_size(key: Key) -> Any:
    return key.problem.params.get("problem_size", [v for v in key.problem.params.values() if type(v) is int])


def _last(bundle: Bundle) -> list[TrialRecord]:
    """One trial of each configuration: the one that ranks best, or the newest failure."""
    by_uid = {trial.uid: trial for trial in bundle.trials}
    order = [by_uid[c.uid] for c in ranked(candidate(t) for t in bundle.trials if t.status == "ok")]
    order += sorted((t for t in bundle.trials if t.status != "ok"), key=lambda t: t.created_at, reverse=True)
    found: dict[str, TrialRecord] = {}
    for trial in order:
        found.setdefault(trial.config_digest, trial)
    return sorted(found.values(), key=lambda t: (t.created_at, t.uid))


def _entry(trial: TrialRecord, names: tuple[str, ...]) -> dict[str, Any]:
    config = {name: trial.config[name] for name in names}
    if _KEPT in trial.extra:
        return {**config, **trial.extra[_KEPT]}
    entry: dict[str, Any] = {**config, "timestamp": trial.created_at, "compile_time": (trial.compile_s or 0.0) * 1e3}
    entry |= dict.fromkeys(_SPENT, 0.0)
    if trial.status == "ok" and trial.median_s is not None:
        return entry | {"time": trial.median_s * 1e3, "times": [t * 1e3 for t in trial.times]}
    return entry | {"time": _ERRORS[trial.status], "__error__": _ERRORS[trial.status]}


def parse(whole: Mapping[str, Any], name: str, named: Named) -> Bundle:
    """What a cache file holds; ``name`` is for messages, ``named`` is used where the file does not say.

    Raises ``InputError`` that names the entry and what is wrong with it.
    """
    names, entries = whole.get("tune_params_keys"), whole.get("cache")
    if not isinstance(names, list) or not isinstance(entries, dict):
        raise InputError(f"{name}: no cache of kernel_tuner: 'tune_params_keys' and 'cache' are expected")
    bundle, known = Bundle(), set()
    key = named.key(
        family="kernel_tuner",
        kernel=str(whole.get("kernel_name") or ""),
        device=str(whole.get("device_name") or ""),
        problem={"problem_size": whole["problem_size"]} if "problem_size" in whole else {},
    )
    ours = whole.get(OURS)
    if isinstance(ours, dict) and isinstance(ours.get("records"), list):
        lines = (json.dumps(entry).encode() for entry in ours["records"])
        bundle = jsonl.parse(lines, f"{name}, part {OURS!r}")
        known = {canonical_json(trial.config) for trial in bundle.trials}
        key = bundle.trials[0].key if bundle.trials else key
    about = {part: whole[part] for part in _HEAD if part in whole}
    new: list[dict[str, Any]] = []
    for label, entry in entries.items():
        try:
            made = _trial(entry, names)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{name}, entry {label!r}: {error}") from error
        if canonical_json(made["config"]) not in known:
            new.append(made)
    if new:
        content = [key.key, about, [[made["config"], made["extra"]] for made in new]]
        run = run_of(content, "imported from kernel_tuner", {_KEPT: about})
        bundle.runs.append(run)
        try:
            bundle.trials += [TrialRecord(run=run.uuid, key=key, **made) for made in new]
        except (ValueError, TypeError) as error:
            raise InputError(f"{name}: {error}") from error
    return bundle


def _trial(entry: Any, names: list[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError("an object is expected")
    missing = [name for name in names if name not in entry]
    if missing:
        raise ValueError(f"the parameter {missing[0]!r} is missing")
    rest = {field: value for field, value in entry.items() if field not in names}
    error = next((value for value in rest.values() if isinstance(value, str) and value in _STATUS), None)
    taken: tuple[float, ...] = ()
    if error is None:
        taken = seconds(rest.get("times") or [rest.get("time")], 1e-3)
    compiled = rest.get("compile_time")
    return {
        "config": {name: entry[name] for name in names},
        "status": "ok" if error is None else _STATUS[error],
        "times": taken,
        "compile_s": compiled * 1e-3 if positive(compiled) else None,
        "extra": {_KEPT: rest},
        **moment(rest.get("timestamp")),
    }
