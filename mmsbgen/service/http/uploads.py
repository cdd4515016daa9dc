"""Uploads: written to a temporary file with a size limit, then checked in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from starlette.requests import Request

from mmsbgen.service.http.helper_process import HelperProcess
from mmsbgen.service.http.service_settings import ServiceSettings
from mmsbgen.service.http.upload_checks import GraphFacts, add_records, graph_facts

_STEP = 1 << 16


class Uploads:
    """Receives and checks uploads.  File names never come from the client."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._limits = settings.limits
        self._folder = settings.data / "uploads"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob("upload-*"):  # of a service that was killed
            left.unlink(missing_ok=True)
        # A process of its own: malicious uploads cannot crash the service or use up its memory and time.
        self._helper = HelperProcess(settings.limits.intake_memory, settings.limits.connections)

    @contextlib.asynccontextmanager
    async def unpacked(self, chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[Path]:
        """A temporary file with an upload, unpacked if it is gzip; it exists while the block runs.

        Raises ``HTTPException`` 413 for more than ``most`` unpacked bytes, 422 for a damaged or nested gzip stream.
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

    async def graph(self, path: Path, columns: str | None, weights: str | None) -> GraphFacts:
        """Read links.  Raises ``InputError`` if there are none, ``HTTPException`` 413 if it is too large."""
        limits = self._limits
        facts: GraphFacts = await self._checked(graph_facts, path, columns, weights)
        for what, count, most in (("vertices", facts.vertices, limits.vertices), ("links", facts.links, limits.links)):
            if count > most:
                raise HTTPException(413, f"the graph has {count} {what}; at most {most} are taken here")
        return facts

    async def records(self, path: Path, database: str | None, check_only: bool) -> dict[str, int]:
        """Add the records of a file to the database, all or none.  Raises ``InputError`` for a malformed one."""
        added: dict[str, int] = await self._checked(add_records, path, database, check_only)
        return added

    def close(self) -> None:
        """End the child process."""
        self._helper.close()

    async def _checked(self, work: Callable[..., Any], *arguments: Any) -> Any:
        seconds = self._limits.intake_seconds
        try:
            return await self._helper.run(seconds, work, *arguments)
        except TimeoutError:
            raise HTTPException(413, f"the upload took more than {seconds:g} s to check") from None
        except (EOFError, MemoryError):
            raise HTTPException(413, "the upload took more memory to check than is given to one") from None


class _Unpacking:
    """Writes at most ``most`` bytes, unpacked if they start as gzip does."""

    def __init__(self, write: Callable[[bytes], Any], most: int) -> None:
        self._write, self._most = write, most
        self._written = 0
        self._head = b""
        self._gzip: Any = None
        self._plain = False
        self._out = b""

    def feed(self, data: bytes) -> None:
        """Write a part of the upload."""
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
        """End the upload.  Raises ``HTTPException`` 422 if a gzip stream is incomplete."""
        if self._head:
            self._pass(self._head)
        if self._gzip is not None and not self._gzip.eof:
            raise HTTPException(422, "the upload is a gzip file that was cut off: send it again")

    @property
    def packed_twice(self) -> bool:
        """Whether the unpacked data is gzip again."""
        return self._gzip is not None and self._out == b"\x1f\x8b"

    def _unpack(self, data: bytes) -> None:
        while data:
            if self._gzip.eof:  # a gzip file may have several members, then padding
                if not (data := data.lstrip(b"\0")):
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
