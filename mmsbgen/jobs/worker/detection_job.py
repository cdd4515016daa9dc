"""Detection jobs: the input file ``graph``, and keywords of :func:`mmsbgen.detect` as payload."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from mmsbgen.backends.device_lock import having_device
from mmsbgen.base.declared_options import options_of
from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import plain_json
from mmsbgen.detection.detect import Request, perform
from mmsbgen.detection.run_chains import CheckpointError
from mmsbgen.graph import GraphWarning, ReadingOptions, load_edge_list
from mmsbgen.jobs.worker.task import JobOutcome, JobReporter, StoppedError, Task, Throttle, known_keys
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.schedule import Schedule
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved.result_options import ResultOptions

_OPTIONS = {field.name for field in fields(Options)}
_RESULTS = options_of(ResultOptions)
_READING = ("columns", "weights")
_LONGEST_NAME = 200
_METRICS = ("iteration", "updates_per_vertex", "seconds", "phase", "auc", "perplexity", "log_likelihood")
_FILES = ("communities.txt", "memberships.npz", "run.json")


def checked(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The sampler's options in a payload, without ``n_communities`` if that is "auto" or missing.

    Keys: ``n_communities`` (a number or "auto"), fields of :class:`Options` and :class:`ResultOptions`, the graph's
    ``name`` for records, and the texts ``columns`` and ``weights``, which say how it is read.  Raises
    :class:`InputError` that names the invalid key or value.
    """
    known_keys(payload, {"name", *_READING, *_OPTIONS, *_RESULTS}, "detect")
    given = {name: value for name, value in payload.items() if name in _OPTIONS}
    if given.get("n_communities", "auto") in (None, "auto"):
        given.pop("n_communities", None)
    name = payload.get("name", "graph")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise InputError(f"name={name!r}: it must be a text of at most {_LONGEST_NAME} characters")
    _results(payload)
    _reading(payload)
    try:
        if given.get("schedule") is not None:
            given["schedule"] = Schedule(**given["schedule"])
        if "eta" in given:
            given["eta"] = tuple(given["eta"])
        Options(**{"n_communities": 2, **given})
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"an option of the detection has the wrong type: {error}") from error
    return given


def _results(payload: Mapping[str, Any]) -> ResultOptions:
    return ResultOptions(**{name: payload[name] for name in _RESULTS if payload.get(name) is not None})


def _reading(payload: Mapping[str, Any]) -> ReadingOptions:
    given = {name: payload.get(name) for name in _READING}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InputError(f"{name}={value!r}: it must be a text")
    return ReadingOptions.of_text(**given)


def run(task: Task, tells: JobReporter) -> JobOutcome:
    """Run a detection, from the checkpoint of an earlier attempt if there is a usable one.

    Raises :class:`StoppedError` when asked to stop.
    """
    options = checked(task.payload)
    throttle = Throttle()

    def progress(sampler: Sampler, trace: Trace) -> None:
        if throttle.ready() or sampler.iteration >= sampler.limit:
            tells.progress(_progress(sampler, trace))

    def making(what: str, share: float) -> None:
        if throttle.ready():
            tells.progress({"making": what, "share": share})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        reading = _reading(task.payload)
        graph = load_edge_list(task.inputs["graph"], reading.columns, reading.weights)
    graph = replace(graph, name=task.payload.get("name", "graph"), reading=reading.given())
    for warning in caught:
        tells.message(str(warning.message))
    resumes = _usable(task, tells)
    request = Request(
        {} if resumes else options,
        device=task.device,
        database=task.database,
        **asdict(_results(task.payload)),
        out=task.folder,
        resume=task.resume if resumes else None,
        checkpoint_seconds=task.checkpoint_seconds,
        on_progress=progress,
        on_making=making,
        on_message=tells.message,
        on_detail=tells.message,
        on_checkpoint=tells.checkpoint,
    )
    with having_device(task.hardware, lambda: tells.message("Waiting for another measurement on the device.")):
        try:
            found = perform(graph, request)
        except CheckpointError as error:  # the next attempt goes on from the checkpoint before
            tells.message(str(error))
            raise StoppedError from error
    if found.interrupted:
        raise StoppedError
    record, cover = found.record, found.cover
    result = {
        "communities": len(cover.members),
        "n_communities": found.memberships.k,
        "coverage": cover.coverage,
        "overlap": cover.overlap,
        **{name: record[name] for name in ("graph", "iterations", "seconds", "held_out", "verdict", "convergence")},
        "device": record["device"]["name"],
    }
    # With the graph, so that exports and another run need no second upload.
    files = {"graph": task.inputs["graph"], **{name: task.folder / name for name in _FILES}}
    return JobOutcome(plain_json(result), files)


def _usable(task: Task, tells: JobReporter) -> bool:
    """Whether there is a checkpoint from which this version can resume."""
    if task.resume is None:
        return False
    try:
        checkpoints.load(task.resume)
    except InputError as error:
        tells.message(f"Beginning anew: {error}")
        return False
    return True


def _progress(sampler: Sampler, trace: Trace) -> dict[str, Any]:
    """Progress of a chain: iteration, share of the iteration limit, and the last evaluation."""
    last = trace[-1] if trace else {}
    told = {name: last[name] for name in _METRICS if name in last} | {
        "iteration": sampler.iteration,
        "of": sampler.limit,
        "share": sampler.iteration / sampler.limit if sampler.limit else 1.0,
    }
    found: dict[str, Any] = plain_json(told)
    return found
