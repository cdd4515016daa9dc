"""CUDA launches that begin while the launch before them ends (programmatic dependent launches), by the driver itself.

PyCUDA passes no launch attributes and tells no ``CUfunction``, so that kernels launched so are loaded here.  Modules
and functions have those of PyCUDA's methods that the backend calls.

A launch with the attribute may begin once every block of the launch before has ended, or has said that it may. Its
kernel waits (:func:`mmsbgen.kernels.render.overlapping`), first of all or before it reads what the launch before
writes, until that launch is complete and all that it wrote visible. That launch had waited for the one before it in the
same way, or was a plain one or a copy, which begin after everything queued before them: so effects come in the order of
the queue, as with plain launches.

A block says so, or ends, after it has waited. So when a launch begins the one before the last is complete, and what
that one and earlier ones wrote may be read before the wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from typing import TYPE_CHECKING, Any

from mmsbgen.base.errors import MmsbgenError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["Function", "Library", "Module", "find"]

#: The first architecture, and the first version of CUDA's driver, that have such launches.
_FIRST_ARCHITECTURE, _FIRST_DRIVER = 90, 12000
#: CUlaunchAttributeID, CUfunction_attribute and the ends of cuLaunchKernelEx's list, by cuda.h.
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_MAX_THREADS_PER_BLOCK, _SHARED_SIZE_BYTES, _LOCAL_SIZE_BYTES, _NUM_REGS = 0, 1, 3, 4
_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2

_P, _INT = ctypes.c_void_p, ctypes.c_int
_CALLS: dict[str, list[Any]] = {
    "cuModuleLoadData": [_P, ctypes.c_char_p],
    "cuModuleGetFunction": [_P, _P, ctypes.c_char_p],
    "cuModuleUnload": [_P],
    "cuFuncGetAttribute": [_P, _INT, _P],
    "cuFuncSetAttribute": [_P, _INT, _INT],
    "cuLaunchKernelEx": [_P, _P, _P, _P],
    "cuGetErrorName": [_INT, _P],
    "cuGetErrorString": [_INT, _P],
}


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``, whose value is a union of 64 bytes."""

    _fields_ = (("id", _INT), ("pad", ctypes.c_char * 4), ("value", _INT), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", _P),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("n_attributes", ctypes.c_uint),
    )


def find(architecture: str, driver: int, error: type[Exception], name: str = "libcuda.so.1") -> Library | None:
    """The driver's library, where a GPU of this architecture ("sm_90") and a driver of this version (12000) overlap.

    ``error`` is what failed calls raise.
    """
    if int(architecture.removeprefix("sm_")) < _FIRST_ARCHITECTURE or driver < _FIRST_DRIVER:
        return None
    try:
        library = ctypes.CDLL(name)
        for call, types in _CALLS.items():
            function = getattr(library, call)
            function.argtypes, function.restype = types, _INT
    except (OSError, AttributeError):
        return None
    return Library(library, error)


class Library:
    """Calls of the driver; one that fails raises ``error`` with the driver's name and text for it."""

    def __init__(self, library: Any, error: type[Exception]) -> None:
        self.library = library
        self._error = error

    def call(self, name: str, *arguments: Any) -> None:
        """Make a call."""
        self.check(getattr(self.library, name)(*arguments), name)

    def check(self, code: int, name: str) -> None:
        """Raise where ``code``, the result of the call ``name``, is not that of success."""
        if code:
            texts = []
            for of in ("cuGetErrorName", "cuGetErrorString"):
                text = ctypes.c_char_p()
                getattr(self.library, of)(code, ctypes.byref(text))
                texts.append(text.value.decode() if text.value else f"error {code}")
            raise self.error(f"{name} failed: {texts[0]} - {texts[1]}")

    def error(self, text: str) -> Exception:
        """What is raised."""
        return self._error(text)


