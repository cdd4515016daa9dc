"""Selects the best records of each problem, for the files that come with the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import by_key, candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import Key, TrialRecord

MOST_TIMES = 31
"""Maximum number of times that a trial keeps."""
NOISE = 0.01
"""Chains whose medians differ by less than this fraction, or by less than an interquartile range, are equally fast."""


class ChainTimes(NamedTuple):
    """Times of a Markov chain with different configurations of one kernel, from scripts/bench/bench_chain.py."""

    device: tuple[str | int, ...]
    kernel: str
    template_digest: str
    problem: dict[str, Any]
    configs: dict[tuple[str, str], tuple[float, float]]
    """Median and interquartile range in seconds, by the digests of configuration and program."""

    def is_of(self, key: Key) -> bool:
        """Whether the chain ran the kernel, template and problem of a key on its device."""
        kernel = key.kernel.name, key.kernel.template_digest
        same = kernel == (self.kernel, self.template_digest) and dict(key.problem.params) == self.problem
        return same and key.device.identity == self.device

    def slower(self, trials: Sequence[TrialRecord]) -> set[str]:
        """Digests of configurations that rank before the chain's fastest one; empty if that one has no trial."""
        best, spread = min(self.configs.values())
        fastest = {
            name for name, (median, iqr) in self.configs.items() if median - best <= max(NOISE * best, spread, iqr)
        }
        order = [(found.config_digest, found.program) for found in ranked(map(candidate, trials))]
        first = next((place for place, config in enumerate(order) if config in fastest), 0)
        return {config for config, _ in order[:first]}


def read_chain_times(path: Path) -> list[ChainTimes]:
    """The results in a report of scripts/bench/bench_chain.py; raises ``InputError`` for any other file."""
    try:
        results = json.loads(path.read_text())["results"]
        if not all(one["configs"] for one in results):
            raise ValueError("a result without a configuration")
        return [
            ChainTimes(
                tuple(one["device"]),
                one["kernel"],
                one["template_digest"],
                one["problem"],
                {
                    (digest(found["config"]), found.get("program", "")): (found["median_s"], found["iqr_s"])
                    for found in one["configs"]
                },
            )
            for one in results
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a report of bench_chain.py: {error!r}") from error


def best_records(bundle: Bundle, most: int, chains: Sequence[ChainTimes] = ()) -> Bundle:
    """The ``most`` best configurations of each key, with the last timing of each in every run.

    Their ranking stays the same.  Trials with more than :data:`MOST_TIMES` times are reduced to that many quantiles.
    Failures are left out, and so are older programs of a configuration.

    Args:
        bundle: The records.
        most: Configurations to keep for each key.
        chains: Configurations that rank before the fastest one of a chain are left out.

    Raises:
        InputError: A chain has no trial in ``bundle``, or only ones of other programs.
    """
    worked = by_key(trial for trial in bundle.trials if trial.status == "ok")
    for chain in chains:
        pairs = {(t.config_digest, t.program) for key, every in worked.items() if chain.is_of(key) for t in every}
        tuned = {config for config, _ in pairs}
        measured = [found for found in chain.configs if found[0] in tuned]
        if not pairs or (measured and not pairs.intersection(measured)):
            raise InputError(
                f"no trial of {chain.kernel}, {chain.problem} on {chain.device[3]} with the programs of the chain: "
                "time the chain again"
            )
    kept: list[TrialRecord] = []
    for key, recorded in worked.items():
        every = of_newest_programs(recorded)
        left_out = set[str]().union(*(chain.slower(every) for chain in chains if chain.is_of(key)))
        trials = [trial for trial in every if trial.config_digest not in left_out]
        best = {found.config_digest for found in ranked(map(candidate, trials))[:most]}
        last = {(t.run, t.config_digest): t for t in sorted(trials, key=lambda t: t.round) if t.config_digest in best}
        kept += [replace(trial, times=_quantiles(trial.times)) for trial in last.values()]
    used = {trial.run for trial in kept}
    runs = [run for run in bundle.runs if run.uuid in used]
    return Bundle(runs, [roof for roof in bundle.roofs if roof.run in used], kept)


def _quantiles(times: Sequence[float]) -> tuple[float, ...]:
    """At most :data:`MOST_TIMES` of the times, evenly spaced by rank; look-ups need only the median."""
    if len(times) <= MOST_TIMES:
        return tuple(times)
    ordered = sorted(times)
    return tuple(ordered[round(i * (len(ordered) - 1) / (MOST_TIMES - 1))] for i in range(MOST_TIMES))
