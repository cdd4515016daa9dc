"""Uploads: written to a file of our own while their size is watched, then checked by a process that may die of them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
import zlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from starlette.requests import Request

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.service.http.service_settings import Settings

__all__ = ["GraphFacts", "Intake"]

_STEP = 1 << 16
_APART_SECONDS = 20.0


@dataclass(frozen=True)
class GraphFacts:
    """What is known of an uploaded graph."""

    vertices: int
    links: int
    digest: str
    warnings: tuple[str, ...]


class Intake:
    """Takes uploads in.  Nothing that a client names becomes the name of a file."""

    def __init__(self, settings: Settings) -> None:
        self._limits = settings.limits
        self._folder = settings.data / "uploads"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob("upload-*"):  # of a service that was killed
            left.unlink(missing_ok=True)
        self._pool: ProcessPoolExecutor | None = None
        self._turn = asyncio.Semaphore(1)

    @contextlib.asynccontextmanager
    async def unpacked(self, chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[Path]:
        """A file with an upload, unpacked if it is gzip, while the block runs.

        Raises ``HTTPException`` 413 as soon as more than ``most`` bytes come out, 422 for a damaged gzip stream.
        """
        handle, name = tempfile.mkstemp(prefix="upload-", dir=self._folder)
        path = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                writer = _Unpacking(file.write, most)
                async for chunk in chunks:
                    await asyncio.to_thread(writer.feed, chunk)
                writer.end()
            if writer.packed_twice:
                raise HTTPException(422, "the upload is packed by gzip twice: unpack it once")
            yield path
        finally:
            path.unlink(missing_ok=True)

    async def graph(self, path: Path) -> GraphFacts:
        """Read an edge list.  Raises ``InputError`` for what is none, ``HTTPException`` 413 for a large one."""
        limits = self._limits
        facts: GraphFacts = await self._checked(_graph_facts, path)
        for what, count, most in (("vertices", facts.vertices, limits.vertices), ("links", facts.links, limits.links)):
            if count > most:
                raise HTTPException(413, f"the graph has {count} {what}; at most {most} are taken here")
        return facts

    async def apart(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What ``work`` returns, computed in the process that checks uploads.  Raises as it does, or 422."""
        try:
            return await self._run(_APART_SECONDS, work, *arguments)
        except (TimeoutError, BrokenProcessPool, MemoryError):
            raise HTTPException(422, f"what was asked for takes more than {_APART_SECONDS:g} s to work out") from None

    async def records(self, path: Path, database: str | None, check_only: bool) -> dict[str, int]:
        """Add the records of a file to the database, all or none.  Raises ``InputError`` for a malformed one."""
        added: dict[str, int] = await self._checked(_add_records, path, database, check_only)
        return added

    async def close(self) -> None:
        """End the process."""
        self._end()

    async def _checked(self, work: Callable[..., Any], *arguments: Any) -> Any:
        seconds = self._limits.intake_seconds
        try:
            return await self._run(seconds, work, *arguments)
        except TimeoutError:
            raise HTTPException(413, f"the upload took more than {seconds:g} s to check") from None
        except (BrokenProcessPool, MemoryError):
            raise HTTPException(413, "the upload took more memory to check than is given to one") from None

    async def _run(self, seconds: float, work: Callable[..., Any], *arguments: Any) -> Any:
        async with self._turn:
            if self._pool is None:
                # A process of its own: what it reads cannot take memory, time or the life of the service.
                self._pool = ProcessPoolExecutor(
                    1,
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_bound,
                    initargs=(os.getpid(), self._limits.intake_memory),
                    max_tasks_per_child=200,
                )
            running = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
            try:
                return await asyncio.wait_for(running, seconds)
            except (TimeoutError, BrokenProcessPool, MemoryError):
                self._end()
                raise

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


class _Unpacking:
    """Passes bytes on, unpacked where they begin as gzip does, and never more than so many."""

    def __init__(self, write: Callable[[bytes], Any], most: int) -> None:
        self._write, self._most = write, most
        self._written = 0
        self._head = b""
        self._gzip: Any = None
        self._plain = False
        self._out = b""

    def feed(self, data: bytes) -> None:
        """Take some of the upload."""
        if not self._plain and self._gzip is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            if data.startswith(b"\x1f\x8b"):
                self._gzip = zlib.decompressobj(wbits=31)
            else:
                self._plain = True
        if self._plain:
            self._pass(data)
            return
        try:
            self._unpack(data)
        except zlib.error as error:
            raise HTTPException(422, f"the upload is a damaged gzip file ({error}): send it again") from None

    def end(self) -> None:
        """There is no more.  Raises ``HTTPException`` 422 where something is missing."""
        if self._head:
            self._pass(self._head)
        if self._gzip is not None and not self._gzip.eof:
            raise HTTPException(422, "the upload is a gzip file that was cut off: send it again")

    @property
    def packed_twice(self) -> bool:
        """Whether what came out is gzip again."""
        return self._gzip is not None and self._out == b"\x1f\x8b"

    def _unpack(self, data: bytes) -> None:
        while data:
            if self._gzip.eof:  # a file may have several members; what else follows is padding
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._gzip = zlib.decompressobj(wbits=31)
            out = self._gzip.decompress(data, _STEP)
            self._pass(out)
            data = self._gzip.unconsumed_tail or self._gzip.unused_data

    def _pass(self, data: bytes) -> None:
        self._written += len(data)
        if self._written > self._most:
            raise HTTPException(
                413, f"the upload has more than {self._most} bytes unpacked, the most that is taken here"
            )
        if len(self._out) < 2:
            self._out += data[: 2 - len(self._out)]
        self._write(data)


async def body_chunks(request: Request) -> AsyncIterator[bytes]:
    """The body of a request as it comes."""
    async for chunk in request.stream():
        if chunk:
            yield chunk


def _bound(parent: int, memory: int) -> None:
    """Limit this process before it reads anything: its memory, and its life to that of the service."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import resource

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _graph_facts(path: Path) -> GraphFacts:
    from mmsbgen.graph import load_edge_list

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            graph = load_edge_list(path)
        except MmsbgenError as error:
            raise _unnamed(error, path) from None
    return GraphFacts(graph.n_vertices, graph.n_links, graph.digest, tuple(str(one.message) for one in told))


def _add_records(path: Path, database: str | None, check_only: bool) -> dict[str, int]:
    from mmsbgen.db.exchange import jsonl
    from mmsbgen.db.store.tuning_store import open_store

    try:
        bundle = jsonl.read(path)
    except MmsbgenError as error:
        raise _unnamed(error, path) from None
    if check_only:
        return {**dict.fromkeys(("runs", "roofs", "quarantined", "trials"), 0), "of_trials": len(bundle.trials)}
    with open_store(database) as store:
        return {**store.add_counted(bundle), "of_trials": len(bundle.trials)}


def _unnamed(error: MmsbgenError, path: Path) -> MmsbgenError:
    """The same error without the name of our file."""
    return type(error)(str(error).replace(str(path), "the upload").replace(path.name, "upload"))
