"""The JSON-lines format of tuning records, for export, import and the files that come with the package.

The first line is ``{"format": "mmsbgen-tuning", "version": 1, "trials": ...}``.  Each further line has a
``type``: devices, toolchains, kernels and problems come first, each with its ``key``; runs, roofs, trials and
quarantined configurations follow and refer to them by key, and to runs by uuid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from mmsbgen.base.atomic_files import write_packed
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.progress import Stage, stage
from mmsbgen.base.user_files import read_unpacked
from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.ranking import by_key, candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import Key, QuarantineRecord, RoofRecord, RunRecord, TrialRecord

FORMAT = "mmsbgen-tuning"
VERSION = 2
"""Newest version of the format, which adds quarantined configurations."""

MEMORY_SHARE = 40
"""JSON of many small values takes up to this many times its size while it is read."""

_ADDRESS = r"\b(?:tcp|tls|ucx|wss?|inproc)://[^\s,;)]+"
"""Addresses of Dask workers."""
MOST_TIMES = 31
"""Maximum number of times that a trial of :func:`best` keeps."""

_PARTS: dict[str, type[Any]] = get_type_hints(Key)


@dataclass
class Bundle:
    """All records of one file."""

    runs: list[RunRecord] = field(default_factory=list)
    roofs: list[RoofRecord] = field(default_factory=list)
    trials: list[TrialRecord] = field(default_factory=list)
    quarantine: list[QuarantineRecord] = field(default_factory=list)

    def of_trials(self, trials: list[TrialRecord], quarantine: Sequence[QuarantineRecord] = ()) -> Bundle:
        """These trials with their runs, and the runs' roofs."""
        used = {trial.run for trial in trials}
        runs = [run for run in self.runs if run.uuid in used]
        return Bundle(runs, [roof for roof in self.roofs if roof.run in used], trials, list(quarantine))


def lines(bundle: Bundle) -> Iterator[str]:
    """The lines of a file of ``bundle``, without line ends; the same bundle gives the same lines."""
    counts = {"runs": len(bundle.runs), "roofs": len(bundle.roofs), "trials": len(bundle.trials)}
    if bundle.quarantine:
        counts["quarantine"] = len(bundle.quarantine)
    yield canonical_json({"format": FORMAT, "version": VERSION if bundle.quarantine else 1, **counts})
    parts: dict[tuple[str, str], Any] = {("device", roof.device.key): roof.device for roof in bundle.roofs}
    keys = [*(trial.key for trial in bundle.trials), *(failure.key for failure in bundle.quarantine)]
    for whole in keys:
        for name in _PARTS:
            part = getattr(whole, name)
            parts.setdefault((name, part.key), part)
    for (name, key), part in sorted(parts.items(), key=lambda item: item[0]):
        yield canonical_json({"type": name, "key": key, **part.values()})
    for run in sorted(bundle.runs, key=lambda r: (r.started, r.uuid)):
        yield canonical_json({"type": "run", **run.values()})
    for roof in sorted(bundle.roofs, key=lambda r: (r.measured_at, r.uid)):
        yield canonical_json({"type": "roof", **roof.values(), "device": roof.device.key})
    kinds: dict[str, Iterable[TrialRecord | QuarantineRecord]]
    kinds = {"trial": bundle.trials, "quarantine": bundle.quarantine}
    for kind, records in kinds.items():
        for record in sorted(records, key=lambda r: (r.created_at, r.uid)):
            references = {name: getattr(record.key, name).key for name in _PARTS}
            yield canonical_json({"type": kind, **record.values("key"), **references})


def write(bundle: Bundle, path: Path) -> None:
    """Write a file atomically; gzip when the name ends in ``.gz``.

    Raises ``InputError`` when it cannot be written.
    """
    with stage(f"writing {path.name}", len(bundle.trials), "trials"):
        write_packed(path, "".join(line + "\n" for line in lines(bundle)))


#: Advice for messages about files of other kinds.
_KINDS = "records are in .jsonl files that `mmsbgen db export` wrote"


def read(path: Path) -> Bundle:
    """The records of a file; raises ``InputError`` that names the line and the error."""
    return parse(read_unpacked(path, share=MEMORY_SHARE).splitlines(keepends=True), str(path))


def parse(stream: Iterable[bytes], name: str) -> Bundle:
    """The records in the lines of ``stream``; ``name`` is for messages.  Raises as :func:`read`."""
    found = list(stream)
    with stage(f"reading {name}", len(found), "lines") as told:
        return _parsed(found, name, told)


