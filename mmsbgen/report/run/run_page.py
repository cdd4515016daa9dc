"""The report of one run: its communities, convergence, time, kernels and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import error_text, moment_text, pairs, plain
from mmsbgen.export import Clustering
from mmsbgen.export.run_folder import graph_of_run, read_run
from mmsbgen.graph import Graph
from mmsbgen.report.page import HtmlPage, Notice, Section, Table, Tile
from mmsbgen.report.run import community_pictures, network, trace_pictures
from mmsbgen.report.run.community_links import centrality, links_between
from mmsbgen.report.run.sampling_section import sampling_section
from mmsbgen.report.style import drawing, some
from mmsbgen.sampler.diagnostics.communities import RULES
from mmsbgen.sampler.diagnostics.verdict import Verdict, of_record
from mmsbgen.scores.incidence import shared_members

Record = dict[str, Any]

#: Kind of the notice of a verdict.
_COLOURS = {"found": "good", "weak": "warning", "degrees": "warning", "none": "warning", "unknown": "note"}
#: Most rows of the tables of communities and of pairs, and members that are named.
_COMMUNITIES, _PAIRS, _MEMBERS = 50, 20, 8


def run_page(folder: Path, graph: Path | None = None) -> HtmlPage:
    """The page of the results in ``folder``.

    ``graph`` is the run's edge list, by default the file that the record names.
    Raises :class:`InputError` if there are no results, if they are damaged or do not belong together, or if ``graph``
    is not the run's graph.
    """
    result, record = read_run(folder)
    if record.get("command") == "propagate":
        raise InputError(f"{folder} is of `mmsbgen propagate`: reports are of results of detect and update")
    if absent := {"trace", "seconds", "iterations", "options"} - record.keys():
        raise InputError(f"{folder / 'run.json'} has no {min(absent)}: run `mmsbgen detect -o` again")
    found, why = graph_of_run(folder, graph)
    missing = f"Links between communities are left out, as the run's graph is not at hand: {why}. Give it with --graph."
    with drawing():
        return _page(record, result, found, missing)


def _page(record: Record, result: Clustering, graph: Graph | None, missing: str) -> HtmlPage:
    name = plain(record["graph"]["name"], 80)
    device = record.get("device", {})
    page = HtmlPage(
        title=f"Communities of {name}",
        subtitle=f"{moment_text(record.get('finished'))} UTC, mmsbgen {record.get('mmsbgen', '')}, seed "
        f"{record.get('seed')}, on {device.get('name', 'an unknown device')} ({device.get('platform', '')})",
        notices=_notices(record, missing, graph),
        tiles=_tiles(record, result),
    )
    sections = [
        _communities(record, result, graph),
        _sizes(result),
        _overlap(result, graph),
        _convergence(record),
        _link_probabilities(record),
        sampling_section(record.get("sampling"), result.memberships.all_draws),
        _choice(record),
        _time(record),
        _kernels(record),
        _settings(record),
    ]
    page.sections = [section for section in sections if section is not None]
    return page


def _notices(record: Record, missing: str, graph: Graph | None) -> list[Notice]:
    verdict, text = of_record(record), (record.get("convergence") or {}).get("text", "")
    found = [Notice(_COLOURS[verdict.kind], verdict.sentence)]
    if text:
        converged = "good" if verdict.kind == "found" else "note"
        kind = converged if text.startswith("Converged") else "warning" if text.startswith("Warning") else "note"
        found.append(Notice(kind, text))
    sampled = (record.get("sampling") or {}).get("text", "")
    if "Warning:" in sampled:
        found.append(Notice("warning", sampled))
    if record.get("interrupted"):
        done = record["iterations"]
        found.insert(0, Notice("warning", f"This run was interrupted after iteration {done}; it can be resumed."))
    if not any("log_likelihood" in row for row in record["trace"]):
        found.append(Notice("note", "No pairs were held out, so nothing tells how well the run predicts links."))
    if not record["communities"]["count"]:
        found.append(
            Notice("warning", "No community has members: try more iterations, a lower --threshold or another K.")
        )
    if graph is None and record["communities"]["count"] > 1:
        found.append(Notice("note", missing))
    return found


def _tiles(record: Record, result: Clustering) -> list[Tile]:
    cover = result.cover
    tiles = [
        Tile(f"{record['graph']['vertices']:,}", "vertices"),
        Tile(f"{record['graph']['links']:,}", "links"),
        Tile(f"{len(cover.members):,}", f"communities found (K = {result.memberships.k:,})"),
        Tile(f"{cover.coverage:.1%}", "of the vertices are in a community"),
    ]
    if cover.members:
        tiles.append(Tile(f"{cover.overlap:.2f}", "communities of such a vertex, in the mean"))
    held = record.get("held_out") or {}
    for which in ("test", "validation"):
        if held.get(which) and held[which]["auc"] is not None:
            error = held[which]["auc_error"]
            tiles.append(
                Tile(
                    f"{held[which]['auc']:.3f}" + (error_text(error) if error else ""),
                    f"AUC of the memberships, {which} pairs",
                )
            )
    tiles.append(Tile(f"{record['seconds']:.3g} s", f"{record['iterations']:,} iterations"))
    return tiles


def _communities(record: Record, result: Clustering, graph: Graph | None) -> Section:
    cover, ids, strengths = result.cover, result.memberships.ids, result.strengths
    shown = cover.members[:_COMMUNITIES]
    central, why = centrality(graph, shown)
    rows: list[tuple[str, ...]] = []
    for place, members in enumerate(shown):
        first = members[:_MEMBERS] if central is None else central.most_central(members, _MEMBERS)
        names = ", ".join(plain(name, 24) for name in ids[first].tolist()) + (", …" if len(members) > _MEMBERS else "")
        core = () if central is None else (f"{central.transitivity[place]:.2f}", f"{central.cores[members].max()}")
        rows.append((str(place), f"{len(members):,}", f"{strengths[place]:.3g}", *core, names))
    rest = len(cover.members) - len(rows)
    smaller = f"The {rest:,} smaller communities are in communities.txt." if rest > 0 else ""
    of = (
        "" if central is None else "Transitivity is of the community alone; core numbers and PageRank are of the graph."
    )
    note = " ".join(filter(None, (smaller, of, why)))
    named = ("ids",) if central is None else ("transitivity", "largest core number", "ids, by PageRank")
    columns = ("community", "members", "strength", *named)
    table = Table("Largest communities", columns, rows, frozenset(range(len(columns) - 1)), note)
    rule = record.get("rule") or {}
    doc = RULES[rule["name"]].doc if rule.get("name") in RULES else ""
    return Section(
        "Communities",
        f"Made by the rule {rule.get('name')} at {rule.get('threshold')}: {doc}." if rule else "",
        some(network.draw(result, graph)),
        [table] if rows else [],
    )


def _sizes(result: Clustering) -> Section | None:
    pictures = some(community_pictures.sizes(result), community_pictures.memberships(result))
    return Section("Sizes and memberships", "", pictures) if pictures else None


def _overlap(result: Clustering, graph: Graph | None) -> Section | None:
    count = min(network.MOST_COMMUNITIES, len(result.cover.members))
    if count < 2:
        return None
    shared = shared_members(result.cover.members[:count], result.cover.n_vertices)
    between = links_between(result.cover, graph.links, count) if graph is not None else None
    picture = community_pictures.overlaps(result)
    upper = np.triu(np.ones_like(shared, bool), 1)
    weight = np.where(upper, shared, 0) if picture is not None or between is None else np.where(upper, between, 0)
    order = np.argsort(-weight, axis=None, kind="stable")[:_PAIRS]
    rows: list[tuple[str, ...]] = []
    for i, j in zip(*np.unravel_index(order, weight.shape), strict=True):
        if weight[i, j] > 0:
            names = (str(i), str(j))
            links = () if between is None else (f"{between[i, j]:,}",)
            rows.append((*names, f"{shared[i, j]:,}", *links))
    columns = ("community", "and", "shared members", *(() if between is None else ("links between",)))
    tables = [Table("Pairs that have most in common", columns, rows, frozenset(range(len(columns))), "", len(rows) > 8)]
    text = (
        ""
        if picture is not None
        else f"No two of the {min(count, community_pictures.SHOWN)} largest communities share one."
    )
    return Section("Overlap", text, some(picture), tables if rows else [])


def _convergence(record: Record) -> Section:
    verdict = record.get("convergence") or {}
    tables = []
    held = record.get("held_out") or {}
    rows = [
        (
            f"{which} pairs",
            f"{pairs['links']:,}",
            f"{pairs['non_links']:,}",
            _number(pairs["auc"], pairs["auc_error"], ".4f"),
            _interval(pairs.get("auc_interval")),
            _number(pairs["log_likelihood"], pairs["log_likelihood_error"], ".4g"),
            _number(pairs["perplexity"], None, ".4g"),
        )
        for which in ("validation", "test")
        if (pairs := held.get(which))
    ]
    if rows:
        columns = (
            "",
            "links",
            "non-links",
            "AUC",
            "95% interval",
            "log-likelihood (nats a pair)",
            "balanced perplexity",
        )
        tables.append(
            Table(
                "Metrics of the memberships that were written, with standard errors",
                columns,
                rows,
                frozenset(range(1, 7)),
            )
        )
    numbers = [
        ("held-out log-likelihood settled", {True: "yes", False: "no", None: "not known"}[verdict.get("settled")]),
        ("vertices that kept their largest community in the second half", _percent(verdict.get("agreement"))),
        ("effective communities", _number(verdict.get("effective_communities"), None, ".1f")),
        ("mean row sum at the end", _number(verdict.get("mean_row_sum"), None, ".4g")),
        ("iterations", f"{record['iterations']:,}"),
        ("updates of a vertex", _number(record.get("updates_per_vertex"), None, ".4g")),
    ]
    numbers += _structure(of_record(record))
    tables.append(Table("Verdict in numbers", ("", "value"), numbers, frozenset({1})))
    if trials := (record.get("course") or {}).get("trials") or []:
        chosen = record["course"]["start"]
        starts = [
            (
                f"{row['start']} (taken)" if row["start"] == chosen else row["start"],
                f"{row['sets']:,}",
                _number(row["own_log_likelihood"], None, ".4g"),
                _number(row["log_likelihood"], None, ".4g"),
                _number(row["auc"], None, ".4f"),
            )
            for row in trials
        ]
        names = ("start", "sets", "its own log-likelihood", "after the trial", "AUC after the trial")
        tables.append(Table("Starts that were tried", names, starts, frozenset(range(1, 5))))
    return Section("Convergence", "", some(trace_pictures.held_out(record), trace_pictures.health(record)), tables)


def _link_probabilities(record: Record) -> Section | None:
    if (note := record.get("calibration")) is None:
        return None
    text, test = note["text"], note["test"]
    if test is not None:
        text += (
            f" Test pairs of a probability of 0.1 or more: it differs from the share of links by "
            f"{_number(test['ece'], test['ece_error'], '.3f')} on average (expected calibration error, ECE), where a "
            f"perfect model would show {test['ece_by_chance']:.3f} with as few pairs."
        )
    return Section("Link probabilities", text, some(trace_pictures.reliability(record)))


def _structure(verdict: Verdict) -> list[tuple[str, str]]:
    rows = []
    if verdict.auc is not None:
        auc = _number(verdict.auc, verdict.auc_error, ".3f")
        rows.append(("AUC of held-out links against links of graphs with the same degrees (chance: 0.5)", auc))
    if verdict.modularity is not None:
        rewired = _number(verdict.rewired_modularity, verdict.rewired_deviation, ".3f")
        rows.append(("modularity of the graph", _number(verdict.modularity, None, ".3f")))
        rows.append(("modularity of graphs with the same degrees, and its standard deviation", rewired))
    if verdict.eigenvalue is not None:
        rewired = _number(verdict.rewired_eigenvalue, verdict.eigenvalue_deviation, ".3f")
        rows.append(("second eigenvalue of the graph", _number(verdict.eigenvalue, None, ".3f")))
        rows.append(("second eigenvalue of graphs with the same degrees, and its standard deviation", rewired))
        rows.append(("share of the eigenvector that the communities explain", _number(verdict.agreement, None, ".2f")))
    return rows


def _number(value: float | None, error: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form) + (error_text(error) if error else "")


def _interval(ends: list[float | None] | None) -> str:
    return "unknown" if not ends or None in ends else f"{ends[0]:.4f} to {ends[1]:.4f}"


def _percent(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1%}"


def _choice(record: Record) -> Section | None:
    if (picture := trace_pictures.choice_of_k(record)) is None:
        return None
    rows = [
        (
            row["k"],
            _number(row["log_likelihood"], None, ".5g"),
            _number(row["standard_error"], None, ".2g"),
            _number(row["auc"], None, ".4f"),
        )
        for row in record["tried"]
    ]
    columns = ("K", "log-likelihood", "standard error of the difference to the best", "AUC")
    table = Table("What was tried", columns, rows, frozenset({0, 1, 2, 3}))
    return Section("Number of communities", "", [picture], [table])


def _time(record: Record) -> Section:
    seconds: Mapping[str, float] = record.get("stage_seconds") or {}
    total = record["seconds"]
    rows = [
        (name, f"{value:.4g}", f"{value / total:.1%}" if total > 0 else "", f"{1e3 * value / record['iterations']:.4g}")
        for name, value in seconds.items()
        if record["iterations"]
    ]
    columns = ("stage", "seconds", "of the run", "ms an iteration")
    tables = [Table("Seconds by stage", columns, rows, frozenset({1, 2, 3}))] if rows else []
    text = (
        "Stages on the device are timed by its clock, draws on the host by the host's; both run at the same time. "
        "The search for K and writing files are left out."
    )
    return Section("Time", text if seconds else "No stage was timed.", [], tables)


def _kernels(record: Record) -> Section:
    rows = [(one["kernel"], one["tier"], pairs(one["config"]), one["reason"]) for one in record.get("kernels", [])]
    tiers: dict[str, int] = {}
    for row in rows:
        tiers[row[1]] = tiers.get(row[1], 0) + 1
    text = "Kernels by where their configuration came from: " + (
        ", ".join(f"{count} {tier}" for tier, count in tiers.items()) or "none was launched"
    )
    table = Table("Configurations", ("kernel", "tier", "configuration", "why"), rows)
    return Section("Kernels", text + ".", [], [table] if rows else [])


def _settings(record: Record) -> Section:
    def table(title: str, values: Mapping[str, object]) -> Table:
        return Table(title, ("name", "value"), [(k, _text(v)) for k, v in values.items()], folded=True)

    memory = [
        (where, name, f"{size / 2**20:,.2f}")
        for where, parts in (record.get("memory") or {}).items()
        for name, size in parts.items()
    ]
    tables = [
        table("Graph", record["graph"]),
        table("Options", record["options"]),
        table("Problem", record.get("problem") or {}),
        table("Device", record.get("device") or {}),
        Table("Memory", ("where", "what", "MiB"), memory, frozenset({2}), folded=True),
        table("Versions", {"mmsbgen": record.get("mmsbgen"), **(record.get("versions") or {})}),
    ]
    return Section("Settings", "What it takes to make this run again.", [], [one for one in tables if one.rows])


def _text(value: object) -> str:
    if isinstance(value, dict):
        return pairs(value)
    return "default" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
