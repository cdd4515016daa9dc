"""What ``mmsbgen db`` prints: a look-up; rows with full values for JSON and CSV, and shorter text for tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import budget_text, moment_text, pairs
from mmsbgen.cli.printing.output_options import Column, place_of
from mmsbgen.cli.shared.common import seconds
from mmsbgen.cli.shared.console import shown
from mmsbgen.db.records.nearness import Difference, parts, phrase
from mmsbgen.db.records.ranking import by_key, candidate, cost, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    Key,
    QuarantineRecord,
    RoofRecord,
    RunRecord,
    TrialRecord,
    newest_rates,
)
from mmsbgen.db.selection.explain_selection import nearest
from mmsbgen.db.selection.index import Group, Index, shipped_groups, without
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.problem import implied
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.roof import of_roof
from mmsbgen.kernels.space import describe
from mmsbgen.tuner.run.changed_keys import present_program

Rows = list[dict[str, Any]]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _first_line(text: str) -> str:
    """The first line, or the first error of a compiler."""
    lines = text.strip().split("\n")
    line = next((line for line in lines if ": error:" in line or line.startswith("error: ")), lines[0])
    return line if len(line) <= 120 else line[:117] + "..."


_KEY = [
    Column("backend"),
    Column("device", "device", line=0),
    Column("platform", "platform", line=0),
    Column("driver", "driver", line=0, label="driver {}"),
    Column("compiler"),
    Column("compiler_version"),
    Column("compiler_options"),
    Column("family"),
    Column("kernel", "kernel"),
    Column("template_digest"),
    Column("problem", "problem", pairs, line=2),
]
_RESULT = [
    Column("config", "configuration", pairs, line=2, label="→ {}"),
    Column("median_s", "time", seconds, "right"),
    Column("spread_s", "spread", seconds, "right", label="± {}"),
    Column("gbps", "GB/s", _number, "right", label="{} GB/s"),
    Column("roof_gbps"),
    Column("roof_fraction", "of roof", partial(of_roof, digits=0), "right", label="of roof: {}"),
]
BEST = [
    *_KEY,
    *_RESULT,
    Column("worked", "worked", str, "right", label="{} worked"),
    Column("stale", "stale", lambda found: _differences(found, none=""), label="stale"),
    Column("quarantined", "quarantined", lambda found: _failures(found), label="others quarantined"),
    Column("trial"),
]
TRIAL = [
    Column("created_at", "when", moment_text),
    *_KEY,
    Column("status", "status"),
    *_RESULT,
    Column("message", "message", _first_line, line=3),
    Column("stale", "stale", lambda found: _differences(found, none=""), label="stale"),
    Column("quarantined", "quarantined", _first_line, label="quarantined"),
]
TRIAL += [
    Column(field.name)
    for field in fields(TrialRecord)
    if field.name not in ("key", "run", "extra", *(column.field for column in TRIAL))
]
TRIAL += [Column("run"), Column("trial"), Column("extra")]
DEVICE = [
    Column("backend", "backend"),
    Column("device", "device"),
    Column("platform", "platform"),
    Column("vendor", "vendor", line=2),
    Column("architecture", "architecture", line=2),
    Column("driver", "driver", line=2, label="driver {}"),
    Column("kind", "kind"),
    Column("compute_units", "units", str, "right", label="{} units"),
    Column("memory_bytes", "memory", lambda size: f"{size / 2**30:.1f} GiB", "right"),
    Column("copy_gbps", "copy GB/s", _number, "right", line=3, label="copy {} GB/s"),
    Column(
        "gather_gbps",
        "gather GB/s by row bytes",
        lambda r: pairs({k: f"{v:.1f}" for k, v in r.items()}),
        line=3,
        label="gather GB/s by row bytes: {}",
    ),
    Column("extra"),
]
RUN = [
    Column("uuid", "run"),
    Column("started", "started", moment_text),
    Column("finished", "finished", moment_text, label="to {}"),
    Column("status", "status", line=2),
    Column("strategy", "strategy", line=2, label="strategy {}"),
    Column("budget", "budget", budget_text, line=2),
    Column("seed", "seed", str, "right", line=2, label="seed {}"),
    Column("host", "host", line=3, label="on {}"),
    Column("who", "who", line=3, label="by {}"),
    Column("versions"),
    Column("extra"),
]
QUARANTINE = [
    Column("created_at", "when", moment_text),
    *_KEY,
    Column("config", "configuration", pairs, line=2, label="→ {}"),
    Column("status", "status"),
    Column("message", "message", _first_line, line=3),
    Column("extra"),
]
_MADE = ("trial", "config", "times", "stale", "quarantined")
EXPLAIN = [
    *_KEY,
    Column("config", "configuration", pairs, line=2, label="→ {}"),
    Column("worked", "worked", str, "right", label="{} worked"),
    Column("best_s", "best", seconds, "right", label="best {}"),
    Column("differences", "differs in", lambda found: _differences(found), line=3, label="differs in {}"),
    Column("quarantined", "quarantined", lambda found: _failures(found), label="some quarantined"),
    Column("stale", "stale", lambda stale: "stale" if stale else ""),
    Column("shipped", "shipped in", label="shipped in {}"),
    Column("trial"),
]


def key_row(key: Key) -> dict[str, Any]:
    """The fields of a key."""
    return {
        "backend": key.device.backend,
        "device": key.device.name,
        "platform": key.device.platform,
        "driver": key.device.driver,
        "compiler": key.toolchain.compiler,
        "compiler_version": key.toolchain.version,
        "compiler_options": key.toolchain.options,
        "family": key.kernel.family,
        "kernel": key.kernel.name,
        "template_digest": key.kernel.template_digest,
        "problem": dict(key.problem.params),
    }


class Marks:
    """Stale and quarantined records, for the columns that show them."""

    def __init__(self, failures: Iterable[QuarantineRecord], stale: Callable[[TrialRecord], list[Difference]]) -> None:
        self._failures = by_key(failures)
        self._stale = stale

    def stale(self, trial: TrialRecord) -> Rows:
        """The parts that a trial depends on that have changed since, with wanted and found values."""
        return [asdict(d) for d in self._stale(trial)]

    def failures(self, key: Key) -> Rows:
        """The configurations that are not selected for a key, and why."""
        return [{"config": dict(f.config), "reason": f.reason} for f in self._failures.get(key, [])]

    def reason(self, key: Key, digest: str) -> str:
        """Why a configuration is not selected for a key; empty when it may be."""
        found = (f for f in self._failures.get(key, []) if digest in (f.config_digest, f.recorded_digest))
        return next((f.reason for f in found), "")


def trial_row(trial: TrialRecord, marks: Marks) -> dict[str, Any]:
    """All fields of a trial; ``stale``, which renders its program, as a function of no arguments."""
    names = [c.field for c in TRIAL if c not in _KEY and c.field not in _MADE]
    row: dict[str, Any] = {"trial": trial.uid, **key_row(trial.key), "config": dict(trial.config)}
    row["template_digest"] = trial.template_digest
    row |= {name: getattr(trial, name) for name in names} | {"times": list(trial.times)}
    return row | {"stale": partial(marks.stale, trial), "quarantined": marks.reason(trial.key, trial.config_digest)}


def best_rows(trials: Iterable[TrialRecord], marks: Marks, objective: str = "time") -> Rows:
    """The best trial of each key that may be selected, by device, kernel and problem.

    ``worked`` counts the configurations that worked, each once, as in :func:`explain_rows` and the report of a tune.
    """
    rows = []
    for found in by_key(trials).values():
        newest = of_newest_programs(t for t in found if t.status == "ok")
        usable = [t for t in newest if not marks.reason(t.key, t.config_digest)]
        order = ranked(candidate(t, objective) for t in usable if math.isfinite(cost(t, objective)))
        if order:
            row = trial_row(next(trial for trial in found if trial.uid == order[0].uid), marks)
            worked = {trial.config_digest for trial in found if trial.status == "ok"}
            row |= {"worked": len(worked), "quarantined": marks.failures(found[0].key)}
            rows.append({c.field: row[c.field] for c in BEST})
    return sorted(rows, key=lambda r: (r["backend"], r["device"], r["platform"], r["kernel"], place_of(r["problem"])))


def device_rows(devices: Iterable[DeviceRecord], roofs: Iterable[RoofRecord]) -> Rows:
    """Devices with their newest roofs; ``roofs`` are newest first."""
    copy, gather = newest_rates(roofs)
    rows = []
    for device in devices:
        row = asdict(device)
        row["device"] = row.pop("name")
        rows.append(row | {"copy_gbps": copy.get(device.key), "gather_gbps": gather[device.key]})
    return rows


def run_row(run: RunRecord) -> dict[str, Any]:
    """All fields of a run."""
    return asdict(run) | {"who": str(run.extra.get("who", ""))}


def quarantine_rows(failures: Iterable[QuarantineRecord]) -> Rows:
    """All fields of quarantined configurations."""
    rows = []
    for failure in failures:
        row = {**key_row(failure.key), "config": dict(failure.config), "extra": dict(failure.extra)}
        rows.append(row | {name: getattr(failure, name) for name in ("created_at", "status", "message")})
    return rows


def explain_rows(
    store: Store,
    kernel: str,
    device: str | None,
    wanted: dict[str, Any],
    limit: int,
    marks: Marks,
    family: KernelFamily | None = None,
) -> Rows:
    """The keys with 'ok' trials of a kernel, including shipped ones, nearest to the parts in ``wanted``.

    ``family`` is the kernel's family, for one that is not registered.
    """
    trials = store.trials(kernel=kernel, device=device, status="ok")
    own = {trial.uid: trial for trial in trials}
    groups = [Group(key, "", ranked(map(candidate, found))) for key, found in by_key(trials).items()]
    for (of, name), shipped in shipped_groups().items():
        if kernel in (name, f"{of}/{name}"):
            theirs = [g for g in shipped if device is None or g.key.device.matches(device)]
            groups += without(theirs, own)
    program = present_program if family is None else partial(program_digest, family)
    left_out = implied(family.parameters if family is not None else ())
    return [
        {
            **key_row(near.group.key),
            "template_digest": near.template_digest,
            "config": json.loads(near.best.config_json),
            "worked": near.configurations,
            "best_s": near.best.median_s,
            "differences": [asdict(d) for d in near.differences],
            "quarantined": marks.failures(near.group.key),
            "stale": near.stale or (near.best.uid in own and bool(marks.stale(own[near.best.uid]))),
            "shipped": near.group.source,
            "trial": near.best.uid,
        }
        for near in nearest(wanted, groups, implied=left_out, limit=limit, program=program)
    ]


def would_use(
    store: Store, spec: str, found: KernelFamily, name: str, problem: dict[str, Any], *, to_stderr: bool
) -> dict[str, Any]:
    """Print the configuration that a run would use; returns the parts of the key that it looks up."""
    from mmsbgen.backends import find_device
    from mmsbgen.kernels.runtime import look_up

    try:
        info = find_device(spec)
    except InputError as error:
        raise InputError(f"{error}\n--on takes a device of this machine; --device takes one that has records") from None
    asked, index = found.problem(**problem), Index(store)
    selection = look_up(index, info, found, name, asked)
    key = key_of(info, found.kernel(name), asked)
    click.echo(f"{name} on {info.name} ({info.platform}) would use: {describe(selection.config)}", err=to_stderr)
    click.echo(f"  tier {selection.tier}: {selection.reason}", err=to_stderr)
    sizes = {n: x for n, x in key.problem.params.items() if isinstance(x, int) and n not in problem}
    if sizes:
        told = ", ".join(f"{size}={value}" for size, value in sizes.items())
        click.echo(f"  {'other sizes' if problem else 'sizes'} as by default: {told}", err=to_stderr)
    for failure in store.quarantined(f"{key.kernel.family}/{name}"):
        if failure.key == key:
            click.echo(shown(f"  quarantined here: {describe(failure.config)} ({failure.reason})"), err=to_stderr)
    return parts(key)


def _failures(found: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"{pairs(failure['config'])} ({_first_line(failure['reason'])})" for failure in found)


def _differences(found: Iterable[Mapping[str, Any]], none: str = "nothing") -> str:
    if not (differing := [Difference(**d) for d in found]):
        return none
    return ", ".join(f"{phrase(d.part, d.found)} (wanted {phrase(d.part, d.wanted)})" for d in differing)
