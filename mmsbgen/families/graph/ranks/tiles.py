"""Arcs into vertices of many, in an order in which chunks of equal size read few shares.

Arcs are sorted by the tile of places that they read, then by the vertex that they lead to.  A piece has the arcs of one
tile into one vertex; the arcs of a vertex with very many are cut into parts, which have pieces of their own.  Chunks
begin anywhere in pieces.  What a chunk adds up of a piece that goes on is carried to it afterwards, in order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.families.graph.declare import NONE
from mmsbgen.graph.arcs import Arcs
from mmsbgen.graph.graph import numbers_of_ranges
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.host_program import Launches

#: Arcs in from which on those of a vertex go to pieces; most arcs of a part; arcs of a chunk; tiles beside the rest.
CUT, PART, CHUNK, TILES = 128, 1 << 15, 4096, 32
#: Blocks for each compute unit that sort arcs.
_BLOCKS = 16

CUT_ROWS = Argument("cut_rows", "u32", "in", "[1 + R] number of vertices whose arcs in are in pieces, then those")
FIRST_PARTS = Argument("first_parts", "u32", "in", "[R + 1] first part of each")
PART_ROWS = Argument("part_rows", "u32", "in", "[P] place in cut_rows of each part's vertex")
BEGINS = Argument("tile_begins", "u32", "inout", "[T, P + 1] first arc of each part in each tile, and the tile's end")
PIECES = Argument("tile_pieces", "u32", "in", "[T P] tile times P plus part, of each piece in order")
TILED = Argument("tile_places", "u32", "inout", "[] place of the share of each arc; the last of a piece has bit 31")
WEIGHTS = Argument("tile_weights", "real", "inout", "[] weight of each of them; [1] without weights")
SUMS = Argument("tile_sums", "real", "inout", "[T, P] sums over pieces; 0 where there is none")
TILE_CHUNKS = Argument("tile_chunks", "u32", "in", "[T + 1] first chunk of each tile, and their number")
CHUNK_PIECES = Argument("chunk_pieces", "u32", "in", "[C] pieces that end before each chunk")
CARRIED = Argument("carried", "u32", "in", "[C] what of tile_sums goes on after a chunk, or NONE")
CARRIES = Argument("carries", "real", "inout", "[C] what the chunk adds up of it")

#: What sorts arcs, what adds them up, and all of it.
SORTS = (CUT_ROWS, FIRST_PARTS, PART_ROWS, BEGINS, TILED, WEIGHTS, SUMS)
ADDS = (CUT_ROWS, FIRST_PARTS, PIECES, *(replace(one, role="in") for one in (TILED, WEIGHTS)), SUMS, TILE_CHUNKS,
        CHUNK_PIECES, CARRIED, CARRIES)  # fmt: skip
LAYOUT = tuple({one.name: replace(one, role="kept") for one in (*SORTS, *ADDS)}.values())


#: Arrays that PageRank makes once of a graph.
ARRANGED = ("places", "source_places", "arranged", *(one.name for one in LAYOUT))


def arranged(arcs: Arcs, real: Any) -> dict[str, Any]:
    """The arrays :data:`ARRANGED`, as a first call takes them."""
    return {name: arranged_array(arcs, name, real) for name in ARRANGED}


def arranged_array(arcs: Arcs, name: str, real: Any) -> NDArray[Any]:
    """One of the arrays :data:`ARRANGED`: places of vertices by falling number of arcs out, and room for arcs.

    Raises :class:`InputError` if 32 bits do not count the arcs with the gaps between tiles.
    """
    if name == "places":
        # Numbers of 16 bits are sorted in linear time, and how the largest are sorted does not matter.
        few = np.iinfo(np.uint16).max - arcs.degrees.clip(0, np.iinfo(np.uint16).max).astype(np.uint16)
        found = np.empty(arcs.n_vertices, np.uint32)
        found[np.argsort(few, kind="stable")] = np.arange(arcs.n_vertices, dtype=np.uint32)
        return found
    if name in ("source_places", "arranged"):
        return np.zeros(max(1, arcs.n_arcs) if name == "source_places" else 1, np.uint32)
    degrees = arcs.reversed.degrees
    rows = np.flatnonzero(degrees >= CUT)
    parts = -(-degrees[rows].astype(np.int64) // PART)
    n_parts, n_arcs, tiles = int(parts.sum()), int(degrees[rows].sum(dtype=np.int64)), TILES + 1
    room = -(-n_arcs // CHUNK) + tiles
    if room * CHUNK > NONE:
        raise InputError(f"{n_arcs} arcs in an order by tiles need {room * CHUNK} places of 32 bits: take balance=rows")
    if name == "cut_rows":
        return np.concatenate([[rows.size], rows]).astype(np.uint32)
    if name == "first_parts":
        return np.concatenate([[0], np.cumsum(parts)]).astype(np.uint32)
    if name == "part_rows":
        return np.repeat(np.arange(rows.size, dtype=np.uint32), parts) if n_parts else np.zeros(1, np.uint32)
    sizes = {
        "tile_begins": tiles * (n_parts + 1),
        "tile_pieces": max(1, min(tiles * n_parts, n_arcs)),
        "tile_places": room * CHUNK,
        "tile_weights": 1 if arcs.weights is None else room * CHUNK,
        "tile_sums": max(1, tiles * n_parts),
        "tile_chunks": tiles + 1,
    }
    kind = real if name in ("tile_weights", "tile_sums", "carries") else np.uint32
    return np.zeros(sizes.get(name, room), kind)


def sort_arcs(on: Launches, tiles: int) -> None:
    """Count pieces, find their places on the host, and move arcs there."""
    block, grid = int(on.config["block_size"]), on.traits.compute_units * _BLOCKS
    n_parts = int(on.read("first_parts")[on.read("cut_rows", 1)[0]])
    if n_parts == 0:
        return
    on.launch("count", grid, block, n=np.uint32(on.count))
    sizes = on.read("tile_begins", tiles * (n_parts + 1)).reshape(tiles, n_parts + 1)[:, :-1]
    chunks = np.concatenate([[0], np.cumsum(-(-sizes.sum(axis=1, dtype=np.int64) // CHUNK))])
    begins = np.zeros((tiles, n_parts + 1), np.uint32)  # arranged_array has seen that 32 bits do
    np.cumsum(sizes, axis=1, out=begins[:, 1:])
    begins += (chunks[:-1, None] * CHUNK).astype(np.uint32)
    present = sizes > 0
    pieces, first, last = np.flatnonzero(present), begins[:, :-1][present], begins[:, 1:][present] - np.uint32(1)
    carried = np.full(max(1, chunks[-1]), NONE, np.uint32)
    # A piece goes on after each of its chunks but the last.
    chunk, more = first // CHUNK, last // CHUNK - first // CHUNK
    goes_on = np.flatnonzero(more)
    chunk, more = chunk[goes_on].astype(np.int64), more[goes_on].astype(np.int64)
    carried[numbers_of_ranges(chunk, more)] = np.repeat(pieces[goes_on], more)
    on.write("tile_begins", begins.ravel())
    on.write("tile_pieces", pieces.astype(np.uint32))
    on.write("tile_chunks", chunks.astype(np.uint32))
    on.write("chunk_pieces", np.searchsorted(last, (np.arange(chunks[-1]) * CHUNK).astype(np.uint32)).astype(np.uint32))
    on.write("carried", carried)
    on.launch("fill", grid, block, n=np.uint32(on.count))
