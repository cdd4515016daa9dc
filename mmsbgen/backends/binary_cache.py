"""A disk cache of compiled kernels under a digest of their inputs."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from mmsbgen.base.atomic_files import write_bytes
from mmsbgen.base.errors import InputError

LIMIT_BYTES = 2 * 2**30
#: The file format, which is a part of every key: the digest of the rest, the log, a NUL byte, the binary.
_FORMAT = b"sha256, log, binary;"
_DIGEST_BYTES = 32


class BinaryCache:
    """A folder of compiled kernels with their logs; processes can share it, as files are published by a rename.

    An unwritable folder or unreadable file is a cache miss, not an error.  So is a truncated binary, because the CUDA
    driver takes no length and would read behind its end.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int = LIMIT_BYTES) -> None:
        if folder is None:
            import platformdirs

            folder = platformdirs.user_cache_path("mmsbgen") / "kernels"
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._pruned = False

    @staticmethod
    def key(parts: Iterable[str]) -> str:
        """Return the digest of texts; it depends on their order and on where each ends."""
        digest = hashlib.sha256(_FORMAT)
        for part in parts:
            data = part.encode()
            digest.update(f"{len(data)}:".encode())
            digest.update(data)
        return digest.hexdigest()

    def load(self, key: str) -> tuple[bytes, str] | None:
        """Return a binary and its log, or None if it is not cached."""
        try:
            whole = (self.folder / f"{key}.bin").read_bytes()
        except OSError:
            return None
        digest, data = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.folder / f"{key}.bin")
        log, _, binary = data.partition(b"\0")
        return binary, log.decode()

    def store(self, key: str, data: bytes, log: str) -> None:
        """Store a binary and its log."""
        with contextlib.suppress(OSError, InputError):
            data = log.replace("\0", "").encode() + b"\0" + data
            write_bytes(self.folder / f"{key}.bin", hashlib.sha256(data).digest() + data)
            if not self._pruned:
                self._pruned = True
                self._prune()

    def discard(self, key: str) -> None:
        """Delete a binary that turned out to be unusable."""
        with contextlib.suppress(OSError):
            (self.folder / f"{key}.bin").unlink(missing_ok=True)

    def _prune(self) -> None:
        entries = sorted(((path.stat(), path) for path in self.folder.glob("*.bin")), key=lambda e: -e[0].st_mtime)
        total = 0
        for status, path in entries:
            total += status.st_size
            if total > self.limit_bytes:
                path.unlink(missing_ok=True)
