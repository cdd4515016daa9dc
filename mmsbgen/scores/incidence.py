"""A cover as pairs of communities and vertices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_word

Ints = npt.NDArray[np.int64]


def communities_of(cover: Sequence[Collection[Any]], what: str) -> list[set[str]]:
    """Communities as sets of strings. Raises InputError for values that are not a cover."""
    if isinstance(cover, str | bytes):
        raise InputError(f"the {what} {cover!r} is a string; read a file by mmsbgen.scores.read_cover first")
    sets = []
    for number, community in enumerate(cover, start=1):
        if isinstance(community, str | bytes):
            raise InputError(f"community {number} of the {what}, {community!r}, is a string; give a list of ids")
        sets.append(set(map(canonical_word, community)))
        if not sets[-1]:
            raise InputError(f"community {number} of the {what} has no member; leave it out")
    if not sets:
        raise InputError(f"the {what} has no community; give at least one, which can be a single vertex")
    return sets


def incidence(members: Sequence[Ints], n_vertices: int) -> Any:
    """The incidence matrix of zeros and ones ``[N, C]``, int64, in CSR format, of sets of vertex numbers."""
    vertices = np.concatenate([np.zeros(0, np.int64), *members])
    communities = np.repeat(np.arange(len(members)), [len(one) for one in members])
    return _matrix(vertices, communities, (n_vertices, len(members)))


def _matrix(vertices: Ints, communities: Ints, shape: tuple[int, int]) -> Any:
    from scipy import sparse

    return sparse.csr_array((np.ones(vertices.size, np.int64), (vertices, communities)), shape=shape)


def shared_members(members: Sequence[Ints], n_vertices: int) -> Ints:
    """The number of vertices that each two of the sets share ``[C, C]``; diagonal: sizes."""
    found = incidence(members, n_vertices)
    shared: Ints = (found.T @ found).toarray()
    return shared


@dataclass(frozen=True)
class MemberPairs:
    """A cover as pairs of community and vertex numbers, both ``[M]``, sorted by community."""

    community: Ints
    vertex: Ints
    n_communities: int
    n_vertices: int

    @staticmethod
    def of(sets: Sequence[set[str]], places: dict[str, int], what: str) -> MemberPairs:
        """The incidence of sets of ids, whose vertex numbers are ``places``; raises InputError for another id."""
        vertex: list[int] = []
        for number, members in enumerate(sets, start=1):
            if strange := [name for name in members if name not in places]:
                raise InputError(
                    f"community {number} of the {what} has the id {min(strange)!r}, which is no vertex of the graph; "
                    "give the graph that the cover belongs to (ids are separated by tabs, or by spaces where "
                    "no id has any, and compared as they are written)"
                )
            vertex += sorted(map(places.__getitem__, members))
        sizes = np.array([len(members) for members in sets])
        return MemberPairs(np.repeat(np.arange(len(sets)), sizes), np.array(vertex), len(sets), len(places))

    @property
    def sizes(self) -> Ints:
        """Number of members of each community, ``[K]``."""
        return np.bincount(self.community, minlength=self.n_communities)

    @property
    def degrees(self) -> Ints:
        """Number of communities of each vertex, ``[N]``."""
        return np.bincount(self.vertex, minlength=self.n_vertices)

    @property
    def coverage(self) -> float:
        """Share of the vertices that are in a community."""
        return int(np.count_nonzero(self.degrees)) / self.n_vertices

    @property
    def memberships(self) -> float:
        """Mean number of communities of a vertex that is in one."""
        return self.vertex.size / int(np.count_nonzero(self.degrees))

    def matrix(self) -> Any:
        """The incidence matrix of zeros and ones ``[N, K]``, int64, in CSR format."""
        return _matrix(self.vertex, self.community, (self.n_vertices, self.n_communities))
