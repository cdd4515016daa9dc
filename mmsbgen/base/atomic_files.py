"""Atomic file writes: files are written under a temporary name and published by a rename."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import secrets
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError

Array = npt.NDArray[Any]


class FileTransaction:
    """Publishes several files together when its block ends without an error, else none of them.

    All files are written under temporary names before the first one is replaced, so a full disk changes nothing.  The
    old version of the last file is removed before the renames.  If the process is killed between them, that file is
    missing, which shows that the others may be of different runs.

    Raises:
        InputError: A file cannot be replaced.
    """

    def __init__(self) -> None:
        self._written: list[tuple[Path, Path]] = []

    def add(self, partial: Path, path: Path) -> None:
        """Publish the complete file ``partial``, on the same file system, as ``path`` at the end of the block."""
        self._written.append((partial, path))

    def __enter__(self) -> FileTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            for partial, _ in self._written:
                partial.unlink(missing_ok=True)

    def _publish(self) -> None:
        for put in (_refuse_folder, _remove_old, os.replace):
            for partial, path in self._written[-1:] if put is _remove_old else self._written:
                try:
                    put(partial, path)
                except OSError as failed:
                    raise _cannot_write(path, failed) from failed


def _remove_old(partial: Path, path: Path) -> None:
    path.unlink(missing_ok=True)


def _refuse_folder(partial: Path, path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


@contextlib.contextmanager
def published(path: Path, together: FileTransaction | None = None, *, make_folder: bool = True) -> Iterator[Path]:
    """Yields a temporary path; its file is renamed to ``path`` when the block ends without an error.

    Args:
        path: The final path; the temporary file is in the same folder.
        together: A transaction that publishes the file when its block ends, instead of this block.
        make_folder: Whether to create the folder of ``path`` if it is missing.

    Raises:
        InputError: The file cannot be written.
    """
    partial, whole = path.with_name(f".{path.name}.{secrets.token_hex(4)}"), False
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch(exist_ok=False)
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        if together is None:
            os.replace(partial, path)
        else:
            together.add(partial, path)
        whole = True
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if not whole:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


class ArchiveWriter:
    """Writes an uncompressed ``.npz`` in parts; see :func:`published_archive`."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._zip = file

    def add(self, name: str, array: npt.ArrayLike) -> None:
        """Add a whole array."""
        value = np.asarray(array)
        self.add_parts(name, value.shape, value.dtype, [value])

    def add_parts(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, parts: Iterable[Array]) -> None:
        """Add an array of ``shape`` from its consecutive ``parts`` along the first axis."""
        header = io.BytesIO()
        described = np.lib.format.dtype_to_descr(np.dtype(dtype))
        np.lib.format.write_array_header_2_0(header, {"descr": described, "fortran_order": False, "shape": shape})
        with self._zip.open(f"{name}.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for part in parts:
                member.write(np.ascontiguousarray(part, dtype).data if part.size else b"")


@contextlib.contextmanager
def published_archive(path: Path, together: FileTransaction | None = None) -> Iterator[ArchiveWriter]:
    """Yields a writer of an ``.npz`` that is published as by :func:`published`; needs no copy of it in memory."""
    with published(path, together) as partial:
        file = zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED, allowZip64=True)
        try:
            yield ArchiveWriter(file)
        except BaseException:
            with contextlib.suppress(OSError, ValueError):  # the first error is raised
                file.close()
            raise
        file.close()


def write_text(path: Path, text: str, together: FileTransaction | None = None) -> None:
    """Write a text file in UTF-8 atomically; see :func:`published`."""
    write_bytes(path, text.encode("utf-8"), together)


def write_bytes(path: Path, data: bytes, together: FileTransaction | None = None) -> None:
    """Write a file atomically; see :func:`published`."""
    with published(path, together) as partial:
        partial.write_bytes(data)


def write_packed(path: Path, text: str) -> None:
    """Write a text file in a folder that exists; gzip when the name ends in ``.gz``.

    A path that is no regular file, such as a pipe, is written in place.  Raises :class:`InputError` when it cannot be
    written.
    """
    data = text.encode("utf-8")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
    except OSError as error:
        raise _cannot_write(path, error) from error
    with published(path, make_folder=False) as partial:
        partial.write_bytes(data)


@contextlib.contextmanager
def writable_folder(folder: Path) -> Iterator[None]:
    """Create ``folder`` if needed and check that it is writable; raises :class:`InputError` if not.

    If the block ends with an error, folders that were created here are removed if they are empty.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise _cannot_write(folder, error) from error
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()
        raise


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror or error}. Name a folder that you may write to.")