def _parsed(stream: Sequence[bytes], name: str, told: Stage) -> Bundle:
    reader = _Reader()
    header: dict[str, Any] | None = None
    for number, line in enumerate(stream, start=1):
        told.tell(number)
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
            if not isinstance(values, dict):
                raise ValueError("a JSON object is expected")
            if header is None:
                header = _checked_header(values)
            else:
                reader.add(values)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            damaged = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
            what = "; export or copy it again" if damaged else ""
            if damaged and header is None:
                what = f"; {_KINDS}"
            raise InputError(f"{name}, line {number}: {plain(error, 300)}{what}") from error
    if header is None:
        raise InputError(f"{name} is empty: a first line with the format is expected; {_KINDS}")
    for kind, found in vars(reader.bundle).items():
        if header.get(kind, len(found)) != len(found):
            raise InputError(f"{name} is cut short: it has {len(found)} of {header[kind]} {kind}")
    return reader.bundle


class _Reader:
    """Assembles records from lines that refer to earlier lines."""

    def __init__(self) -> None:
        self.bundle = Bundle()
        self._parts: dict[tuple[str, str], Any] = {}
        self._runs: set[str] = set()
        self._keys: dict[tuple[str, ...], Key] = {}

    def add(self, values: dict[str, Any]) -> None:
        kind = values.pop("type", None)
        if kind in _PARTS:
            key = values.pop("key", None)
            part = _made(_PARTS[kind], values)
            if part.key != key:
                raise ValueError(f"the key of this {kind} does not match its content: the line was changed or damaged")
            self._parts[kind, key] = part
        elif kind == "run":
            self.bundle.runs.append(_made(RunRecord, values))
            self._runs.add(self.bundle.runs[-1].uuid)
        elif kind == "roof":
            values["device"] = self._referred("device", values.get("device"))
            self.bundle.roofs.append(self._of_run(_made(RoofRecord, values)))
        elif kind in ("trial", "quarantine"):
            values["key"] = self._key(values)
            for name in ("config", "recorded"):
                _check_config(values.get(name))
            if kind == "trial":
                self.bundle.trials.append(self._of_run(_made(TrialRecord, values)))
            else:
                self.bundle.quarantine.append(_made(QuarantineRecord, values))
        else:
            raise ValueError(f"unknown type {kind!r}")

    def _key(self, values: dict[str, Any]) -> Key:
        names = tuple(str(values.pop(name, None)) for name in _PARTS)
        if names not in self._keys:
            self._keys[names] = Key(*(self._referred(kind, name) for kind, name in zip(_PARTS, names, strict=True)))
        return self._keys[names]

    def _of_run(self, record: Any) -> Any:
        if record.run not in self._runs:
            raise ValueError(f"no earlier line has the run {record.run}")
        return record

    def _referred(self, kind: str, key: object) -> Any:
        if (kind, str(key)) not in self._parts:
            raise ValueError(f"no earlier line has the {kind} {key}")
        return self._parts[kind, str(key)]


def _check_config(config: object) -> None:
    """Raise ValueError for a value that no axis has: its records could not be compared with others."""
    for name, value in config.items() if isinstance(config, dict) else ():
        if not isinstance(value, str | int):
            raise ValueError(
                f"{name}={value!r} of the configuration is a {type(value).__name__}: texts, whole numbers, true and "
                "false are expected"
            )


def _made(kind: type[Any], values: dict[str, Any]) -> Any:
    if unknown := values.keys() - {f.name for f in fields(kind)}:
        raise ValueError(f"unknown field {min(unknown)!r}")
    return kind(**values)


def _checked_header(values: dict[str, Any]) -> dict[str, Any]:
    if values.get("format") != FORMAT:
        raise ValueError(f"this is no file of tuning records: its first line must name the format {FORMAT!r}")
    if values.get("version") not in range(1, VERSION + 1):
        raise ValueError(
            f"format version {values.get('version')!r} is not known, this version of mmsbgen reads up to {VERSION}: "
            "upgrade mmsbgen"
        )
    return values


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number that can be stored")


def best(bundle: Bundle, most: int) -> Bundle:
    """The ``most`` best configurations of each key, with the last timing of each in every run.

    Their ranking stays the same.  Trials with more than :data:`MOST_TIMES` times are reduced to that many quantiles.
    Failures are left out, and so are older programs of a configuration.
    """
    kept: list[TrialRecord] = []
    for recorded in by_key(trial for trial in bundle.trials if trial.status == "ok").values():
        every = of_newest_programs(recorded)
        names = {found.config_digest for found in ranked(map(candidate, every))[:most]}
        last = {(t.run, t.config_digest): t for t in sorted(every, key=lambda t: t.round) if t.config_digest in names}
        kept += [replace(trial, times=_quantiles(trial.times)) for trial in last.values()]
    return bundle.of_trials(kept)


def _quantiles(times: Sequence[float]) -> tuple[float, ...]:
    """At most :data:`MOST_TIMES` of the times, evenly spaced by rank; look-ups need only the median."""
    if len(times) <= MOST_TIMES:
        return tuple(times)
    ordered = sorted(times)
    return tuple(ordered[round(i * (len(ordered) - 1) / (MOST_TIMES - 1))] for i in range(MOST_TIMES))


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