class Module:
    """Loaded code; ``active`` makes a context current, as it must be while one is loaded.

    Unloaded by :meth:`unload`, or when nothing refers to it or to a function of it.
    """

    def __init__(self, library: Library, cubin: bytes, active: Callable[[], AbstractContextManager[Any]]) -> None:
        handle = _P()
        library.call("cuModuleLoadData", ctypes.byref(handle), cubin)
        self.library = library
        self._handle = handle.value
        self._end = weakref.finalize(self, _unload, library, handle.value, active)
        self._end.atexit = False  # the process gives all back as it ends, and PyCUDA may be gone by then

    @property
    def loaded(self) -> bool:
        """Whether it was not unloaded yet."""
        return self._end.alive

    def get_function(self, name: str) -> Function:
        """The kernel called ``name``."""
        handle = _P()
        self.library.call("cuModuleGetFunction", ctypes.byref(handle), self._handle, name.encode())
        return Function(self, handle.value)

    def unload(self) -> None:
        """Give its memory back; doing so twice does nothing."""
        self._end()


def _unload(library: Library, handle: int | None, active: Callable[[], AbstractContextManager[Any]]) -> None:
    # A context that a kernel has ruined takes its modules with it.
    with contextlib.suppress(MmsbgenError), active():
        library.call("cuModuleUnload", handle)


class Function:
    """A kernel whose launches may begin while the launch before ends; its code must wait for that."""

    def __init__(self, module: Module, handle: int | None) -> None:
        self._module, self._handle = module, handle
        self._launch = module.library.library.cuLaunchKernelEx
        self.num_regs = self._attribute(_NUM_REGS)
        self.shared_size_bytes = self._attribute(_SHARED_SIZE_BYTES)
        self.local_size_bytes = self._attribute(_LOCAL_SIZE_BYTES)
        self.max_threads_per_block = self._attribute(_MAX_THREADS_PER_BLOCK)
        # Made once, as a launch is to take the host a few microseconds: only what differs is written again.
        self._overlap = _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        self._config = _Config(attributes=ctypes.pointer(self._overlap), n_attributes=1)
        self._config_at = ctypes.byref(self._config)
        self._shape: tuple[Any, ...] = ()
        self._take(0)

    def _attribute(self, number: int) -> int:
        value = _INT()
        self._module.library.call("cuFuncGetAttribute", ctypes.byref(value), number, self._handle)
        return value.value

    def _take(self, size: int) -> None:
        """Room for parameters of ``size`` bytes, and the list that names it."""
        self._parameters = (ctypes.c_char * size)()
        self._size = ctypes.c_size_t(size)
        at, size_at = ctypes.addressof(self._parameters), ctypes.addressof(self._size)
        self._extra = (_P * 5)(_BUFFER_POINTER, at, _BUFFER_SIZE, size_at, _END)

    def set_attribute(self, attribute: Any, value: int) -> None:
        """Set an attribute of PyCUDA's ``function_attribute``, whose numbers are those of the driver."""
        self._module.library.call("cuFuncSetAttribute", self._handle, int(attribute), value)

    def _launch_kernel(
        self, grid: tuple[int, ...], block: tuple[int, ...], packed: bytes, shared: int, stream: Any
    ) -> None:
        """As PyCUDA's: ``packed`` is the struct of the parameters, which the driver copies."""
        if not self._module.loaded:
            raise self._module.library.error("the kernel was unloaded as its device was closed")
        shape = (grid, block, shared, stream)
        if shape != self._shape:
            config = self._config
            config.grid[:] = (*grid, 1, 1)[:3]
            config.block[:] = (*block, 1, 1)[:3]
            config.shared = shared
            config.stream = stream.handle
            self._shape = shape
        if len(packed) != self._size.value:
            self._take(len(packed))
        self._parameters.raw = packed
        code = self._launch(self._config_at, self._handle, None, self._extra)
        if code:
            self._module.library.check(code, "cuLaunchKernelEx")
