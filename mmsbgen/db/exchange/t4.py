"""The T4 format of autotuning results, as kernel_tuner and others write it, with our own records beside its fields.

A file is one JSON object with ``results``; each result has ``configuration``, ``times``, ``invalidity``,
``correctness``, ``objectives`` and ``measurements``.  What T4 has no place for (device, compiler, kernel, problem, run,
resources, messages) lies in objects called ``mmsbgen``, so that our own files come back as they went.  Of a file by
another program every field of every result is kept and written again.  Times in a file are milliseconds unless its
``metadata.timeunit`` says otherwise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.imported_records import Named, moment, positive, run_of, seconds
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.tuning_records import TrialRecord

VERSION = "1.0.0"
OURS = "mmsbgen"
_KEPT = "t4"
_INVALIDITY = {
    "ok": "correct",
    "invalid": "constraints",
    "compile_error": "compile",
    "launch_error": "runtime",
    "wrong_result": "correctness",
    "timeout": "timeout",
    "crashed": "runtime",
}
_STATUS = {
    "correct": "ok",
    "constraints": "invalid",
    "compile": "compile_error",
    "runtime": "launch_error",
    "correctness": "wrong_result",
    "timeout": "timeout",
}
_OUR_UNIT = "milliseconds"
_UNITS_S = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}


def text_of(bundle: Bundle) -> str:
    """A T4 file that holds ``bundle``; the same bundle gives the same text."""
    entries = [json.loads(line) for line in jsonl.lines(bundle)]
    trials = sorted(bundle.trials, key=lambda t: (t.created_at, t.uid))
    lines = [entry for entry in entries if entry.get("type") == "trial"]
    records = [entry for entry in entries if entry.get("type") != "trial"]
    about = {run.uuid: run.extra[_KEPT] for run in bundle.runs if isinstance(run.extra.get(_KEPT), dict)}
    alone = len(bundle.runs) == len(about) == 1
    # A file has one unit: what another program wrote in another one is written anew where it is not alone.
    as_it_was = {uuid for uuid, kept in about.items() if alone or _unit(kept) == _OUR_UNIT}
    whole = {
        **(next(iter(about.values())) if alone else {"schema_version": VERSION, "metadata": {"timeunit": _OUR_UNIT}}),
        "results": [_result(trial, line, trial.run in as_it_was) for trial, line in zip(trials, lines, strict=True)],
        OURS: {"records": records},
    }
    return json.dumps(whole, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _unit(about: Mapping[str, Any]) -> str:
    metadata = about.get("metadata")
    return str(metadata.get("timeunit", _OUR_UNIT)).lower() if isinstance(metadata, dict) else _OUR_UNIT


def _result(trial: TrialRecord, line: dict[str, Any], as_it_was: bool) -> dict[str, Any]:
    line = {name: value for name, value in line.items() if name not in ("type", "config")}
    kept = trial.extra.get(_KEPT)
    if as_it_was and isinstance(kept, Mapping):
        return {**kept, "configuration": dict(trial.config), OURS: line}
    times: dict[str, Any] = {"runtimes": [t * 1e3 for t in trial.times]}
    if trial.compile_s is not None:
        times["compilation_time"] = trial.compile_s * 1e3
    return {
        "timestamp": trial.created_at,
        "configuration": dict(trial.config),
        "objectives": ["time"],
        "times": times,
        "invalidity": _INVALIDITY[trial.status],
        "correctness": 1.0 if trial.status == "ok" else 0.0,
        "measurements": _measurements(trial),
        OURS: line,
    }


def _measurements(trial: TrialRecord) -> list[dict[str, Any]]:
    values = (
        ("time", None if trial.median_s is None else trial.median_s * 1e3, "ms"),
        ("bandwidth", trial.gbps, "GB/s"),
        ("energy", trial.energy_j, "J"),
        ("registers", trial.registers, ""),
        ("spilled", trial.spill_bytes, "B"),
        ("shared_memory", trial.shared_bytes, "B"),
    )
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in values if value is not None]


def parse(whole: Mapping[str, Any], name: str, named: Named) -> Bundle:
    """What a T4 file holds; ``name`` is for messages, ``named`` says what T4 leaves out.

    Raises ``InputError`` that names the result and what is wrong with it.
    """
    results = whole.get("results")
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise InputError(f"{name}: 'results' must be a list of objects")
    ours = [result for result in results if isinstance(result.get(OURS), dict)]
    bundle = _own(whole, ours, name) if ours or OURS in whole else Bundle()
    theirs = [(number, result) for number, result in enumerate(results, start=1) if result not in ours]
    if theirs:
        _add_foreign(bundle, whole, theirs, name, named)
    return bundle


def _own(whole: Mapping[str, Any], results: Iterable[Mapping[str, Any]], name: str) -> Bundle:
    records = whole.get(OURS)
    records = records.get("records") if isinstance(records, dict) else None
    if not isinstance(records, list):
        raise InputError(f"{name}: results have a part {OURS!r}, but the records that they refer to are missing")
    trials = [{"type": "trial", "config": result.get("configuration"), **result[OURS]} for result in results]
    lines = (json.dumps(entry).encode() for entry in [*records, *trials])
    return jsonl.parse(lines, f"{name}, part {OURS!r}")


def _add_foreign(
    bundle: Bundle, whole: Mapping[str, Any], results: list[tuple[int, dict[str, Any]]], name: str, named: Named
) -> None:
    about = {key: value for key, value in whole.items() if key not in ("results", OURS)}
    unit = _unit(about)
    if unit not in _UNITS_S:
        raise InputError(f"{name}: the time unit {unit!r} is not known; there are {', '.join(_UNITS_S)}")
    key = named.key(family="t4", kernel="")
    run = run_of([key.key, about, [result for _, result in results]], "imported from a T4 file", {_KEPT: about})
    seen: Counter[str] = Counter()
    for number, result in results:
        try:
            config = result.get("configuration")
            if not isinstance(config, dict):
                raise ValueError("'configuration' must be an object")
            trial = TrialRecord(
                run=run.uuid,
                key=key,
                config=config,
                round=seen[canonical_json(config)],
                **_outcome(result, _UNITS_S[unit]),
            )
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"{name}, result {number}: {error}") from error
        seen[canonical_json(config)] += 1
        bundle.trials.append(trial)
    bundle.runs.append(run)


def _outcome(result: Mapping[str, Any], unit_s: float) -> dict[str, Any]:
    invalidity, times = result.get("invalidity"), result.get("times")
    if invalidity not in _STATUS:
        raise ValueError(f"'invalidity' must be one of {', '.join(_STATUS)}, got {invalidity!r}")
    if not isinstance(times, dict):
        raise ValueError("'times' must be an object")
    measured = {m.get("name"): m.get("value") for m in result.get("measurements", []) if isinstance(m, dict)}
    taken: tuple[float, ...] = ()
    if times.get("runtimes"):
        taken = seconds(times["runtimes"], unit_s)
    elif positive(measured.get("time")):
        taken = seconds([measured["time"]], unit_s)
    if invalidity == "correct" and not taken:
        raise ValueError("it is correct but has no time: neither 'runtimes' nor a measurement 'time'")
    compiled = times.get("compilation_time", times.get("compilation"))
    return {
        "status": _STATUS[invalidity],
        "times": taken,
        "compile_s": compiled * unit_s if positive(compiled) else None,
        "extra": {_KEPT: {name: value for name, value in result.items() if name not in ("configuration", OURS)}},
        **moment(result.get("timestamp")),
    }
