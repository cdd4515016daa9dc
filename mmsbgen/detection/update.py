"""Update results after links were added or removed: only vertices around the change get new rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.backends import opened
from mmsbgen.base.atomic_files import FileTransaction, writable_folder, write_bytes
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain, plural
from mmsbgen.base.progress import stage
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.detect import ready_device
from mmsbgen.detection.plan_chain import planned
from mmsbgen.detection.publish import publish
from mmsbgen.detection.request import CHECKPOINT, Detection, Request
from mmsbgen.detection.run_chains import FinishedRun, stored_memberships
from mmsbgen.export.run_folder import graph_of_run, holds_whole_rows, read_run
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Graph, Split, as_graph
from mmsbgen.graph.changes import Change, carried_split, changed_graph
from mmsbgen.graph.files.graph_archive import is_graph_archive, split_of_archive
from mmsbgen.kernels.runtime import opened_runtime
from mmsbgen.sampler.chain.chain_problem import as_drawn, drawn_split
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.convergence import StabilityWatch
from mmsbgen.sampler.diagnostics.evaluation import Trace, evaluation
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.local_sweeps import LocalSweeps, start_from, sweep_locally, told_bytes
from mmsbgen.sampler.saved import result_folder, results
from mmsbgen.sampler.saved.result_options import ResultOptions

#: Most entries of a sparse row that stands for a dense one.
_ENTRIES = 64
#: Moves and new vertices since the last full run, by vertices, or changes, by links, above which another one is due.
_MOST_MOVES = 0.2
#: Most vertices that moved whose ids are in the record.
_MOST_NAMED = 1000


def update(
    results: str | os.PathLike[str],
    add: Any = None,
    remove: Any = None,
    *,
    graph: Any = None,
    out: str | os.PathLike[str] | None = None,
    device: str | None = None,
    database: str | Path | None = None,
) -> Detection:
    """Update the results of :func:`mmsbgen.detect` after links were added or removed.

    Rows of memberships start where they were; those around the change are swept until they rest, without noise.  New
    vertices start at the mean of their neighbours.  Held-out pairs stay held out, and the same shares of added links
    are.  ``record["update"]`` says how much changed and whether a full run is due.

    Args:
        results: the folder that ``detect(out=...)`` or ``mmsbgen detect -o`` wrote, or an earlier update.
        add: links to add, any input of :func:`mmsbgen.graph.as_graph`, or none; new ids become vertices.
        remove: links to remove, likewise.
        graph: the graph of the results, if it is no longer where the run read it.
        out: folder for the new results; those in ``results`` are replaced by default.
        device: a device for :func:`mmsbgen.backends.open_device`; the best one by default.
        database: path or URL of the tuning database; the user's own by default.

    Raises:
        InputError: if the graph is not there, if a link to remove is not in it, or for results of other programs.
        DeviceMemoryError: if the rows do not fit.
    """
    if not isinstance(results, str | os.PathLike):
        raise InputError(f"results is a {type(results).__name__}: give the folder that the run wrote")
    added, removed = (None if _is_empty(one) else as_graph(one) for one in (add, remove))
    given = None if graph is None else as_graph(graph)
    folder = Path(results)
    place = folder if out is None else Path(out)
    found = perform_update(UpdateRequest(folder, added, removed, given, place, device, database))
    return Detection.load(place) if found is None else found


def _is_empty(links: Any) -> bool:
    """Whether there are no links, as of a day without changes."""
    try:
        return links is None or (not isinstance(links, str) and len(links) == 0)
    except TypeError:  # it has no length
        return False


@dataclass(frozen=True)
class UpdateRequest:
    """One update; see :func:`update`.  ``on_message`` is called with messages for people."""

    results: Path
    add: Graph | None
    remove: Graph | None
    graph: Graph | None
    out: Path
    device: str | None = None
    database: str | Path | None = None
    on_message: Callable[[str], None] = lambda text: None


def perform_update(request: UpdateRequest) -> Detection | None:
    """Carry out an update; None if no link changes, and the results stand.

    Files are replaced in one step at its end, so that an interruption changes nothing.
    """
    whole = holds_whole_rows(request.results)
    with ThreadPoolExecutor(1) as beside:
        ready = beside.submit(ready_device, request.device, request.database)
        found, record = read_run(request.results, top=_ENTRIES)
        if record.get("command", "detect") != "detect":
            raise InputError(f"{request.results} is of `mmsbgen {plain(record['command'])}`: give results of detect")
        _refuse_loss(request)
        before = found.memberships
        change, parts = _changed(request, record)
    for text in parts.warnings:
        request.on_message(f"{text[:1].upper()}{text[1:]}.")
    if not change.ends.size:
        request.on_message("No link changes, and the results stand.")
        _copy(request, record["graph"]["digest"])
        return None
    if not (request.out.exists() and request.out.samefile(request.results)):
        _keep_others(request, record["graph"]["digest"], parts.graph.digest)
    for text in result_folder.replaced(request.out, record["graph"]["digest"]):
        request.on_message(text)
    options, info, rule = _options(record, before), ready.result(), record["rule"]
    top = ResultOptions.top if whole else before.indices.shape[1]
    asked = Request({}, rule=rule["name"], threshold=rule["threshold"], top=top, whole=whole)
    plan = planned(parts, options, info, asked)
    needs = plan.require(told_bytes(plan.shape))
    request.on_message(f"{plain(parts.graph.name)} on {info.name} ({info.platform}): {needs}.")
    with ExitStack() as stack:
        stack.enter_context(writable_folder(request.out))
        device = stack.enter_context(opened(info))
        runtime = stack.enter_context(opened_runtime(device, MMSB, request.database))
        sampler = Sampler(parts, options, runtime, None, plan)
        stack.callback(sampler.close)
        begin, others = time.monotonic(), []
        with stage("sweeping around the change"):
            for chain in before.others:
                start_from(sampler, chain, change)
                sweep_locally(sampler, change.ends)
                others.append(stored_memberships(sampler, top))
            start_from(sampler, before, change)
            trace: Trace = [evaluation(sampler, 0.0)]
            done = sweep_locally(sampler, change.ends)
            trace.append(evaluation(sampler, time.monotonic() - begin))
        seconds = time.monotonic() - begin
        finished = FinishedRun(sampler, trace, seconds, StabilityWatch(), [], None, others=tuple(others))
        published = publish(finished, CheckedRequest(asked, options, None))
        _note(published.record, record, change, done)
        all_rows = sampler if whole else None
        results.write(request.out, published.memberships, published.cover, published.record, all_rows, parts)
    return published


def _refuse_loss(request: UpdateRequest) -> None:
    """Raise :class:`InputError` if a checkpoint, or files of others, would be lost."""
    result_folder.keep_foreign(request.out, "name another folder with -o")
    graph, saved = request.out / result_folder.GRAPH_FILE, request.out / CHECKPOINT
    if graph.exists() and not is_graph_archive(graph):
        raise InputError(f"{graph} is not of an update, and would be lost: name another folder with -o")
    if saved.exists():
        raise InputError(f"{saved} belongs to the graph before the change: name another folder with -o, or remove it")


def _keep_others(request: UpdateRequest, digest: str, *more: str) -> None:
    """Raise :class:`InputError` if there are results of another graph than these, and no update of the first."""
    there = result_folder.record_in(request.out)
    if there is None or (there.get("update") or {}).get("of") != digest:
        result_folder.keep_others(request.out, digest, *more, remedy="name another folder")


def _copy(request: UpdateRequest, digest: str) -> None:
    """Put the results as they are into the folder that was asked for."""
    if request.out.exists() and request.out.samefile(request.results):
        return
    _keep_others(request, digest)
    with writable_folder(request.out), FileTransaction() as together:
        for name in (result_folder.GRAPH_FILE, *reversed(result_folder.FILES)):
            if (request.results / name).is_file():
                write_bytes(request.out / name, (request.results / name).read_bytes(), together)
            else:
                (request.out / name).unlink(missing_ok=True)  # that of another update


def _changed(request: UpdateRequest, record: dict[str, Any]) -> tuple[Change, Split]:
    """The change, and the split of the graph after it."""
    options, archive = Options.from_dict(record["options"]), request.results / result_folder.GRAPH_FILE
    if record.get("update") is not None:
        if not archive.is_file():
            raise InputError(
                f"{archive} is missing, which has the held-out pairs of these results: run `mmsbgen detect` anew"
            )
        before = split_of_archive(archive, options.seed)
    else:
        graph, why = (request.graph, "") if request.graph is not None else graph_of_run(request.results)
        if graph is None:
            remedy = "give it with --graph (graph= in Python)"
            raise InputError(f"the graph of {request.results} is needed, and {why}: {remedy}")
        held = {name: one["links"] if one else 0 for name, one in record["held_out"].items()}
        before = drawn_split(graph, as_drawn(options, held, record["graph"]["links"]))
    for one in (before.graph, request.graph):
        if one is not None and one.digest != record["graph"]["digest"]:
            raise InputError(
                f"{plain(one.name)} is another graph than that of the results in {request.results}: give theirs"
            )
    change = changed_graph(replace(before.graph, name=record["graph"]["name"]), request.add, request.remove)
    if change.graph.ids.dtype.kind != before.graph.ids.dtype.kind:
        request.on_message("Ids are text from now on, as not all of them are integers.")
    place = str((request.out / result_folder.GRAPH_FILE).absolute())
    change = replace(change, graph=replace(change.graph, file=place))
    n_links = change.graph.n_links
    return change, carried_split(before, change, options.held_out_share(n_links), options.test_share(n_links))


def _options(record: dict[str, Any], before: Memberships) -> Options:
    """Options of sweeps over sparse rows with the model of the run."""
    run = Options.from_dict(record["options"])
    enough = next((entries for entries in (8, 16, 32) if entries >= before.k), _ENTRIES)
    return Options(
        n_communities=before.k,
        rows="sparse",
        entries=run.entries if run.sparse else enough,
        start="random",
        chains=1 + len(before.others),
        nonlink_weight=run.nonlink_weight,
        **{name: getattr(run, name) for name in ("seed", "validation", "test", "delta", "eta", "alpha", "dtype")},
    )


def _note(record: dict[str, Any], before: dict[str, Any], change: Change, done: LocalSweeps) -> None:
    """Put the entry ``update`` into the record, and its text in the place of that on convergence."""
    full_run = {name: (before["held_out"]["validation"] or {}).get(name) for name in ("auc", "auc_error")}
    started: dict[str, Any] = {
        "updates": 0,
        "moves_since_full_run": 0,
        "changes_since_full_run": 0,
        "full_run": full_run,
    }
    earlier = before.get("update") or started
    moved_ids = change.graph.ids[np.setdiff1d(done.moved, change.new_vertices)]
    n, new, moved = change.graph.n_vertices, len(change.new_vertices), len(moved_ids)
    count = len(change.added) + len(change.removed)
    moves, changes = earlier["moves_since_full_run"] + moved + new, earlier["changes_since_full_run"] + count
    shares = moves / n, changes / change.graph.n_links
    due = _due(*shares, record["held_out"]["validation"], earlier["full_run"])
    more = (f", {new} new" if new else "") + (f", {done.moving} still moving" if done.moving else "")
    text = (
        f"Updated after {plural(count, 'change')}: {done.touched} of {plural(n, 'vertex', 'vertices')} were swept, "
        f"{moved} moved{more}."
    )
    record["update"] = {
        "updates": earlier["updates"] + 1,
        "of": before["graph"]["digest"],
        "added": len(change.added),
        "removed": len(change.removed),
        "already_there": change.known,
        "new_vertices": new,
        "rounds": done.rounds,
        "swept": done.touched,
        "row_updates": done.updates,
        "moved": moved,
        "moved_ids": moved_ids[:_MOST_NAMED].tolist(),
        "still_moving": done.moving,
        "moves_since_full_run": moves,
        "changes_since_full_run": changes,
        "full_run": earlier["full_run"],
        "full_run_due": due,
        "text": text if due is None else f"{text} A full run is due: {due}.",
    }
    record["convergence"] |= {"settled": None, "text": record["update"]["text"]}


def _due(moves: float, changes: float, now: dict[str, Any] | None, full_run: dict[str, Any]) -> str | None:
    """Why a full run is due, or None.  AUC does not depend on density, which a change may change."""
    if moves > _MOST_MOVES:
        return f"since the last one, moves and new vertices come to {moves:.0%} of all vertices"
    if changes > _MOST_MOVES:
        return f"since the last one there were {changes:.0%} as many changes as links"
    known = now is not None and None not in (*full_run.values(), now["auc"], now["auc_error"])
    if not known or now is None:
        return None
    error = (now["auc_error"] ** 2 + full_run["auc_error"] ** 2) ** 0.5
    if now["auc"] < full_run["auc"] - 2 * error:
        return f"AUC of validation pairs is {now['auc']:.3f}, and was {full_run['auc']:.3f} after the last one"
    return None
