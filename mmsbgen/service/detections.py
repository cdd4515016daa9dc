"""Results of detections, read from the files of their jobs."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.job_records import Job
from mmsbgen.export.found import Clustering
from mmsbgen.export.run_folder import read_members, read_memberships
from mmsbgen.jobs.queue import Queue
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.diagnostics.verdict import of_record
from mmsbgen.scores.cover import words_of
from mmsbgen.scores.incidence import shared_members
from mmsbgen.service.models.job_models import Community, DetectionResult, Member, MemberPage, VerdictModel, Vertex

GRAPH = "graph"
"""Name of the file with the graph, of the input and of the result of a detection."""
MOST_BYTES = 256 << 20
"""Larger results are for download only."""
MOST_COMMUNITIES = 1000
MOST_OVERLAPPING = 100
"""Communities among which shared members are counted."""
_KEPT = 4


@dataclass(frozen=True)
class DetectionView:
    """The results of one job: the run record, and memberships and communities."""

    record: dict[str, Any]
    found: Clustering

    @cached_property
    def names(self) -> list[str]:
        """The id of every vertex, as text."""
        return words_of(self.found.memberships.ids)

    @cached_property
    def row(self) -> dict[str, int]:
        """The row of a vertex, by its id."""
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def result(self) -> DetectionResult:
        """The result without the members."""
        record, cover = self.record, self.found.cover
        told, verdict = record["communities"], of_record(record)
        listed = zip(cover.members[:MOST_COMMUNITIES], self.found.strengths.tolist(), strict=False)
        return DetectionResult(
            vertices=record["graph"]["vertices"],
            links=record["graph"]["links"],
            n_communities=self.found.memberships.k,
            **{name: told[name] for name in ("coverage", "overlap", "count")},
            **{name: record[name] for name in ("trace", "held_out", "convergence", "stage_seconds")},
            communities=[
                Community(number=number, size=len(members), strength=strength, background=number in cover.background)
                for number, (members, strength) in enumerate(listed)
            ],
            shared=_shared(cover),
            verdict=VerdictModel(kind=verdict.kind, sentence=verdict.sentence),
            device=record["device"]["name"],
        )

    def page(self, number: int, offset: int, limit: int) -> MemberPage:
        """A page of a community's members.  Raises ``InputError`` if there is no such community."""
        sets = self.found.cover.members
        if not 0 <= number < len(sets):
            raise InputError(f"there is no community {number}: they are numbered from 0 to {len(sets) - 1}")
        shown = sets[number][offset : offset + limit].tolist()
        after = offset + limit
        return MemberPage(
            number=number,
            size=len(sets[number]),
            members=[Member(id=self.names[row], share=self.found.shares(row)[number]) for row in shown],
            next=after if after < len(sets[number]) else None,
        )

    def vertex(self, name: str) -> Vertex | None:
        """The memberships of a vertex; None if there is no vertex with that id."""
        row = self.row.get(name)
        return None if row is None else Vertex(id=name, memberships=list(self.found.shares(row).items()))


class DetectionViews:
    """A cache of the most recently requested results."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._view = lru_cache(_KEPT)(self._read)
        self._lock = Lock()

    def get(self, job: Job) -> DetectionView:
        """The results of a finished detection.  Raises ``InputError`` for any other job, and for large results."""
        if job.kind != "detect" or job.state != "done":
            raise InputError(
                f"the job {job.id} is a {job.kind} job and {job.state}: only a detection that is done has these"
            )
        size = sum(told["bytes"] for name, told in job.outputs.items() if name != GRAPH)
        if size > MOST_BYTES:
            raise InputError(f"the results have {size} bytes: download the files, at most {MOST_BYTES} are shown")
        with self._lock:  # one at a time, as they may be large
            return self._view(job.id)

    def _read(self, job: str) -> DetectionView:
        def file(name: str) -> bytes:
            return b"".join(self._queue.read(job, "output", name))

        record = json.loads(file("run.json"))
        try:
            m = read_memberships(io.BytesIO(file("memberships.npz")), float(record["options"]["delta"]))
            members = read_members(file("communities.txt"), m.ids)
            background = tuple(record["communities"]["background"])
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
            raise InputError(f"the result of the job {job} cannot be read: {error}") from error
        return DetectionView(record, Clustering(m, Cover(tuple(members), len(m.ids), background)))


def _shared(cover: Cover) -> list[tuple[int, int, int]]:
    """Pairs of the largest communities with the number of vertices in both, largest number first."""
    shared = np.triu(shared_members(cover.members[:MOST_OVERLAPPING], cover.n_vertices), 1)
    pairs = np.argwhere(shared).tolist()
    return sorted(((a, b, int(shared[a, b])) for a, b in pairs), key=lambda found: -found[2])
