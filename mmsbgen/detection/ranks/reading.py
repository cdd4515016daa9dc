"""A plain edge list of integers that the ranks of a run read together.

Each rank reads and parses a range of the lines.  All number the ids alike, and send each link to the rank of its
smaller vertex, which drops repeated links.  Rank 0 gets the links in order: its graph equals that of one process.  All
other files are read by rank 0 alone, also those in which a rank finds another kind of line.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.ranks.world import World
from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import Stage, stage
from mmsbgen.base.user_files import need_memory, read_lines
from mmsbgen.graph import Graph, ReadingOptions, read_graph
from mmsbgen.graph.building import check_count, directed_keys, graph_of_links, merged_keys
from mmsbgen.graph.files import edgelist
from mmsbgen.graph.files.file_bytes import (
    BYTE_ORDER_MARK,
    UTF_16,
    format_of,
    need_fields,
    record_path,
    short_name,
)
from mmsbgen.graph.files.graph_files import as_read
from mmsbgen.graph.graph import AT_A_TIME, UInt32Array, UInt64Array, distinct_keys, links_of
from mmsbgen.graph.ids import number_integers, renumber

__all__ = ["SharedText", "follow_reading", "read_together"]

Ints = npt.NDArray[np.int64]
Result = TypeVar("Result")
#: Bytes of a file's begin, by which its kind is found.
_HEAD_BYTES = 1 << 20
#: Flags, and keys, that are exchanged at a time.
_FLAGS, _KEYS = 1 << 26, 1 << 20
#: Keys of each rank by which ranges of vertices are chosen.
_SAMPLES = 64


def read_together(world: World, source: Any, reading: ReadingOptions) -> Graph:
    """As :func:`mmsbgen.graph.read_graph`, on rank 0; the others :func:`follow_reading`."""
    file = Path(source) if isinstance(source, str | os.PathLike) else None
    divided = None if file is None else _divided(file, reading, world.size)
    if file is None or divided is None:
        return read_graph(source, reading)
    message = (file, reading.format, *divided)
    world.tell("read", *message)
    graph = follow_reading(world, *message)
    return read_graph(source, reading) if graph is None else as_read(graph, file, reading)


def follow_reading(world: World, file: Path, format: str, cuts: list[int], state: tuple[int, int]) -> Graph | None:
    """Read a range of the lines of ``file``, one of those between ``cuts``; returns the graph on rank 0.

    None there if a rank finds that one process must read it.  A rank whose file is not in ``state``, its size and time,
    gets its lines from rank 0.

    Raises :class:`InputError` on rank 0 for a file that cannot be read, that changes, or that needs more memory than is
    left.
    """
    with stage(f"reading {file.name}", unit="B") as told:
        text = SharedText(world)
        try:
            found = text.integers(file, format, cuts, state, told)
            return None if found is None else text.graph(file, *found)
        finally:
            text.close()


def _divided(file: Path, reading: ReadingOptions, ranks: int) -> tuple[list[int], tuple[int, int]] | None:
    """Borders ``[ranks + 1]`` of the ranges of an edge list's lines, and the file's state.

    None if the first MiB shows that one process must read it, or is the whole file.
    """
    if reading.format not in ("auto", "text") or reading.threshold is not None or record_path(file) is None:
        return None
    try:
        state = _state(file)
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        if b"\n" not in head or head.startswith((b"\x1f\x8b", *UTF_16)) or format_of(file, head) != "text":
            return None
        begin = _plain(head[: head.rindex(b"\n") + 1].removeprefix(BYTE_ORDER_MARK))
        if begin is None or edgelist.table_layout(file, begin, reading) is not None:
            return None
        if edgelist.integer_ids(file, begin, Stage("")) is None:
            return None
    except (OSError, ValueError, InputError):
        return None  # what is wrong is found by who reads it alone
    cuts = [state[0] * at // ranks for at in range(ranks + 1)]
    return None if len(head) == state[0] else (cuts, state)


def _integers(file: Path, raw: bytes, told: Stage) -> tuple[npt.NDArray[Any], int] | None:
    """As :func:`mmsbgen.graph.files.edgelist.integer_ids`; None for other lines, too."""
    try:
        return None if (text := _plain(raw)) is None else edgelist.integer_ids(file, text, told)
    except InputError:
        return None


def _plain(text: bytes) -> bytes | None:
    """Lines of a file that all have their end; None if they are no text in UTF-8."""
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError:
        return None
    if b"\0" in text:
        return None
    return text if text.endswith(b"\n") else text + b"\n"


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _is_same(file: Path, state: tuple[int, int]) -> bool:
    """Whether ``file`` can be read here and is in ``state``."""
    try:
        return _state(file) == state and os.access(file, os.R_OK)
    except OSError:
        return False


def _lines(file: Path, cut: tuple[int, int], state: tuple[int, int], readers: int = 1) -> bytes:
    """As :func:`mmsbgen.base.user_files.read_lines`; raises InputError if the file is no longer in ``state``."""
    found = read_lines(file, *cut, readers)
    if not _is_same(file, state):
        raise InputError(f"{file} changed while it was read: run again when it is complete")
    return found


class SharedText:
    """A text of which each rank reads a part.

    All ranks call the same methods in the same order.

    Attributes:
        rank: number of this rank.
        here: number of ranks on this machine, which share its memory.
    """

    def __init__(self, world: World) -> None:
        self._world, self._comm, self.rank = world, world.comm, world.rank
        self.here = [name for name, _ in world.hosts].count(world.hosts[world.rank][0])
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="reading")

    def close(self) -> None:
        """End the thread that works while this rank answers."""
        self._worker.shutdown(wait=False)

    def read(self, file: Path, cuts: list[int], state: tuple[int, int]) -> bytes:
        """The lines of this rank; the arguments are as in :func:`follow_reading`."""
        world, ranges = self._world, list(itertools.pairwise(cuts))
        has = self.rank == 0 or _is_same(file, state)
        raw = self.agree(lambda: _lines(file, ranges[self.rank], state, self.here) if has else b"")
        for at in [at for at, there in enumerate(self.told(has)) if not there]:
            part = np.frombuffer(b"" if self.rank else _lines(file, ranges[at], state), np.uint8)
            size = self.told(part.size)[0]
            if self.rank == 0:
                world.send(part, at)
            elif self.rank == at:
                part = np.empty(size, np.uint8)
                world.receive(part)
                raw = part.tobytes()
        return raw if self.rank else raw.removeprefix(BYTE_ORDER_MARK)

    def integers(
        self, file: Path, format: str, cuts: list[int], state: tuple[int, int], told: Stage
    ) -> tuple[UInt32Array, Ints] | None:
        """The links in the lines of this rank ``[L, 2]``, and the ids of all ranks ``[N]``.

        None if the text is no edge list of integers, or perhaps none.  The arguments are as in :func:`follow_reading`.
        """
        parts = [self.read(file, cuts, state)]
        self.agree(lambda: need_fields(file, parts[0], "integers", self.here))
        found = self.agree(lambda: _integers(file, parts.pop(), told))  # which frees the text
        if not all(self.told(found is not None)) or found is None:
            return None
        numbers, n_ends = found
        firsts, sizes = zip(*self.told((numbers[:2].tolist() if n_ends else [], n_ends)), strict=True)
        first = next(filter(None, firsts), None)
        if first is None or (format == "auto" and edgelist.may_begin_with_counts(first, sum(sizes))):
            return None
        ids, places = self.number_integers(numbers)
        return np.ascontiguousarray(places[:n_ends].reshape(-1, 2), np.uint32), ids

    def told(self, own: Result) -> list[Result]:
        """What each rank has found, in their order; a few numbers or flags."""
        data = np.frombuffer(pickle.dumps(own), np.uint8)
        sizes = self._gathered(data.size)[:, 0]
        ends = np.cumsum(sizes)
        found = np.empty(int(ends[-1]), np.uint8)
        self._wait(
            self._comm.Iallgatherv(data, [found, (sizes.tolist(), (ends - sizes).tolist()), self._world.mpi.BYTE])
        )
        return [pickle.loads(part.tobytes()) for part in np.split(found, ends[:-1])]

    def agree(self, work: Callable[[], Result]) -> Result:
        """What ``work`` returns here; of ranks that raise :class:`InputError`, the first one ends all, by rank 0."""
        refusal, found = "", []
        try:
            found.append(self._answering(work))
        except InputError as error:
            if self.rank == 0:
                raise
            refusal = str(error)
        refusals = [text for text in self.told(refusal) if text]
        if refusals and self.rank == 0:
            raise InputError(refusals[0])
        if refusals:
            self._world.hear()
        return found[0]

    def _answering(self, work: Callable[[], Result]) -> Result:
        """What ``work`` returns; meanwhile a rank answers rank 0."""
        if self.rank == 0:
            return work()
        working = self._worker.submit(work)
        self._world.until(working.done, own=True)
        return working.result()

    def either(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which of ``flags`` ``[N]`` any rank has set."""
        mpi = self._world.mpi
        for first in range(0, flags.size, _FLAGS):
            self._wait(self._comm.Iallreduce(mpi.IN_PLACE, flags[first : first + _FLAGS].view(np.uint8), mpi.MAX))
        return flags

    def number_integers(self, values: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[Any]]:
        """As :func:`mmsbgen.graph.ids.number_integers`, of the values of all ranks."""
        extent = (int(values.min()), int(values.max())) if values.size else None
        extents, sizes = zip(*self.told((extent, values.size)), strict=True)
        known = list(filter(None, extents))
        if not known:
            return values.astype(np.int64), values
        low, high = min(one[0] for one in known), max(one[1] for one in known)
        if high - low >= 4 * sum(sizes) + 65536:
            own, places = number_integers(values)
            ids = self._merged(own)
            return ids, np.searchsorted(ids, own)[places]
        if not 0 <= low < 1 << 32:  # other ranks have numbers that need int64
            values = values.astype(np.int64)
        values -= values.dtype.type(low)
        seen = np.zeros(high - low + 1, np.bool_)
        for begin in range(0, values.size, AT_A_TIME):
            seen[values[begin : begin + AT_A_TIME]] = True
        distinct = np.flatnonzero(self.either(seen))
        renumber(values, distinct, seen.size)
        return distinct + low, values

    def _merged(self, own: Ints) -> Ints:
        """The distinct integers of all ranks, ascending; ``own`` are those of this rank."""
        for part in self._of_others(own):
            own = number_integers(np.concatenate([own, part]))[0]
        return self._shared(own).view(np.int64)

    def _of_others(self, own: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
        """The arrays of the other ranks at rank 0, one after another, of the type of ``own``; none elsewhere."""
        sizes = self.told(own.size)
        if self.rank:
            self._world.send(own, 0)
            return
        for at, size in enumerate(sizes[1:], 1):
            part = np.empty(size, own.dtype)
            self._world.receive(part, at)
            yield part

    def _shared(self, array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """The bytes of the ``array`` of rank 0."""
        data = array.view(np.uint8)
        size = self.told(data.size)[0]
        if self.rank:
            data = np.empty(size, np.uint8)
        for first in range(0, size, _FLAGS):
            self._wait(self._comm.Ibcast(data[first : first + _FLAGS], 0))
        return data

    def graph(self, file: Path, pairs: UInt32Array, ids: npt.NDArray[Any]) -> Graph | None:
        """The graph of the links ``[L, 2]`` of all ranks, on rank 0; raises as ``build_graph``.  It overwrites them."""
        name = short_name(file)
        check_count(int(ids.size), name)
        # Four copies of the keys; the check also gives back to the system what the parser has freed.
        self.agree(lambda: need_memory(file, 16 * len(pairs) * self.here))
        up, down, n_self_loops = directed_keys(pairs)
        cuts = self._cuts(up if up.size > down.size else down)
        up, down = (distinct_keys(self._exchanged(keys, cuts)) for keys in (up, down))
        keys = merged_keys(up, down)
        counts = self._gathered(keys.size, len(pairs), n_self_loops, up.size + down.size - keys.size)
        del up, down
        if self.rank:
            for begin in range(0, keys.size, _KEYS):
                self._world.send(keys[begin : begin + _KEYS], 0)
            return None
        n_links, *rest = counts.sum(axis=0).tolist()
        need_memory(file, 8 * n_links)
        found, end = np.empty(n_links, np.uint64), keys.size
        found[:end] = keys
        del keys
        for at, size in enumerate(counts[1:, 0].tolist(), 1):
            for begin in range(end, end + size, _KEYS):
                self._world.receive(found[begin : min(begin + _KEYS, end + size)], at)
            end += size
        return graph_of_links(links_of(found), ids, *rest, name=name, file=record_path(file))

    def _cuts(self, keys: UInt64Array) -> UInt64Array:
        """Keys ``[ranks - 1]`` between the ranges of vertices of the ranks, with about as many links each."""
        samples = np.sort(np.concatenate(self.told(keys[:: -(-keys.size // _SAMPLES) or 1])))
        if samples.size == 0:
            return np.zeros(self._world.size - 1, np.uint64)
        at = np.arange(1, self._world.size) * samples.size // self._world.size
        return samples[at] >> np.uint64(32) << np.uint64(32)

    def _exchanged(self, keys: UInt64Array, cuts: UInt64Array) -> UInt64Array:
        """The keys of all ranks that are in the range of this one; ``keys`` are ascending."""
        places = np.concatenate([[0], np.searchsorted(keys, cuts), [keys.size]])
        sent = np.diff(places)
        table = self._gathered(*sent.tolist())
        got = table[:, self.rank]
        found, begins = np.empty(int(got.sum()), np.uint64), np.cumsum(got) - got
        for done in range(0, int(table.max()), _KEYS):
            parts = [
                (array, (np.clip(counts - done, 0, _KEYS).tolist(), (at + np.minimum(done, counts)).tolist()))
                for array, counts, at in ((keys, sent, places[:-1]), (found, got, begins))
            ]
            self._wait(self._comm.Ialltoallv(*([*part, self._world.mpi.UINT64_T] for part in parts)))
        return found

    def _gathered(self, *own: int) -> Ints:
        """The integers of all ranks, ``[ranks, P]``."""
        found = np.empty((self._world.size, len(own)), np.int64)
        self._wait(self._comm.Iallgather(np.array(own, np.int64), found))
        return found

    def _wait(self, request: Any) -> None:
        self._world.until(request.Test)
