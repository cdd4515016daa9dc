"""The T4 format of autotuning results, as written by kernel_tuner and others, extended by our own records.

A file is one JSON object with ``results``; each result has ``configuration``, ``times``, ``invalidity``,
``correctness``, ``objectives`` and ``measurements``.  Fields that T4 lacks (device, compiler, kernel, problem, run,
resources, messages) are in objects called ``mmsbgen``, so that reading a file restores the written records.  Results of
other programs are not read.  Times in a file are milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import TrialRecord

VERSION = "1.0.0"
OURS = "mmsbgen"
_INVALIDITY = {
    "ok": "correct",
    "invalid": "constraints",
    "compile_error": "compile",
    "launch_error": "runtime",
    "wrong_result": "correctness",
    "timeout": "timeout",
    "crashed": "runtime",
}


def text_of(bundle: Bundle) -> str:
    """The text of a T4 file with the records of ``bundle``; the same bundle gives the same text."""
    entries = [json.loads(line) for line in jsonl.lines(bundle)]
    trials = sorted(bundle.trials, key=lambda t: (t.created_at, t.uid))
    lines = [entry for entry in entries if entry.get("type") == "trial"]
    records = [entry for entry in entries if entry.get("type") != "trial"]
    whole = {
        "schema_version": VERSION,
        "metadata": {"timeunit": "milliseconds"},
        "results": [_result(trial, line) for trial, line in zip(trials, lines, strict=True)],
        OURS: {"records": records},
    }
    return json.dumps(whole, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _result(trial: TrialRecord, line: dict[str, Any]) -> dict[str, Any]:
    line = {name: value for name, value in line.items() if name not in ("type", "config")}
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


def parse(whole: Mapping[str, Any], name: str) -> Bundle:
    """Our records in a T4 file of :func:`text_of`; ``name`` is for messages.

    Raises ``InputError`` that names the error, also for files of other programs.
    """
    results, records = whole.get("results"), whole.get(OURS)
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise InputError(f"{name}: 'results' must be a list of objects")
    records = records.get("records") if isinstance(records, dict) else None
    if not isinstance(records, list) or not all(isinstance(result.get(OURS), dict) for result in results):
        raise InputError(
            f"{name}: not all results have a part {OURS!r} with device, compiler and kernel: results of other programs "
            "are not read"
        )
    trials = [{"type": "trial", "config": result.get("configuration"), **result[OURS]} for result in results]
    lines = (json.dumps(entry).encode() for entry in [*records, *trials])
    return jsonl.parse(lines, f"{name}, part {OURS!r}")
