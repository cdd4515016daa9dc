"""Request and result of :func:`mmsbgen.detection.detect.detect`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.ranks.world import World
from mmsbgen.base.id_text import plural
from mmsbgen.base.user_files import check_name
from mmsbgen.export import Clustering, Exports
from mmsbgen.export.run_folder import read_run
from mmsbgen.graph import Graph, ReadingOptions, as_graph
from mmsbgen.graph.ids import numbered_pairs
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.diagnostics.verdict import Verdict, of_record
from mmsbgen.sampler.saved.result_options import ResultOptions

#: The checkpoint of a run, in the folder of its results.
CHECKPOINT = "checkpoint.npz"


def checkpoint_in(place: Path) -> Path:
    """Path of the checkpoint: ``place`` itself, or the checkpoint in it if it is a folder."""
    return place / CHECKPOINT if place.is_dir() else place


@dataclass(frozen=True)
class Detection(Exports):
    """Result of a run.

    Attributes:
        memberships: the largest entries of every row of pi; column c is that of community c.
        cover: the communities as vertex numbers; ``communities`` has them as ids, largest first.
        trace: one mapping per evaluation.
        record: the run record: graph, problem, seed, configurations and their tiers, timings, device, versions.
        interrupted: whether the run was stopped before its end.
        checkpoint: the checkpoint to resume an interrupted run from, if any.
        graph: the input as vertices and links.
    """

    memberships: Memberships
    cover: Cover
    trace: Trace
    record: dict[str, Any]
    interrupted: bool = False
    checkpoint: Path | None = None
    graph: Graph | None = None

    @classmethod
    def load(cls, folder: str | os.PathLike[str], graph: Any = None, top: int = 16) -> Detection:
        """The result that ``mmsbgen detect -o`` or ``mmsbgen.detect(out=...)`` left in ``folder``.

        Args:
            folder: the folder of results.
            graph: the graph of the run, as :func:`mmsbgen.detect` takes it; some exports need it.
            top: number of largest shares of a vertex to read if the file holds all of pi.

        Raises:
            InputError: for a folder without results, files that do not belong together, or another graph.
        """
        found, record = read_run(Path(folder), None if graph is None else as_graph(graph), top)
        return cls(found.memberships, found.cover, record["trace"], record, record["interrupted"], graph=found.graph)

    def __repr__(self) -> str:
        cover, state = self.cover, "interrupted, " if self.interrupted else ""
        count = plural(len(cover.members), "community", "communities")
        return (
            f"<Detection: {count} of {cover.n_vertices} vertices, K={self.memberships.k}, {state}{self.verdict.kind}>"
        )

    @property
    def verdict(self) -> Verdict:
        """Whether communities were found."""
        return of_record(self.record)

    @property
    def communities(self) -> list[list[Any]]:
        """Members' ids of every community, largest first."""
        ids = self.memberships.ids
        return [ids[members].tolist() for members in self.cover.members]

    @overload
    def predict_links(self, pairs: Any, interval: None = None, calibrated: bool = True) -> npt.NDArray[np.float64]: ...

    @overload
    def predict_links(
        self, pairs: Any, interval: float, calibrated: bool = True
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...

    def predict_links(self, pairs: Any, interval: float | None = None, calibrated: bool = True) -> Any:
        """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of ids.

        It is calibrated by the run's validation pairs where these suffice (``record["calibration"]``).  That of the
        model, eq. (2.2), is had with ``calibrated=False``.  A vertex paired with itself counts as two that
        have its memberships.

        With ``interval``, a probability such as 0.9, returns posterior means of p and equal-tailed intervals ``[P, 2]``
        (:meth:`mmsbgen.sampler.diagnostics.memberships.Memberships.link_intervals`), for a run that sampled.

        Raises :class:`InputError` for an id that is not in the graph, and for an interval without samples.
        """
        m, numbered = self.memberships, numbered_pairs(self.memberships.ids, pairs)
        if interval is not None:
            return m.link_intervals(numbered, interval, calibrated)
        return m.link_probabilities(numbered, calibrated=calibrated)

    def exported(self) -> Clustering:
        """The result in the form that exports use."""
        return Clustering(self.memberships, self.cover, self.graph, dict(self.record["rule"]))


@dataclass
class Request:
    """One detection: its options, device, outputs and callbacks.

    Attributes:
        options: the given fields of :class:`mmsbgen.sampler.options.options.Options`. Without ``n_communities``, or if
            it is ``"auto"``, K is chosen by held-out pairs (:func:`mmsbgen.sampler.run.choose_k.choose_k`).
        device: name of the device; the best one by default.
        database: path or URL of the tuning database.
        rule: rule that turns memberships into communities.
        threshold: threshold of the rule.
        top: number of largest entries stored per row of pi.
        whole: write all of pi instead of the ``top`` largest entries of each row.
        out: folder for the results and the checkpoint. An existing checkpoint of another run, results of another
            graph, or files with such names that no run wrote, are refused without ``overwrite``.
        resume: checkpoint to resume, or the folder that holds it. Other options given must equal those of its run;
            only ``iterations`` may be larger.
        checkpoint_seconds: interval of checkpoints. One is also written on interruption and before communities are
            computed.
        keep_checkpoint: keep the checkpoint in ``out`` after the run has finished; inherited by a run that resumes it.
        overwrite: replace what ``out`` would refuse.
        configs: configurations by kernel, which take precedence over tuning records.
        fused: run many iterations of stars per launch. None: as the resumed run, else
            :func:`mmsbgen.sampler.chain.fused_loop.fused_by_default`.
        reading: how the graph is read.
        state: file for the checkpoint instead of the one in ``out``. It is kept, and a failed write is not an error.
        world: the ranks that share the sweeps, of which this process is the first; by default there are no others.
        on_progress: called after every launch.
        on_making: called with a description of the step after sampling and the share of it that is done.
        on_message: called with messages for people.
        on_detail: called with details for people who ask for them: configurations, and trials of starts and of K.
        on_checkpoint: called with the path of a checkpoint that was written.

    Raises:
        InputError: ``out`` or ``resume`` is a name that no file can have.
    """

    options: Mapping[str, Any]
    device: str | None = None
    database: str | Path | None = None
    rule: str = ResultOptions.rule
    threshold: float | None = None
    top: int = ResultOptions.top
    whole: bool = False
    out: Path | None = None
    resume: Path | None = None
    checkpoint_seconds: float = 300.0
    keep_checkpoint: bool = False
    overwrite: bool = False
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    fused: bool | None = None
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    state: Path | None = None
    world: World | None = None
    on_progress: Callable[[Sampler, Trace], None] | None = None
    on_making: Callable[[str, float], None] = lambda what, share: None
    on_message: Callable[[str], None] = lambda text: None
    on_detail: Callable[[str], None] = lambda text: None
    on_checkpoint: Callable[[Path], None] = lambda path: None

    def __post_init__(self) -> None:
        for place in (self.out, self.resume):
            if place is not None:
                check_name(place)
        self.resume = None if self.resume is None else checkpoint_in(self.resume)

    @property
    def saved(self) -> Path | None:
        """Path of the checkpoint that the run writes, if any."""
        return self.out / CHECKPOINT if self.state is None and self.out is not None else self.state

    @property
    def resumes_saved(self) -> bool:
        """Whether the run resumes the checkpoint that it will write."""
        saved, resume = self.saved, self.resume
        return saved is not None and resume is not None and saved.exists() and saved.samefile(resume)
