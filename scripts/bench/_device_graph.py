"""A large planted graph, of the same kind as that of planted_graph.py, whose links are made on a device.

Of 1.8 billion links only the adjacency is ever in memory.  A link that is drawn twice stays twice: about one in 200.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.base import Device
from mmsbgen.graph.graph import Adjacency, read_only

Ints = npt.NDArray[np.int64]

#: Share of the links within communities, and work-items of a block.
INSIDE, BLOCK = 0.85, 64
#: Places of the table from which communities are drawn.
_PLACES = 1 << 20

_OPENCL = """
typedef uint u32;
typedef ulong u64;
#define KERNEL __kernel
#define GLOBAL __global
#define FUNCTION static inline
#define FIRST get_global_id(0)
#define STRIDE get_global_size(0)
#define MUL_HI mul_hi
#define NEXT(place) atomic_inc(place)
"""
_CUDA = """
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__
#define GLOBAL
#define FUNCTION static __device__
#define FIRST (u64)blockIdx.x * blockDim.x + threadIdx.x
#define STRIDE (u64)gridDim.x * blockDim.x
#define MUL_HI __umul64hi
#define NEXT(place) atomicAdd(place, 1u)
"""
_SOURCE = """
typedef struct { u32 u, v; } ends;

/* The finaliser of splitmix64. */
FUNCTION u64 mixed(u64 x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* Both ends of a link: members of one community, drawn by its size, or any vertices. Equal ends are no link. */
FUNCTION ends ends_of(
    u64 link, GLOBAL const u32* members, GLOBAL const u64* begins, u32 n_communities, u32 n_vertices, u64 n_inside,
    u64 seed)
{
    const u64 a = mixed(seed + (2 * link + 1) * 0x9e3779b97f4a7c15);
    const u64 b = mixed(seed + (2 * link + 2) * 0x9e3779b97f4a7c15);
    ends found;
    if (link < n_inside) {
        const u64 place = MUL_HI(a, begins[n_communities]);
        u32 low = 0, high = n_communities;
        while (high - low > 1) {
            const u32 middle = (low + high) / 2;
            if (begins[middle] <= place) low = middle; else high = middle;
        }
        found.u = members[place];
        found.v = members[begins[low] + MUL_HI(b, begins[low + 1] - begins[low])];
    } else {
        found.u = (u32)MUL_HI(a, (u64)n_vertices);
        found.v = (u32)MUL_HI(b, (u64)n_vertices);
    }
    return found;
}

KERNEL void count_links(
    GLOBAL const u32* members, GLOBAL const u64* begins, u32 n_communities, u32 n_vertices, u64 n_inside, u64 seed,
    u64 n_links, GLOBAL u32* degrees)
{
    for (u64 link = FIRST; link < n_links; link += STRIDE) {
        const ends of = ends_of(link, members, begins, n_communities, n_vertices, n_inside, seed);
        if (of.u != of.v) {
            NEXT(degrees + of.u);
            NEXT(degrees + of.v);
        }
    }
}

/* `degrees` are 0 before. */
KERNEL void write_links(
    GLOBAL const u32* members, GLOBAL const u64* begins, u32 n_communities, u32 n_vertices, u64 n_inside, u64 seed,
    u64 n_links, GLOBAL u32* degrees, GLOBAL const u64* offsets, GLOBAL u32* neighbours)
{
    for (u64 link = FIRST; link < n_links; link += STRIDE) {
        const ends of = ends_of(link, members, begins, n_communities, n_vertices, n_inside, seed);
        if (of.u != of.v) {
            neighbours[offsets[of.u] + NEXT(degrees + of.u)] = of.v;
            neighbours[offsets[of.v] + NEXT(degrees + of.v)] = of.u;
        }
    }
}

/* Links came in any order; in order they are the same in every run. */
KERNEL void sort_links(GLOBAL const u64* offsets, u32 n_vertices, GLOBAL u32* neighbours)
{
    for (u64 vertex = FIRST; vertex < n_vertices; vertex += STRIDE) {
        GLOBAL u32* const row = neighbours + offsets[vertex];
        const u32 degree = (u32)(offsets[vertex + 1] - offsets[vertex]);
        for (u32 i = 1; i < degree; ++i) {
            const u32 x = row[i];
            u32 at = i;
            for (; at > 0 && row[at - 1] > x; --at) row[at] = row[at - 1];
            row[at] = x;
        }
    }
}
"""


def memberships(n: int, communities: int, rng: np.random.Generator) -> tuple[Ints, npt.NDArray[np.uint16]]:
    """One to three communities of each of ``n`` vertices: vertices, ascending, and communities ``[M]``."""
    shares = rng.pareto(2.0, communities) + 0.5
    bounds = np.cumsum(shares) / shares.sum()
    table = np.searchsorted(bounds, (np.arange(_PLACES) + 0.5) / _PLACES).astype(np.uint16)
    counts = np.array([1] * 6 + [2] * 3 + [3], np.uint8)[rng.integers(0, 10, n, np.uint8)]
    vertex = np.repeat(np.arange(n), counts)
    community = table[rng.integers(0, _PLACES, vertex.size, np.int32)]
    stays = np.ones(vertex.size, bool)
    for before in (1, 2):
        stays[before:] &= (vertex[before:] != vertex[:-before]) | (community[before:] != community[:-before])
    return vertex[stays], community[stays]


def planted(device: Device, n: int, links: int, communities: int, seed: int = 0) -> tuple[Adjacency, Ints, Ints]:
    """The adjacency of about ``links`` links, and the memberships ``[M]``: vertices, ascending, and communities.

    ``communities`` are at most 65,536.
    """
    vertex, community = memberships(n, communities, np.random.default_rng(seed))
    begins = np.concatenate([[0], np.cumsum(np.bincount(community, minlength=communities))]).astype(np.uint64)
    members = vertex[np.argsort(community, kind="stable")].astype(np.uint32)
    names = re.findall(r"KERNEL void (\w+)", _SOURCE)
    program = device.compile((_CUDA if device.info.backend == "cuda" else _OPENCL) + _SOURCE, names)

    def launch(name: str, *values: Any) -> None:
        program.kernel(name).launch((64 * device.info.compute_units,), (BLOCK,), values)

    count = np.uint32(n)
    with device.upload(members) as members_there, device.upload(begins) as begins_there:
        ends = (members_there, begins_there, np.uint32(communities), count, np.uint64(INSIDE * links), np.uint64(seed))
        with device.zeros(n, np.uint32) as degrees:
            launch("count_links", *ends, np.uint64(links), degrees)
            offsets = np.concatenate([[0], np.cumsum(device.download(degrees), dtype=np.int64)])
        with (
            device.zeros(n, np.uint32) as degrees,
            device.upload(offsets.view(np.uint64)) as offsets_there,
            device.alloc(int(offsets[-1]), np.uint32) as neighbours,
        ):
            launch("write_links", *ends, np.uint64(links), degrees, offsets_there, neighbours)
            launch("sort_links", offsets_there, count, neighbours)
            found = Adjacency(read_only(offsets), read_only(device.download(neighbours)))
    return found, vertex, community.astype(np.int64)
