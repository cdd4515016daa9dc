"""Detection from Python: the same path as ``mmsbgen detect``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from mmsbgen.backends import Device, DeviceInfo, find_device, opened
from mmsbgen.base.atomic_files import writable_folder
from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.detection.request import RULE, TOP, Detection, Request
from mmsbgen.detection.resume import has_work, longer, options_of, resumed
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.graph import Split, as_graph, split
from mmsbgen.kernels.runtime import Runtime, by_tier
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.communities import checked_threshold, cover, entries_needed
from mmsbgen.sampler.diagnostics.convergence import Watch, convergence
from mmsbgen.sampler.diagnostics.evaluation import Trace, of_result
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run import checkpoint as checkpoints
from mmsbgen.sampler.run import result_folder, results
from mmsbgen.sampler.run.choose_k import Tried, choose_k
from mmsbgen.sampler.run.run import run
from mmsbgen.sampler.run.start_trials import choose, trials_told
from mmsbgen.sampler.starts.background_search import Sought, seeking

__all__ = ["RULE", "TOP", "Detection", "Request", "detect", "perform"]


def detect(
    graph: Any,
    n_communities: int | Literal["auto"] | None = None,
    *,
    random_state: int | None = None,
    device: str | None = None,
    database: str | Path | None = None,
    rule: str = RULE,
    threshold: float | None = None,
    top: int = TOP,
    whole: bool = False,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    overwrite: bool = False,
    columns: tuple[Any, Any] | None = None,
    **options: Any,
) -> Detection:
    """Detect overlapping communities.

    Args:
        graph: a path to an edge list, an ``(E, 2)`` array or list of pairs of ids, a scipy.sparse matrix, a networkx or
            igraph graph, an edge table of pandas, polars or pyarrow, or a :class:`mmsbgen.graph.Graph`: whatever
            :func:`mmsbgen.graph.as_graph` takes.
        n_communities: K, the number of communities of the model, or ``"auto"`` to let held-out pairs choose; needed
            unless a run is resumed.
        random_state: seed, 0 by default; the same seed on the same device with the same configurations gives the
            same bits.
        device: what :func:`mmsbgen.backends.open_device` takes, such as ``"opencl:0"``; the best one by default.
        database: path or URL of the tuning database; the user's own by default.
        rule: how memberships become communities: ``share``, ``threshold``, ``link`` or ``top``.
        threshold: of the rule; each has its default.
        top: largest entries of each row of pi that ``Detection.memberships`` keeps.
        whole: whether ``memberships.npz`` holds all of pi.
        out: a folder to write memberships, communities and run record into.
        resume: a checkpoint of an earlier run on the same graph, or the folder that it is in.
        overwrite: whether a checkpoint that another run left in ``out``, or files of no run, may be lost.
        columns: the two columns of an edge table that hold the ends of the links.
        **options: further fields of :class:`mmsbgen.sampler.options.options.Options`.

    Raises:
        InputError: for values that cannot be used.
        DeviceMemoryError: when the state does not fit, before anything is allocated.
    """
    given = dict(options)
    auto = n_communities == "auto"
    for name, value in (("n_communities", None if auto else n_communities), ("seed", random_state)):
        if name in options:
            raise InputError(f"{name} is given by the argument {'random_state' if name == 'seed' else name}")
        if value is not None:
            given[name] = value
    for name, place in (("out", out), ("resume", resume)):
        if place == "":
            raise InputError(f"{name}='': the name is empty; give one, or leave {name} out")
    request = Request(
        given,
        device,
        database,
        rule,
        threshold,
        top,
        whole,
        out=None if out is None else Path(out),
        resume=None if resume is None else Path(resume),
        overwrite=overwrite,
        k_auto=auto,
        columns=columns,
    )
    return perform(graph, request)


def perform(source: Any, request: Request) -> Detection:
    """Run a :class:`Request`: load, split, sample, and write what was asked for.

    Everything that can be refused is refused before sampling begins, and before a file is written.
    """
    top: Any = request.top
    if not isinstance(top, Integral) or top < 1:
        raise InputError(f"top={request.top}: at least one entry of each row is kept")
    checked_threshold(request.rule, request.threshold)
    if request.k_auto and request.resume is not None:
        raise InputError("-k auto starts a run; one that is resumed has its number of communities: leave -k out")
    checkpoint = checkpoints.load(request.resume) if request.resume else None
    _keeps_others(request)
    if checkpoint is not None and checkpoint.meta.get("kept") and _is_saved(request):
        # What was asked for once is not taken away by a run that goes on from it.
        request = replace(request, keep_checkpoint=True)
    options = resumed(checkpoint, request) if checkpoint else options_of(_with_k(request))
    strategies.strategy(options.mini_batch)
    graph = as_graph(source, columns=request.columns)
    if request.out is not None:
        results.words_for_files(graph.ids)
    if checkpoint is not None:
        checkpoints.belongs(checkpoint, graph)
        has_work(checkpoint, options, request)
        longer(checkpoint, options, request)
    if request.out is not None:
        for text in result_folder.replaced(request.out, checkpoint.meta["graph"] if checkpoint is not None else None):
            request.on_message(text)
    shares = {"validation": options.held_out_share(graph.n_links), "test": options.test_share(graph.n_links)}
    parts = split(graph, **shares, seed=options.seed)
    if dropped := graph.report.dropped():
        request.on_message(f"{graph.name}: {dropped}.")
    for text in parts.warnings:
        request.on_message(f"{text[:1].upper()}{text[1:]}.")
    if not request.k_auto and options.n_communities > graph.n_vertices:
        k, n = options.n_communities, graph.n_vertices
        request.on_message(f"K={k} is more than the graph's {n} vertices: some communities can only stay empty.")
    info = find_device(request.device)
    plan = None if request.k_auto else _planned(parts, options, info, request)
    with (
        # Where K is yet to be chosen, or a chain goes on, there is no start to look for.
        nullcontext() if plan is None or checkpoint is not None else seeking(parts, options) as sought,
        opened(info) as device,
        _runtime(device, request, checkpoint) as runtime,
        nullcontext() if request.out is None else writable_folder(request.out),
    ):
        tried: list[Tried] = []
        if plan is None:
            k, tried = _chosen_k(parts, options, runtime, request)
            options = replace(options, n_communities=k)
            plan = _planned(parts, options, info, request)
        fused = request.fused
        if checkpoint is not None and fused is None:
            fused = checkpoint.fused and device.info.backend == "cuda"
        sampler = Sampler(parts, options, runtime, fused, plan)
        try:
            return _sample(sampler, parts, request, checkpoint, tried, sought)
        finally:
            sampler.close()


def _planned(parts: Split, options: Options, info: DeviceInfo, request: Request) -> Plan:
    """What the run will be made of; tells what that needs, and refuses what does not fit, while nothing is allocated.

    The memory of the search for starts is counted too, so that it begins after this.
    """
    plan = Plan(parts, options, info)
    request.on_message(f"{parts.graph.name or 'graph'} on {info.name} ({info.platform}): {plan.require()}.")
    return plan


def _chosen_k(parts: Split, options: Options, runtime: Runtime, request: Request) -> tuple[int, list[Tried]]:
    """The number of communities that held-out pairs choose; each is tried by blocks, whatever the run will do."""
    # What makes stars says nothing of blocks; priors and the like hold for both.
    sizes: dict[str, Any] = {} if options.block else {"mini_batch_size": None, "n_partners": None, "schedule": None}
    blocks = replace(
        options,
        mini_batch="block",
        storage=STORAGES[0],
        iterations=None,
        noise=None,
        sample_sweeps=0,
        average=False,
        evaluate_every=None,
        **sizes,
    )

    told: set[int] = set()

    def make(k: int, seed: int) -> Sampler:
        chosen = replace(blocks, n_communities=k, seed=seed)
        plan = Plan(parts, chosen, runtime.device.info)
        needs = plan.require(runtime.device.allocated)
        if k not in told:
            request.on_message(f"K={k} {needs}.")
            told.add(k)
        return Sampler(parts, chosen, runtime, plan=plan)

    with StopRequest().listening() as stop:
        k, tried = choose_k(parts, make, options.seed, lambda text: request.on_message(f"{text}."), lambda: bool(stop))
    why = "the smallest within a standard error of the best" if len(tried) > 1 else "the only one that could be tried"
    request.on_message(f"Going on with K={k}, {why}.")
    return k, tried


def _keeps_others(request: Request) -> None:
    """Raise :class:`InputError` when the run would replace a checkpoint that it does not resume, or files of others."""
    saved = request.saved
    if request.overwrite:
        return
    if _is_saved(request):
        return
    if request.out is not None:
        result_folder.keep_foreign(request.out)
    if saved is None or not saved.exists():
        return
    raise InputError(
        f"{saved} is the checkpoint of another run, which would be lost: go on with that run by --resume {saved}, "
        "give it up by --overwrite, or name another folder"
    )


def _is_saved(request: Request) -> bool:
    """Whether the run resumes the checkpoint that it will write."""
    saved, resume = request.saved, request.resume
    return saved is not None and resume is not None and saved.exists() and saved.samefile(resume)


def _with_k(request: Request) -> dict[str, Any]:
    """The options that were given; where K is yet to be chosen, with one that stands in."""
    return {"n_communities": 2, **request.options} if request.k_auto else dict(request.options)


@contextmanager
def _runtime(device: Device, request: Request, checkpoint: checkpoints.Checkpoint | None) -> Iterator[Runtime]:
    with open_store(request.database, read_only=True) as store:
        if request.database is not None and store.missing:
            request.on_message(f"There is no tuning database at {store.location}: no records of yours are used.")
        # The same configurations give the same bits; those of another device are of no use here.
        here = checkpoints.device_name(device.info)
        same = checkpoint is not None and checkpoint.meta["fingerprint"].get("device") == here
        kept = checkpoint.configs if checkpoint is not None and same else {}
        yield Runtime(device, MMSB, Index(store), dict(request.configs), dict(kept))


def _sample(
    sampler: Sampler,
    parts: Split,
    request: Request,
    checkpoint: checkpoints.Checkpoint | None,
    tried: list[Tried],
    sought: Sought | None,
) -> Detection:
    choices = sampler.runtime.choices
    for line in by_tier(choices):
        request.on_message(f"Configurations, {line}.")
    if choices[MMSB.worth_tuning(sampler.problem)[0]].tier == "default":
        request.on_message("Nothing was tuned for this device yet; `mmsbgen tune` finds faster configurations.")
    saved = request.saved

    whole: list[Path] = []

    def keep(running: Sampler, so_far: Trace, seconds: float) -> None:
        if saved is None:
            return
        try:
            checkpoints.save(saved, running, so_far, seconds, request.keep_checkpoint)
        except InputError as error:
            if request.state is None and (running.iteration < running.limit or request.keep_checkpoint):
                raise
            # The results may still fit where the whole chain does not.
            request.on_message(f"Going on without a checkpoint: {error}")
            return
        whole.append(saved)
        request.on_checkpoint(saved)

    watch = Watch()
    with StopRequest().listening() as stop:
        trace, before = _begin(sampler, request, checkpoint, stop, sought)
        seconds = run(
            sampler,
            trace,
            on_progress=request.on_progress,
            on_checkpoint=None if saved is None else keep,
            checkpoint_seconds=request.checkpoint_seconds,
            checkpoint_at_end=True,
            stop=stop,
            watch=watch,
            seconds_before=before,
        )
    notes = {"tried": [asdict(one) for one in tried]} if tried else {}
    try:
        return _result(sampler, parts, request, trace, seconds, watch, notes)
    except BaseException as error:
        for place in whole[-1:] if request.state is None else ():
            error.add_note(f"The chain is kept: go on with --resume {place} -o {place.parent}")
        raise


def _begin(
    sampler: Sampler,
    request: Request,
    checkpoint: checkpoints.Checkpoint | None,
    stop: StopRequest,
    sought: Sought | None,
) -> tuple[Trace, float]:
    """Start or restore the chain; returns the trace and the seconds so far."""
    if checkpoint is None:
        begin = time.monotonic()
        choose(sampler, lambda: bool(stop), lambda text: request.on_message(f"{text}."), sought)
        for line in trials_told(sampler):
            request.on_message(line)
        return [], time.monotonic() - begin
    changed = checkpoints.differences(checkpoint, sampler)
    checkpoints.restore(checkpoint, sampler)
    request.on_message(
        f"Resumed after iteration {sampler.iteration}, bit for bit."
        if not changed
        else f"Resumed after iteration {sampler.iteration}; not bitwise, since these differ: {', '.join(changed)}."
    )
    return checkpoint.trace, float(checkpoint.meta["seconds"])


def _result(
    sampler: Sampler,
    parts: Split,
    request: Request,
    trace: Trace,
    seconds: float,
    watch: Watch,
    notes: dict[str, Any],
) -> Detection:
    threshold = checked_threshold(request.rule, request.threshold)
    needed = entries_needed(request.rule, threshold, sampler.shape.k)
    entries, links = min(max(needed, request.top), sampler.shape.k), parts.graph.links
    wide = results.memberships(sampler, entries, partial(request.on_making, "memberships"))
    making = partial(request.on_making, f"communities by the rule {request.rule}")
    found = cover(wide, links, request.rule, threshold, rows=row_source(sampler), tell=making)
    memberships = wide.first(request.top)
    interrupted = sampler.iteration < sampler.limit
    rule = {"name": request.rule, "threshold": threshold}
    held_out = {"validation": of_result(sampler, parts.validation), "test": of_result(sampler, parts.test)}
    notes = notes | {"held_out": held_out, "convergence": convergence(sampler, trace, wide, watch)}
    record = results.record(sampler, found, rule, trace, seconds, notes)
    if request.out is not None:
        results.write(request.out, memberships, found, record, sampler if request.whole else None)
    if request.state is None and request.saved is not None and not interrupted and not request.keep_checkpoint:
        request.saved.unlink(missing_ok=True)
    kept = request.saved if interrupted else None
    return Detection(memberships, found, trace, record, interrupted, kept, parts.graph)
