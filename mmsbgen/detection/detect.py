"""Detection from Python: the same path as ``mmsbgen detect``, from a request to communities in seven steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any, Literal

from mmsbgen.backends import DeviceInfo, find_device
from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.db.selection.index import SHIPPED, shipped_groups
from mmsbgen.detection.check_request import check_request
from mmsbgen.detection.load_graph import load_graph
from mmsbgen.detection.plan_chain import fitting_plan
from mmsbgen.detection.ranks.forming import check_shared, open_ranks
from mmsbgen.detection.request import Detection, Request
from mmsbgen.graph import ReadingOptions
from mmsbgen.kernels.runtime import is_asked
from mmsbgen.sampler.saved.result_options import ResultOptions
from mmsbgen.sampler.starts.background_search import searcher_ahead, searching_device, searching_for_starts

__all__ = ["Detection", "Request", "detect", "perform"]


def detect(
    graph: Any,
    n_communities: int | Literal["auto"] | None = None,
    *,
    random_state: int | None = None,
    device: str | None = None,
    database: str | Path | None = None,
    rule: str = ResultOptions.rule,
    threshold: float | None = None,
    top: int = ResultOptions.top,
    whole: bool = False,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    overwrite: bool = False,
    columns: Sequence[Any] | None = None,
    weights: str | None = None,
    vertices: str | Path | Iterable[Any] | None = None,
    format: str = "auto",
    **options: Any,
) -> Detection:
    """Detect overlapping communities.

    By default the chain optimises; the options ``sample_sweeps`` and ``noise`` make it sample.

    Args:
        graph: any input of :func:`mmsbgen.graph.as_graph`: the path of a file, an ``(E, 2)`` array or list of
            pairs of ids, a scipy.sparse matrix, a networkx or igraph graph, an edge table of pandas, polars or pyarrow,
            or a :class:`mmsbgen.graph.Graph`.
        n_communities: K, the number of communities of the model; by default, or with ``"auto"``, held-out pairs choose
            it.
        random_state: seed, 0 by default; the same seed on the same device with the same configurations gives the
            same bits.
        device: a device for :func:`mmsbgen.backends.open_device`, such as ``"opencl:0"``; the best one by default.
        database: path or URL of the tuning database; the user's own by default.
        rule: how memberships become communities: ``evidence``, ``share``, ``threshold``, ``link`` or ``top``.
        threshold: the rule's threshold; each rule has its own default.
        top: number of largest entries of each row of pi that ``Detection.memberships`` stores.
        whole: whether ``memberships.npz`` holds all of pi.
        out: a folder to write memberships, communities and run record into.
        resume: a checkpoint of an earlier run on the same graph, or the folder that holds it.
        overwrite: whether a checkpoint of another run in ``out``, results of another graph, or files that no run wrote,
            may be replaced.
        columns: the two columns of an edge table that hold the ends of the links, and a third that holds weights.
        weights: ``"ignore"`` counts every row as a link, ``"threshold=X"`` those of weight X or more.
        vertices: a file with one id a line, or ids; those that have no link become vertices too.
        format: format of the file, one of :data:`mmsbgen.graph.reading_options.FORMATS`; found by default.
        **options: further fields of :class:`mmsbgen.sampler.options.options.Options`.

    Raises:
        InputError: for invalid values.
        DeviceMemoryError: if the state does not fit; raised before anything is allocated.
    """
    given = dict(options)
    devices = options.get("devices", device)
    if devices is not None and ("devices" in options or not isinstance(device, str)):
        raise InputError(
            f"{devices!r}: Python takes one device, as in device='cuda:0'; several share a run of the command line: "
            "mmsbgen detect GRAPH --devices A,B"
        )
    for name, value in (("n_communities", n_communities), ("seed", random_state)):
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
        reading=ReadingOptions(format, columns, weights, vertices),
    )
    return perform(graph, request)


def perform(source: Any, request: Request) -> Detection:
    """Carry out a :class:`Request`.

    All input is checked before sampling begins and before a file is written. Raises the errors of :func:`detect`.
    """
    checked = check_request(request)
    if request.world is not None:
        open_ranks(request.world)
    # No search for starts before K is known or when a chain is resumed.
    seeks = not checked.k_auto and checked.checkpoint is None
    with searcher_ahead(source, checked.options) if seeks else nullcontext() as ahead:
        with ThreadPoolExecutor(1) as beside:
            found = beside.submit(ready_device, request.device, request.database)
            parts = load_graph(source, checked)
        info = found.result()
        # With ``-k auto`` it needs the open device.
        plan = None if checked.k_auto else fitting_plan(parts, checked.options, info, request)
        if request.world is not None:
            check_shared(checked.options if plan is None else plan.options, checked.k_auto)
        device = searching_device(parts, info, plan.needs) if plan is not None else None
    with searching_for_starts(parts, checked.options, device, ahead) if seeks else nullcontext() as sought:
        if sought is not None:
            # What results need of a large graph, while its starts are sought.
            Thread(target=lambda: parts.graph.digest, daemon=True).start()
        from mmsbgen.detection.publish import publish
        from mmsbgen.detection.run_chains import run_chains
        from mmsbgen.detection.start_chain import built_chain, start_chain

        with built_chain(parts, info, plan, checked, sought) as built:
            with StopRequest().listening() as stop:
                started = start_chain(built, checked, stop)
                finished = run_chains(built, started, checked, stop)
            return publish(finished, checked)


def ready_device(device: str | None, database: str | Path | None) -> DeviceInfo:
    """Find a device, and load what a run on it needs, which takes a second, while the graph is read.

    Raises the errors of :func:`mmsbgen.backends.find_device`.
    """
    with ThreadPoolExecutor(1) as beside:  # a driver may take as long to begin
        found = beside.submit(find_device, device)
        import scipy.sparse  # noqa: F401

        from mmsbgen.detection import publish, run_chains, start_chain  # noqa: F401

        if is_asked(database):
            from mmsbgen.db.store import tuning_store  # noqa: F401
    info = found.result()
    shipped_groups(SHIPPED, info.kind)
    return info
