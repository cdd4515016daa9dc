"""What :func:`mmsbgen.detection.detect.detect` is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.detection.result_options import ResultOptions
from mmsbgen.export import Clustering, Exports
from mmsbgen.graph import Graph
from mmsbgen.graph.ids import numbered_pairs
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.communities import Cover, Memberships
from mmsbgen.sampler.diagnostics.evaluation import Trace

__all__ = ["CHECKPOINT", "RULE", "TOP", "Detection", "Request", "checkpoint_in"]

#: The checkpoint of a run, in the folder of its results.
CHECKPOINT = "checkpoint.npz"
#: Entries of a row of pi that are kept by default.
TOP: int = ResultOptions.top
#: The rule that makes communities of memberships.
RULE: str = ResultOptions.rule


def checkpoint_in(place: Path) -> Path:
    """The checkpoint that is meant by ``place``: that file, or the one in that folder."""
    return place / CHECKPOINT if place.is_dir() else place


@dataclass(frozen=True)
class Detection(Exports):
    """What a run found.

    ``memberships`` holds the largest entries of every row of pi; ``communities`` the members' ids, largest
    community first; ``trace`` one mapping an evaluation; ``record`` everything that tells how the result came
    about (graph, problem, seed, configurations and their tiers, timings, device, versions).  ``checkpoint`` is
    where an interrupted run can go on from, ``graph`` what was given, as vertices and links.  :class:`Exports` has what
    it can be turned into.
    """

    memberships: Memberships
    cover: Cover
    trace: Trace
    record: dict[str, Any]
    interrupted: bool = False
    checkpoint: Path | None = None
    graph: Graph | None = None

    @property
    def communities(self) -> list[list[Any]]:
        """Members' ids of every community, largest first."""
        ids = self.memberships.ids
        return [ids[members].tolist() for members in self.cover.members]

    def predict_links(self, pairs: Any) -> npt.NDArray[np.float64]:
        """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of ids, eq. (2.2), from the entries of pi that were kept.

        Raises :class:`InputError` for an id that is not in the graph.
        """
        return self.memberships.link_probabilities(numbered_pairs(self.memberships.ids, pairs))

    def exported(self) -> Clustering:
        """What the exports see of it."""
        return Clustering(self.memberships, self.cover, self.graph, dict(self.record["rule"]))


@dataclass
class Request:
    """One detection: where it runs, how it reports, what it writes.

    ``options`` are the fields of :class:`mmsbgen.sampler.options.options.Options` that were given.  ``out`` is the
    folder that receives the results, and a checkpoint every ``checkpoint_seconds``, on interruption and before
    communities are made of the chain; ``whole`` writes all of pi rather than the ``top`` largest entries of each row.
    A run that finishes leaves no checkpoint in ``out`` but with ``keep_checkpoint``, which a run that goes on from that
    one inherits; one that another run left there is refused unless it is the one to resume, or ``overwrite`` is set,
    and so are files under the names of results that no run has left there.  ``state`` is a file that receives the
    chain, as a checkpoint, in the place of that in ``out``; it stays, and a run that cannot write it goes on.
    ``resume`` is a checkpoint, or the folder that it is in, to go on from; options given beside it must be those of its
    run, only ``iterations`` may be more.  ``on_progress`` is called after every launch, ``on_making`` with what is made
    of the finished chain and the share of it that is done, ``on_message`` with plain-words lines, ``on_checkpoint``
    with a checkpoint that was written.  ``fused`` is whether many iterations of stars are made in one launch; None
    as :func:`mmsbgen.sampler.chain.fused_loop.fused_by_default` has it (a resumed run goes on as it was).  With
    ``k_auto`` the held-out pairs choose the number of communities (:func:`mmsbgen.sampler.run.choose_k.choose_k`);
    ``options`` need none then.  ``columns`` are those of an edge table (:func:`mmsbgen.graph.as_graph`).
    """

    options: Mapping[str, Any]
    device: str | None = None
    database: str | Path | None = None
    rule: str = RULE
    threshold: float | None = None
    top: int = TOP
    whole: bool = False
    out: Path | None = None
    resume: Path | None = None
    checkpoint_seconds: float = 300.0
    keep_checkpoint: bool = False
    overwrite: bool = False
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    fused: bool | None = None
    k_auto: bool = False
    columns: tuple[Any, Any] | None = None
    state: Path | None = None
    on_progress: Callable[[Sampler, Trace], None] | None = None
    on_making: Callable[[str, float], None] = lambda what, share: None
    on_message: Callable[[str], None] = lambda text: None
    on_checkpoint: Callable[[Path], None] = lambda path: None

    def __post_init__(self) -> None:
        self.resume = None if self.resume is None else checkpoint_in(self.resume)

    @property
    def saved(self) -> Path | None:
        """The checkpoint's place."""
        return self.out / CHECKPOINT if self.state is None and self.out is not None else self.state

    @property
    def resumes_saved(self) -> bool:
        """Whether the run resumes the checkpoint that it will write."""
        saved, resume = self.saved, self.resume
        return saved is not None and resume is not None and saved.exists() and saved.samefile(resume)
