"""Atomic file writes: files are written under a temporary name and published by a rename.

Archives of arrays are written, and read, without compression.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import io
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain

Array = npt.NDArray[Any]
#: What reading a damaged archive raises.
DAMAGED = (zipfile.BadZipFile, zlib.error)
#: What reading the content of a foreign or forged archive raises.
FOREIGN = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)

_ENCRYPTED = 1

#: Seconds without a change before a temporary file may be taken for that of a killed process.
_ABANDONED_S = 60.0


@contextlib.contextmanager
def readable_archive(path: Path, what: str, *, name: str, again: str, missing: str = "file") -> Iterator[None]:
    """Turn errors of NumPy and zipfile on a damaged or foreign file into an :class:`InputError`.

    ``what`` the file should be, such as "model"; ``name`` and ``again`` say what to do, ``missing`` what is not there.
    """
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no {missing} {path}; check the path, or name {name}") from None
    except FOREIGN as error:
        raise InputError(f"{path} is no {what} of mmsbgen ({plain(error, 200)}); name {name}") from None
    except DAMAGED as error:
        raise InputError(f"{path} is damaged or no {what} of mmsbgen ({error}); {again}") from None


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
        self._locks = contextlib.ExitStack()

    def add(self, partial: Path, path: Path, lock: contextlib.ExitStack) -> None:
        """Publish the complete file ``partial``, on the same file system, as ``path`` at the end of the block.

        ``lock`` is closed then.
        """
        self._written.append((partial, path))
        self._locks.push(lock)

    def __enter__(self) -> FileTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            for partial, _ in self._written:
                partial.unlink(missing_ok=True)
            self._locks.close()

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

    The temporary file is locked until then.  Those of ``path`` that are not locked are left by processes that were
    killed, and are removed.  A path that is no regular file, such as ``/dev/stdout``, is not replaced but written to.

    Args:
        path: The final path; the temporary file is in the same folder.  Of a link, the file that it leads to.
        together: A transaction that publishes the file when its block ends, instead of this block.
        make_folder: Whether to create the folder of ``path`` if it is missing.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        if _is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                yield (partial := Path(folder, path.name))
                number = _descriptor(path)  # opened by its name, a file that it is appended to would be emptied
                with (
                    contextlib.suppress(BrokenPipeError),  # what nobody reads is dropped
                    partial.open("rb") as written,
                    open(path if number is None else number, "wb", closefd=number is None) as stream,
                ):
                    shutil.copyfileobj(written, stream)
            return
        if path.is_symlink():
            path = Path(os.path.realpath(path))
    except OSError as error:
        raise _cannot_write(path, error) from error
    partial, whole = path.with_name(f".{path.name}.{secrets.token_hex(4)}"), False
    with contextlib.ExitStack() as lock:
        try:
            if make_folder:
                path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            lock.callback(os.close, descriptor)
            with contextlib.suppress(OSError):  # not all file systems have locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield partial
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            if together is None:
                os.replace(partial, path)
            else:
                together.add(partial, path, lock.pop_all())
            whole = True
        except OSError as error:
            raise _cannot_write(path, error) from error
        finally:
            if not whole:
                with contextlib.suppress(OSError):
                    partial.unlink(missing_ok=True)


def _descriptor(path: Path) -> int | None:
    """The descriptor of an open file that a path such as ``/dev/stdout`` or ``/dev/fd/3`` names, else None."""
    name = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}.get(str(path), str(path))
    found = re.fullmatch(r"(?:/dev|/proc/self)/fd/(\d+)", name)
    return None if found is None else int(found[1])


def _is_stream(path: Path) -> bool:
    return _descriptor(path) is not None or (os.path.exists(path) and not path.is_file() and not path.is_dir())


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of ``path`` whose processes were killed."""
    form = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}")
    with contextlib.suppress(OSError), os.scandir(path.parent) as found:
        for entry in found:
            if form.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    remove_unlocked(entry)


def remove_unlocked(entry: os.DirEntry[str]) -> None:
    """Remove a regular file that is not locked and was not changed lately; raises OSError if it is locked."""
    # A process locks its file just after it has made it.
    if time.time() - entry.stat(follow_symlinks=False).st_mtime < _ABANDONED_S:
        return
    descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(entry.path)
    finally:
        os.close(descriptor)


class ArchiveWriter:
    """Writes an uncompressed ``.npz`` in parts; see :func:`published_archive`."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._zip = file

    def add(self, name: str, array: npt.ArrayLike) -> None:
        """Add a whole array."""
        value = np.asarray(array)
        self.add_parts(name, value.shape, value.dtype, [value])

    def add_json(self, name: str, value: Any) -> None:
        """Add a value as JSON, in an array of bytes."""
        self.add(name, np.frombuffer(json.dumps(value).encode(), np.uint8))

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


@contextlib.contextmanager
def stored_arrays(file: IO[bytes]) -> Iterator[Mapping[str, Array]]:
    """Open the arrays of an archive; they take no more memory than the file has bytes.

    Raises BadZipFile for a file that is no whole archive, and ValueError for one with compressed or encrypted arrays.
    """
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile("it is no whole archive")
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
                raise ValueError(f"its {member.filename} is compressed or encrypted")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        yield arrays


def array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is Fortran's, and type of a ``.npy`` file, read up to its first element."""
    version = np.lib.format.read_magic(file)
    return (np.lib.format.read_array_header_2_0 if version >= (2, 0) else np.lib.format.read_array_header_1_0)(file)


def write_text(path: Path, text: str, together: FileTransaction | None = None) -> None:
    """Write a text file in UTF-8 atomically; see :func:`published`."""
    write_bytes(path, text.encode("utf-8"), together)


def write_bytes(path: Path, data: bytes, together: FileTransaction | None = None) -> None:
    """Write a file atomically; see :func:`published`."""
    with published(path, together) as partial:
        partial.write_bytes(data)


def write_packed(path: Path, text: str, *, make_folder: bool = False) -> None:
    """Write a text file, by default in a folder that exists; gzip when the name ends in ``.gz``.

    Raises :class:`InputError` when it cannot be written.
    """
    data = text.encode("utf-8")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    with published(path, make_folder=make_folder) as partial:
        partial.write_bytes(data)


def place_of(path: Path) -> contextlib.AbstractContextManager[None]:
    """The :func:`writable_folder` of a file before the work that it is for; nothing for a pipe or a device."""
    if _is_stream(path):
        return contextlib.nullcontext()
    return writable_folder(Path(os.path.realpath(path)).parent)


@contextlib.contextmanager
def writable_folder(folder: Path) -> Iterator[None]:
    """Create ``folder`` if needed and check that it is writable; raises :class:`InputError` if not.

    If the block ends with an error, folders that were created here are removed if they are empty.
    """
    made: list[Path] = []
    try:
        try:
            made += [path for path in (folder, *folder.parents) if not path.exists()]
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
    remedies = {errno.ENAMETOOLONG: "Give a shorter name"} | dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT), "Free some space there, or name another folder"
    )
    remedy = remedies.get(error.errno or 0, "Name a folder that you may write to")
    return InputError(f"cannot write {path}: {error.strerror or error}. {remedy}.")
