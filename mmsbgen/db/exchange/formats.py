"""Reads and writes files of tuning records in all supported formats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmsbgen.base.atomic_files import write_packed
from mmsbgen.base.errors import InputError
from mmsbgen.base.user_files import read_unpacked
from mmsbgen.db.exchange import jsonl, kernel_tuner_cache, t4
from mmsbgen.db.exchange.jsonl import Bundle

FORMATS = ("jsonl", "t4", "cache")
"""Our JSON lines, the T4 format of autotuning results, and kernel_tuner's cache files."""
_ADDRESS = r"\b(?:tcp|tls|ucx|wss?|inproc)://[^\s,;)]+"
"""Addresses of Dask workers."""


_SUFFIXES = {".jsonl": "jsonl", ".json": "t4", ".csv": "csv", "": "jsonl"}


def form_of(path: Path) -> str:
    """The format that a name's suffix stands for, JSON lines without any; .gz is left out of account.

    Raises ``InputError`` for another suffix.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in _SUFFIXES:
        raise InputError(f"{path} has the suffix {suffix}: write to .jsonl, .json or .csv, or give the --format")
    return _SUFFIXES[suffix]


def write(bundle: Bundle, path: Path, form: str = "jsonl") -> None:
    """Write a file atomically in one of ``FORMATS``; gzip when the name ends in ``.gz``.

    Raises ``InputError`` when it cannot be written or the format cannot hold the records.
    """
    if form == "jsonl":
        jsonl.write(bundle, path)
    else:
        write_packed(path, t4.text_of(bundle) if form == "t4" else kernel_tuner_cache.text_of(bundle))


def read(path: Path) -> Bundle:
    """The records of a file that :func:`write` made, in any of ``FORMATS``.

    A cache file that kernel_tuner has not closed is accepted, as in kernel_tuner.  Raises ``InputError`` that names the
    position and the error, also for files of other programs.
    """
    data = read_unpacked(path, share=jsonl.MEMORY_SHARE)
    whole = _whole(data, str(path))
    if whole is not None and "results" in whole:
        return t4.parse(whole, str(path))
    if whole is not None and "cache" in whole:
        return kernel_tuner_cache.parse(whole, str(path))
    return jsonl.parse(data.splitlines(keepends=True), str(path))


def _whole(data: bytes, name: str) -> dict[str, Any] | None:
    """The content of a file that is one JSON object, or None for a file of JSON lines."""
    try:
        text = data.decode("utf-8").strip()
        for end in ("", "}\n}"):
            try:
                found = json.loads((text.removesuffix(",") if end else text) + end, parse_constant=jsonl.no_constant)
            except json.JSONDecodeError:
                continue
            return found if isinstance(found, dict) else None
    except UnicodeDecodeError:
        pass
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: {error}") from error
    return None


def chosen(
    bundle: Bundle, *, kernel: str | None = None, device: str | None = None, problem: Mapping[str, Any] | None = None
) -> Bundle:
    """The trials and quarantined configurations that pass all filters, with the trials' runs and their roofs.

    The filters are those of :meth:`mmsbgen.db.store.tuning_store.Store.trials`.
    """

    def wanted(record: Any) -> bool:
        key = record.key
        names = (key.kernel.name, f"{key.kernel.family}/{key.kernel.name}")
        return (
            (kernel is None or kernel in names)
            and (device is None or key.device.matches(device))
            and (problem or {}).items() <= key.problem.params.items()
        )

    if kernel is None and device is None and not problem:
        return bundle
    trials = [trial for trial in bundle.trials if wanted(trial)]
    runs = {trial.run for trial in trials}
    return Bundle(
        [run for run in bundle.runs if run.uuid in runs],
        [roof for roof in bundle.roofs if roof.run in runs],
        trials,
        [failure for failure in bundle.quarantine if wanted(failure)],
    )


def anonymous(bundle: Bundle) -> Bundle:
    """The same records without names and addresses of machines, and without process information."""
    places = [place for run in bundle.runs for place in run.extra.get("workers", []) if isinstance(place, str)]
    places += [trial.extra["where"] for trial in bundle.trials if isinstance(trial.extra.get("where"), str)]
    machines = {run.host for run in bundle.runs} | {place.rpartition(" ")[0] for place in places}
    names = sorted(filter(None, machines), key=len, reverse=True)
    secret = re.compile("|".join([_ADDRESS, *(rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in names)]))

    def told(text: str) -> str:
        return secret.sub("[machine]", text)

    return replace(
        bundle,
        runs=[replace(run, host="", extra=_nowhere(run.extra)) for run in bundle.runs],
        trials=[replace(t, extra=_nowhere(t.extra), message=told(t.message)) for t in bundle.trials],
        quarantine=[replace(f, extra=_nowhere(f.extra), message=told(f.message)) for f in bundle.quarantine],
    )


def _nowhere(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The ``extra`` of a run or trial without ``process``; places "MACHINE DEVICE" are reduced to the device."""
    found = {name: value for name, value in extra.items() if name != "process"}
    if isinstance(found.get("where"), str):
        found["where"] = _device(found["where"])
    if isinstance(found.get("workers"), list):
        found["workers"] = [_device(place) for place in found["workers"] if isinstance(place, str)]
    return found


def _device(place: str) -> str:
    return place.rpartition(" ")[2]
