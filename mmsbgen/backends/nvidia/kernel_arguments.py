"""Arguments of CUDA kernels: device buffers and the layout of the parameters."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmsbgen.backends.base import Argument, Buffer
from mmsbgen.base.errors import InputError, LaunchError


class CudaBuffer(Buffer):
    """A linear allocation of device memory."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], handle: Any) -> None:
        super().__init__(shape, dtype)
        self.handle = handle
        self.address = 0 if handle is None else int(handle)

    @property
    def released(self) -> bool:
        return self.handle is None

    def release(self) -> None:
        handle, self.handle, self.address = self.handle, None, 0
        if handle is not None:
            handle.free()


def address_of(buffer: Buffer) -> int:
    """The device address of a buffer; raises :class:`InputError` for one that is released or of another backend."""
    if not isinstance(buffer, CudaBuffer) or buffer.released:
        raise InputError(f"{buffer!r} is no buffer that this device can use")
    return buffer.address


class Layout:
    """The C struct layout of a kernel's parameters, from the argument types of a launch.

    ``name`` names the launch in messages.  Raises :class:`LaunchError` for an unsupported scalar type, and
    :class:`InputError` for a buffer that is released or of another backend.
    """

    def __init__(self, args: Sequence[Argument], name: object) -> None:
        codes = ""
        for position, arg in enumerate(args):
            if isinstance(arg, Buffer):
                address_of(arg)
                codes += "P"
            elif arg.dtype.char in "?bBhHiIlLqQefd":
                codes += arg.dtype.char
            else:
                raise LaunchError(f"{name}: argument {position} is a NumPy {arg.dtype}, which no kernel takes")
        self._types, self._buffers = [type(arg) for arg in args], [code == "P" for code in codes]
        self._struct = struct.Struct(codes)
        #: Where each parameter begins, in bytes.
        self.offsets = [struct.calcsize(codes[: at + 1]) - struct.calcsize(code) for at, code in enumerate(codes)]

    def pack(self, args: Sequence[Any]) -> bytes | None:
        """The packed arguments of a launch; None if their types differ or a buffer was released."""
        if [type(arg) for arg in args] != self._types:
            return None
        values = []
        for arg, is_buffer in zip(args, self._buffers, strict=True):
            value = arg.address if is_buffer else arg.item()
            if is_buffer and not value:
                return None
            values.append(value)
        return self._struct.pack(*values)
