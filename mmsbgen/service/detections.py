"""Results of detections, read from the files of their jobs."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.jobs import Job, Queue
from mmsbgen.sampler.diagnostics.verdict import of_record
from mmsbgen.service.models.job_models import Community, DetectionResult, Member, MemberPage, VerdictModel, Vertex

__all__ = ["DetectionView", "DetectionViews"]

MOST_BYTES = 256 << 20
"""Larger results are for download only."""
MOST_COMMUNITIES = 1000
MOST_OVERLAPPING = 100
"""Communities among which shared members are counted."""
_KEPT = 4


@dataclass(frozen=True)
class DetectionView:
    """The results of one job.

    Attributes:
        record: The run record.
        members: Vertex ids of every community, the largest community first.
        ids: Ids ``[N]`` of all vertices.
        indices: Communities of the model ``[N, r]`` in which each vertex has its largest memberships.
        shares: These memberships ``[N, r]``.
        beta: Strengths ``[K]`` of the model's communities.
    """

    record: dict[str, Any]
    members: list[list[str]]
    ids: npt.NDArray[Any]
    indices: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]

    @cached_property
    def labels(self) -> Sequence[int]:
        """The community of the model behind each community."""
        found: list[int] = self.record["communities"]["labels"]
        return found

    @cached_property
    def place(self) -> dict[str, int]:
        """The row of a vertex, by its id."""
        return {str(name): row for row, name in enumerate(self.ids.tolist())}

    @cached_property
    def number(self) -> dict[int, int]:
        """The number of a community, by its number in the model."""
        return {label: number for number, label in enumerate(self.labels)}

    @cached_property
    def result(self) -> DetectionResult:
        """The result without the members."""
        record = self.record
        told, verdict = record["communities"], of_record(record)
        listed = zip(self.members[:MOST_COMMUNITIES], self.labels, strict=False)
        return DetectionResult(
            vertices=record["graph"]["vertices"],
            links=record["graph"]["links"],
            n_communities=int(self.beta.size),
            coverage=told["coverage"],
            overlap=told["overlap"],
            communities=[
                Community(number=number, size=len(members), strength=float(self.beta[label]))
                for number, (members, label) in enumerate(listed)
            ],
            count=told["count"],
            shared=_shared(self.members[:MOST_OVERLAPPING]),
            trace=record["trace"],
            held_out=record["held_out"],
            verdict=VerdictModel(kind=verdict.kind, sentence=verdict.sentence),
            convergence=record["convergence"],
            stage_seconds=record["stage_seconds"],
            device=record["device"]["name"],
        )

    def page(self, number: int, offset: int, limit: int) -> MemberPage:
        """A page of a community's members.  Raises ``InputError`` if there is no such community."""
        if not 0 <= number < len(self.members):
            raise InputError(f"there is no community {number}: they are numbered from 0 to {len(self.members) - 1}")
        members, label = self.members[number], self.labels[number]
        shown = members[offset : offset + limit]
        after = offset + limit
        return MemberPage(
            number=number,
            size=len(members),
            members=[Member(id=name, share=self._share(name, label)) for name in shown],
            next=after if after < len(members) else None,
        )

    def vertex(self, name: str) -> Vertex | None:
        """The memberships of a vertex; None if there is no vertex with that id."""
        row = self.place.get(name)
        if row is None:
            return None
        pairs = zip(self.indices[row].tolist(), self.shares[row].tolist(), strict=True)
        return Vertex(id=name, memberships=[(self.number.get(label, -1), share) for label, share in pairs])

    def _share(self, name: str, label: int) -> float | None:
        row = self.place[name]
        at = np.flatnonzero(self.indices[row] == label)
        return float(self.shares[row, at[0]]) if at.size else None


class DetectionViews:
    """A cache of the most recently requested results."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._kept: OrderedDict[str, DetectionView] = OrderedDict()
        self._lock = Lock()

    def get(self, job: Job) -> DetectionView:
        """The results of a finished detection.  Raises ``InputError`` for any other job, and for large results."""
        if job.kind != "detect" or job.state != "done":
            raise InputError(
                f"the job {job.id} is a {job.kind} job and {job.state}: only a detection that is done has these"
            )
        size = sum(told["bytes"] for told in job.outputs.values())
        if size > MOST_BYTES:
            raise InputError(f"the results have {size} bytes: download the files, at most {MOST_BYTES} are shown")
        with self._lock:  # one at a time, as they may be large
            if job.id not in self._kept:
                self._kept[job.id] = self._read(job.id)
            self._kept.move_to_end(job.id)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[job.id]

    def _read(self, job: str) -> DetectionView:
        def file(name: str) -> bytes:
            return b"".join(self._queue.read(job, "output", name))

        # Not splitlines(): an id may contain characters such as U+2028.
        lines = file("communities.txt").decode("utf-8").split("\n")[:-1]
        try:
            archive = np.load(io.BytesIO(file("memberships.npz")), allow_pickle=False)
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise InputError(f"the memberships of the job {job} cannot be read: {error}") from error
        with archive:
            return DetectionView(
                json.loads(file("run.json")),
                [line.split("\t") for line in lines],
                archive["ids"],
                archive["communities"].astype(np.int64),
                archive["shares"].astype(np.float64),
                archive["beta"].astype(np.float64),
            )


def _shared(members: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
    """Pairs of communities with the number of vertices in both, largest number first."""
    of: defaultdict[str, list[int]] = defaultdict(list)
    for number, names in enumerate(members):
        for name in names:
            of[name].append(number)
    counts: Counter[tuple[int, int]] = Counter()
    for numbers in of.values():
        if len(numbers) > 1:
            counts.update(combinations(numbers, 2))
    return [(a, b, count) for (a, b), count in counts.most_common()]
