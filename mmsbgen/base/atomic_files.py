"""Writing ``.npz`` archives a part at a time, published by one rename: never a whole copy, never half a file."""

from __future__ import annotations

import contextlib
import errno
import io
import os
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


class Together:
    """Files that appear under their names when the block that writes them ends without an error, or none of them.

    Each is written whole beside its place, so that there is room for all before the first one is replaced.  What was
    there of the last one is removed before that: where a kill comes between the renames, it is missing, which tells
    that the others may be of two runs.  Raises :class:`InputError` when one cannot be put there.
    """

    def __init__(self) -> None:
        self._written: list[tuple[Path, Path]] = []

    def add(self, partial: Path, path: Path) -> None:
        """Let the whole file ``partial``, of the same file system, be ``path`` in the end."""
        self._written.append((partial, path))

    def __enter__(self) -> Together:
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


class ArchiveWriter:
    """An uncompressed ``.npz`` that appears under its name when the block that writes it ends without an error.

    With ``together`` it appears when that ends.  Raises :class:`InputError` when the folder cannot be written.
    """

    def __init__(self, path: Path, together: Together | None = None) -> None:
        self.path, self._together = path, together
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            raise _cannot_write(path, error) from error
        self._partial, self._whole = Path(name), False
        self._file = os.fdopen(handle, "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED, allowZip64=True)

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

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self._publish()
                self._whole = True
        except OSError as failed:
            raise _cannot_write(self.path, failed) from failed
        finally:
            with contextlib.suppress(OSError, ValueError):
                self._zip.close()
            with contextlib.suppress(OSError):
                self._file.close()
            if not self._whole:
                self._partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(self.path, error) from error

    def _publish(self) -> None:
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.chmod(self._partial, 0o644)
        if self._together is None:
            os.replace(self._partial, self.path)
        else:
            self._together.add(self._partial, self.path)


@contextlib.contextmanager
def published(path: Path, together: Together | None = None) -> Iterator[Path]:
    """A place to write a file that appears under ``path`` when the block ends without an error, whole or not at all.

    With ``together`` it appears when that ends.  Raises :class:`InputError` when it cannot be written.
    """
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        partial = Path(name)
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        os.chmod(partial, 0o644)
        if together is None:
            os.replace(partial, path)
        else:
            together.add(partial, path)
        partial = None
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, together: Together | None = None) -> None:
    """Write a text file that appears as :func:`published` has it."""
    with published(path, together) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def write_bytes(path: Path, data: bytes, together: Together | None = None) -> None:
    """Write a file that appears as :func:`published` has it."""
    with published(path, together) as partial:
        partial.write_bytes(data)


@contextlib.contextmanager
def writable_folder(folder: Path) -> Iterator[None]:
    """Make sure, before work begins, that files can be made in ``folder``; raises :class:`InputError` if not.

    A folder that was made for it is gone when the block ends with an error and nothing is in it.
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
