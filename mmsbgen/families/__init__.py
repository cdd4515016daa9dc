"""Families of kernels.  Adding one is adding its module here and its folder of templates."""

from __future__ import annotations

import importlib

from mmsbgen.base.errors import InputError
from mmsbgen.kernels.family import KernelFamily

_FAMILIES = {"mmsb": "mmsbgen.families.mmsb:MMSB"}


def names() -> tuple[str, ...]:
    """The names of all families."""
    return tuple(sorted(_FAMILIES))


def family(name: str = "mmsb") -> KernelFamily:
    """The family called ``name``, imported when asked for; raises :class:`InputError` for an unknown one."""
    if name not in _FAMILIES:
        raise InputError(f"no family {name!r}; there are {', '.join(sorted(_FAMILIES))}")
    module, _, attribute = _FAMILIES[name].partition(":")
    found: KernelFamily = getattr(importlib.import_module(module), attribute)
    return found
