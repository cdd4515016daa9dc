"""The report of a tuning database: coverage, best configurations, times, roofline, failures and history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mmsbgen.base.id_text import budget_text, moment_text, pairs, plain
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import DeviceRecord, RunRecord
from mmsbgen.kernels.roof import of_roof, told
from mmsbgen.report.page import HtmlPage, Notice, Section, Table, Tile, with_distinct_names
from mmsbgen.report.style import drawing, some, times
from mmsbgen.report.tuning import axis_pictures, database_pictures
from mmsbgen.report.tuning.cases import Case, by_device, cases_of, device_label, problem_texts

#: Most rows of a table.
_ROWS = 200


@drawing()
def tuning_page(bundle: Bundle, where: str) -> HtmlPage:
    """The page of tuning records; ``where`` is the place of their database, for the subtitle."""
    trials = bundle.trials
    cases = cases_of(trials)
    failed = sum(trial.status != "ok" for trial in trials)
    devices = {trial.key.device.key: trial.key.device for trial in trials}
    days = sorted({trial.created_at[:10] for trial in trials})
    page = HtmlPage(
        title="Tuning records",
        subtitle=f"{plain(where, 120)}, "
        + (f"measured {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else "empty"),
        tiles=[
            Tile(f"{len(trials):,}", "trials"),
            Tile(f"{sum(len(case.times) for case in cases):,}", "configurations that work"),
            Tile(f"{failed / max(1, len(trials)):.1%}", f"of the trials failed ({failed:,})"),
            Tile(f"{len({device.identity for device in devices.values()})}", "devices"),
            Tile(f"{len({(t.key.kernel.family, t.key.kernel.name) for t in trials})}", "kernels"),
            Tile(f"{len({t.key.problem.key for t in trials})}", "problems"),
            Tile(f"{len(bundle.runs):,}", "runs"),
        ],
    )
    if trials and failed == len(trials):
        page.notices.append(Notice("warning", "No configuration worked: look at the failures below."))
    sections = [
        _coverage(bundle, list(devices.values())),
        _best(cases),
        _configurations(cases),
        _roofline(bundle, cases),
        _failures(bundle),
        _history(bundle, cases),
    ]
    page.sections = with_distinct_names([section for section in sections if section is not None])
    return page


def _coverage(bundle: Bundle, devices: Sequence[DeviceRecord]) -> Section:
    rows = []
    for device in sorted(devices, key=lambda d: (d.backend, d.label, d.driver)):
        count = sum(trial.key.device.key == device.key for trial in bundle.trials)
        copy = [roof.gbps for roof in bundle.roofs if roof.device.key == device.key and roof.kind == "copy"]
        gather = [roof.gbps for roof in bundle.roofs if roof.device.key == device.key and roof.kind == "gather"]
        named = (device_label(device), device.backend, device.driver, device.compute_units)
        rows.append((*named, f"{count:,}", _range(copy), _range(gather)))
    columns = ("device", "backend", "driver", "units", "trials", "copy (GB/s)", "gather (GB/s)")
    tables = [Table("Devices and drivers", columns, rows, frozenset({3, 4, 5, 6}))]
    others: dict[tuple[str, str, int | None], float] = {}
    for roof in bundle.roofs:
        if roof.kind not in ("copy", "gather"):
            what = device_label(roof.device), roof.kind, roof.row_bytes
            others[what] = max(roof.gbps, others.get(what, 0.0))
    if others:
        rates = [(what[0], told(what[1], what[2], rate)) for what, rate in sorted(others.items(), key=str)]
        tables.append(Table("Best rates of other kinds", ("device", "rate"), rates[:_ROWS]))
    if problems := _problems(bundle):
        names = ("kernel", "parameter", "values that were measured")
        tables.append(Table("Problems by kernel", names, problems, folded=True))
    labels, counts = database_pictures.coverage(bundle.trials)
    title = "Trials / problems of each kernel on each device"
    tables.insert(1, Table(title, ("kernel", *labels), counts, frozenset(range(1, len(labels) + 1))))
    return Section("Coverage", "", [], tables)


def _range(values: Sequence[float]) -> str:
    if not values:
        return "not measured"
    low, high = min(values), max(values)
    return f"{high:,.4g}" if high <= 1.02 * low else f"{low:,.4g} to {high:,.4g}"


def _problems(bundle: Bundle) -> list[tuple[str, str, str]]:
    """Kernel, parameter and measured values, for every problem parameter with more than one value."""
    values: dict[str, dict[str, dict[str, object]]] = {}
    for trial in bundle.trials:
        for name, value in trial.key.problem.params.items():
            values.setdefault(trial.key.kernel.name, {}).setdefault(name, {})[repr(value)] = value
    found = []
    for kernel, params in sorted(values.items()):
        for name, seen in sorted(params.items()):
            if len(seen) > 1:
                numbers = all(type(value) is int for value in seen.values())
                order = sorted(seen.values(), key=lambda value: (int(str(value)), "") if numbers else (0, str(value)))
                found.append((kernel, name, ", ".join(map(str, order))))
    return found


def _best(cases: Sequence[Case]) -> Section | None:
    if not cases:
        return None
    rows: list[tuple[str, ...]] = []
    texts: dict[int, str] = {}
    for of_kernel in by_device(cases, lambda case: (case.kernel.family, case.kernel.name)).values():
        for case, text in zip(of_kernel, problem_texts(case.problem for case in of_kernel), strict=True):
            texts[id(case)] = text
    rounds = any(case.best.barrier_fraction is not None for case in cases)
    for case in cases[:_ROWS]:
        gain = "" if case.default_s is None else times(case.default_s / case.best_s)
        of_what = str(case.best.extra.get("roof", "")).partition(" in ")[0]
        share = f"{of_roof(case.best.roof_fraction, 0)} {plain(of_what, 10)}".strip()
        shares = (share, of_roof(case.best.barrier_fraction, 0)) if rounds else (share,)
        config = pairs(case.best.config)
        ends = (f"{case.best_s * 1e3:.4g}", *shares, gain, times(case.worst_s / case.best_s), f"{len(case.times):,}")
        rows.append((case.label, case.kernel.name, texts[id(case)], *ends, config))
    parts = ("of roof", "barriers") if rounds else ("of roof",)
    columns = ("device", "kernel", "problem", "time (ms)", *parts, "default", "worst", "tried")
    note = f"{len(cases) - _ROWS:,} more are in the database (mmsbgen db best)." if len(cases) > _ROWS else ""
    numbers = frozenset(range(3, len(columns)))
    table = Table("All of them", (*columns, "best configuration"), rows, numbers, note, folded=len(rows) > 12)
    text = (
        f"The fastest configuration of each kernel for each device and problem, {len(cases):,} in all. The columns "
        "default and worst say how many times the best one's time the built-in configuration and the slowest take."
    )
    return Section("Best configurations", text, [], [table])


def _configurations(cases: Sequence[Case]) -> Section | None:
    found = axis_pictures.by_axis(cases)
    return Section("Time by configuration", "", found) if found else None


def _roofline(bundle: Bundle, cases: Sequence[Case]) -> Section | None:
    if (picture := database_pictures.roofline(bundle.trials, bundle.roofs)) is None:
        return None
    rows = []
    for (label, kernel), found in by_device(cases, lambda case: (case.label, case.kernel.name)).items():
        if shares := sorted(case.best.roof_fraction for case in found if case.best.roof_fraction is not None):
            rows.append((label, kernel, len(found), of_roof(shares[0]), of_roof(shares[-1])))
    columns = ("device", "kernel", "problems", "least of roof", "most of roof")
    table = Table("Share of the roof that the best configurations reach", columns, rows, frozenset({2, 3, 4}), "", True)
    return Section("Roofline", "", [picture], [table] if rows else [])


def _failures(bundle: Bundle) -> Section:
    found = database_pictures.reasons(bundle.trials)
    tables = []
    statuses = Counter(trial.status for trial in bundle.trials)
    if found:
        rows = [(status, text, f"{trials:,}", *rest) for status, text, trials, *rest in found[:_ROWS]]
        columns = ("status", "reason", "trials", "kernels", "one of them")
        tables.append(Table("Reasons", columns, rows, frozenset({2}), folded=len(rows) > 6))
    if bundle.quarantine:
        rows_of = [
            (q.key.kernel.name, device_label(q.key.device), q.created_at[:19], pairs(q.config), q.reason)
            for q in bundle.quarantine[:_ROWS]
        ]
        columns = ("kernel", "device", "when", "configuration", "reason")
        tables.append(Table("Quarantined configurations", columns, rows_of))
    ended = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in statuses.most_common())
    text = f"How trials ended: {ended}." if found else "No trial failed."
    return Section("Failures", text, [], tables)


def _history(bundle: Bundle, cases: Sequence[Case]) -> Section:
    series = database_pictures.history_of(bundle.trials, bundle.runs)
    counts = Counter(trial.run for trial in bundle.trials)
    runs = sorted(bundle.runs, key=lambda run: run.started, reverse=True)
    rows = [_run_row(run, counts[run.uuid]) for run in runs[:_ROWS]]
    columns = ("started (UTC)", "finished", "status", "strategy", "budget", "trials", "seed")
    note = f"{len(runs) - _ROWS:,} earlier runs are left out." if len(runs) > _ROWS else ""
    tables = [Table("Runs", columns, rows, frozenset({5, 6}), note, folded=len(rows) > 6)] if rows else []
    bests = [(title, moment_text(when), driver, f"{seconds * 1e3:.4g}") for title, when, driver, seconds in series]
    if bests:
        named = ("kernel, device and problem", "started (UTC)", "driver", "best (ms)")
        tables.insert(0, Table("Best of every run", named, bests[:_ROWS], frozenset({3}), folded=len(bests) > 12))
    text = (
        "" if series else "No kernel was tuned twice for the same device and problem, so there is nothing to compare."
    )
    return Section("History", text, some(axis_pictures.progress(cases)), tables)


def _run_row(run: RunRecord, trials: int) -> tuple[str, ...]:
    when = (moment_text(run.started), moment_text(run.finished))
    return (*when, run.status, run.strategy, budget_text(run.budget), f"{trials:,}", str(run.seed))
