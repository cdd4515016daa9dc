"""Registry of kernel families.

A new family needs an entry in ``_FAMILIES`` and a folder of templates.
"""

from __future__ import annotations

import importlib

from mmsbgen.base.errors import InputError
from mmsbgen.kernels.family import KernelFamily

_FAMILIES = {"graph": "mmsbgen.families.graph:GRAPH", "mmsb": "mmsbgen.families.mmsb:MMSB"}


def names() -> tuple[str, ...]:
    """The names of all families."""
    return tuple(sorted(_FAMILIES))


def family(name: str = "mmsb") -> KernelFamily:
    """Import and return the family ``name``.

    Raises:
        InputError: If there is no such family.
    """
    if name not in _FAMILIES:
        raise InputError(f"no family {name!r}; there are {', '.join(sorted(_FAMILIES))}")
    module, _, attribute = _FAMILIES[name].partition(":")
    found: KernelFamily = getattr(importlib.import_module(module), attribute)
    return found
