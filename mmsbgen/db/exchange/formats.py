"""What files of tuning records have, and what is left out of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.ranking import by_key, candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import TrialRecord

_ADDRESS = r"\b(?:tcp|tls|ucx|wss?|inproc)://[^\s,;)]+"
"""Addresses of Dask workers."""
MOST_TIMES = 31
"""Maximum number of times that a trial of :func:`best` keeps."""


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
