"""Cooperative launches, whose blocks may wait for each other: PyCUDA has none, so they go to the driver itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from mmsbgen.base.errors import LaunchError, LaunchLimitError

#: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, and CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
_TOO_LARGE, _MOST_SHARED = 720, 8


@cache
def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _message(code: int) -> str:
    text = ctypes.c_char_p()
    _library().cuGetErrorString(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"CUDA error {code}"


class CooperativeFunction:
    """A kernel of a compiled module, for cooperative launches; the context must be current in every call.

    Raises :class:`LaunchError` if the module does not load.
    """

    def __init__(self, cubin: bytes, name: str) -> None:
        self._name = name
        self._shared = 0
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._checked(_library().cuModuleLoadData(ctypes.byref(module), cubin), "does not load")
        self._checked(
            _library().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), "is not in its module"
        )

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        packed: bytes,
        offsets: Sequence[int],
        stream: int,
        shared: int = 0,
    ) -> None:
        """Queue the kernel.

        Args:
            grid: blocks in one to three dimensions.
            block: threads of a block, likewise.
            packed: the parameters in the layout of a C struct.
            offsets: where each of them begins, in bytes.
            stream: the handle of a stream.
            shared: dynamic shared memory of a block in bytes.

        Raises:
            LaunchLimitError: more blocks than are resident at once.
            LaunchError: the launch was refused for another reason.
        """
        if shared > self._shared:
            code = _library().cuFuncSetAttribute(self._function, _MOST_SHARED, shared)
            self._checked(code, f"cannot have {shared} bytes of shared memory")
            self._shared = shared
        data = ctypes.create_string_buffer(packed, len(packed))
        begin = ctypes.addressof(data)
        places = (ctypes.c_void_p * len(offsets))(*(begin + offset for offset in offsets))
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        code = _library().cuLaunchCooperativeKernel(self._function, *sizes, shared, ctypes.c_void_p(stream), places)
        self._checked(code, f"cannot be launched with grid {tuple(grid)}, block {tuple(block)}")

    def _checked(self, code: int, what: str) -> None:
        if code:
            kind = LaunchLimitError if code == _TOO_LARGE else LaunchError
            raise kind(f"kernel {self._name!r} {what}: {_message(code)}")
