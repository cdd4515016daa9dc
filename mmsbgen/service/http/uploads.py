"""Uploads: written to a temporary file with a size limit, then checked in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from mmsbgen.service.http.helper_process import HelperProcess
from mmsbgen.service.http.service_settings import ServiceSettings
from mmsbgen.service.http.upload_checks import GraphFacts, add_records, graph_facts

_STEP, _GZIP = 1 << 16, b"\x1f\x8b"


class Uploads:
    """Receives and checks uploads.  File names never come from the client."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._limits = settings.limits
        self._folder = settings.data / "uploads"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob("upload-*"):  # of a service that was killed
            shutil.rmtree(left, ignore_errors=True)
        # A process of its own: malicious uploads cannot crash the service or use up its memory and time.
        self._helper = HelperProcess(settings.limits.intake_memory)

    @contextlib.asynccontextmanager
    async def unpacked(self, chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[Path]:
        """A temporary file with an upload, unpacked if it is gzip; its folder exists while the block runs.

        Raises ``HTTPException`` 413 for more than ``most`` unpacked bytes, 422 for a damaged or nested gzip stream.
        """
        with tempfile.TemporaryDirectory(prefix="upload-", dir=self._folder, ignore_cleanup_errors=True) as folder:
            sent, path = Path(folder, "sent"), Path(folder, "upload")
            with sent.open("wb") as file:
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(_unpack, sent, path, most)
            yield path

    async def graph(self, path: Path, columns: str | None, weights: str | None) -> GraphFacts:
        """Read links.  Raises ``InputError`` if there are none, ``HTTPException`` 413 if it is too large."""
        limits = self._limits
        facts: GraphFacts = await self._checked(graph_facts, path, columns, weights)
        for what in ("vertices", "links"):
            count, most = getattr(facts, what), getattr(limits, f"max_{what}")
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


def _unpack(sent: Path, path: Path, most: int) -> None:
    """Write at most ``most`` bytes of a file, unpacked if it starts as gzip does."""
    written = 0
    with sent.open("rb") as plain, path.open("wb") as out:
        packed = plain.peek(2)[:2] == _GZIP
        file = gzip.GzipFile(fileobj=plain) if packed else plain
        try:
            while part := file.read(_STEP):
                written += len(part)
                if written > most:
                    raise HTTPException(
                        413, f"the upload has more than {most} bytes unpacked, the most that is taken here"
                    )
                out.write(part)
        except EOFError:
            raise HTTPException(422, "the upload is a gzip file that was cut off: send it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise HTTPException(422, f"the upload is a damaged gzip file ({error}): send it again") from None
    with path.open("rb") as file:
        if packed and file.read(2) == _GZIP:
            raise HTTPException(422, "the upload is packed by gzip twice: unpack it once")
