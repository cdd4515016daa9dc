"""Programs and contexts that the devices opened in a process share, so that each source is built once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.base.errors import CompileError

POCL = "Portable Computing Language"
#: A program takes a megabyte.
_KEPT = 64


_open, _lock = 0, Lock()


def opened(handle: Any) -> Any:
    """The context of a device that is opened, and counted until :func:`closed`."""
    global _open
    with _lock:
        found = context_of(handle)
        _open += 1
        return found


def closed() -> None:
    """Count a device that is closed; after the last one nothing is kept."""
    global _open
    with _lock:
        _open -= 1
        if not _open:
            built.cache_clear()
            context_of.cache_clear()


@lru_cache
def context_of(handle: Any) -> Any:
    """The ``cl_context`` of a ``pyopencl.Device`` in this process."""
    import pyopencl

    return pyopencl.Context([handle])


@lru_cache(maxsize=_KEPT)
def built(
    info: DeviceInfo, handle: Any, source: str, options: tuple[str, ...], kernel_names: tuple[str, ...]
) -> tuple[Any, str]:
    """A built ``cl_program`` with its log; raises :class:`CompileError` with the log.

    PoCL preprocesses each source for 20 ms before it looks into its own cache, so the last programs are kept.
    """
    import pyopencl as cl

    what = f"kernels {', '.join(kernel_names)} on {info.name} ({info.platform})"
    # PoCL and NVIDIA's driver cache what they compile; Intel's runtime does not.
    if info.platform == POCL or "NVIDIA" in info.platform:
        return _build(handle, source, options, what)
    cache = _cache(BinaryCache().folder)
    key = BinaryCache.key([info.platform, info.name, info.architecture, info.compiler, repr(options), source])
    if (cached := cache.load(key)) is not None:
        with contextlib.suppress(cl.Error), _no_warnings():
            program = cl.Program(context_of(handle), [handle], [cached[0]]).build()
            if set(kernel_names) <= set(program.get_info(cl.program_info.KERNEL_NAMES).split(";")):
                return program, cached[1]
        cache.discard(key)
    program, log = _build(handle, source, options, what)
    cache.store(key, program.get_info(cl.program_info.BINARIES)[0], log)
    return program, log


@lru_cache
def _cache(folder: Path) -> BinaryCache:
    return BinaryCache(folder)


def _build(handle: Any, source: str, options: tuple[str, ...], what: str) -> tuple[Any, str]:
    """Build from source without PyOpenCL's own cache, which a killed process would leave locked."""
    import pyopencl as cl

    program = cl.Program(context_of(handle), source)
    # PyOpenCL warns of every build log and of bypassing its cache; the log is returned instead.
    with _no_warnings():
        program.get_info(cl.program_info.CONTEXT)
        try:
            program.build(list(options))
        except cl.Error as error:
            log = program.get_build_info(handle, cl.program_build_info.LOG).strip()
            raise CompileError(f"{what} did not compile, options {list(options)}:\n{log or error}") from None
        log = program.get_build_info(handle, cl.program_build_info.LOG).strip()
    return program, log


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
