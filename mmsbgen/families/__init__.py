"""Families of kernels by name: those of the package, of other installed packages, and of users' files.

A new family of the package needs an entry in ``_FAMILIES`` and a folder of templates.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.kernels.family import KernelFamily

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["absolute", "declaration", "family", "names", "resolve_family"]

GROUP = "mmsbgen.families"
"""Group of the entry points by which installed packages add families."""
_FAMILIES = {
    "graph": "mmsbgen.families.graph:GRAPH",
    "mf": "mmsbgen.families.mf:MF",
    "mmsb": "mmsbgen.families.mmsb:MMSB",
}
_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>\w+))?")


def names() -> tuple[str, ...]:
    """The names of all registered families: those of the package, and the entry points of other packages."""
    return tuple(sorted({*_FAMILIES, *_installed()}))


def family(name: str = "mmsb") -> KernelFamily:
    """Import and return the registered family ``name``.

    Names that come over the network are resolved by this function only, as it runs no code that is not installed.

    Raises:
        InputError: If there is no such family, or its package cannot be imported.
    """
    if name in _FAMILIES:
        return _of_module(name, _FAMILIES[name])
    if name in _installed():
        point = _installed()[name]
        found = _of_module(name, point.value)
        if found.name != name:
            raise InputError(
                f"the entry point {name!r} ({point.value}) has the family {found.name!r}: rename one of them"
            )
        return found
    told = f"no family {name!r}; there are {', '.join(names())}"
    if ":" in name or "." in name:
        told += (
            f". Files and modules are run on the command line only: register it as an entry point of group {GROUP!r}"
        )
    raise InputError(told)


def resolve_family(reference: str) -> KernelFamily:
    """A family by a registered name, ``package.module:NAME``, ``FILE.py`` or ``FILE.py:NAME``.

    A file is run anew by each call; NAME may be left out if the file has one family.  Nothing beside it is imported.

    Raises:
        InputError: If there is no such family, or its module or file cannot be run.
    """
    if found := _FILE.fullmatch(reference):
        return _of_file(Path(found["path"]), found["name"])
    if ":" in reference:
        return _of_module(reference, reference)
    try:
        return family(reference)
    except InputError as error:
        raise InputError(f"{error}; name a file as FILE.py, what is in a module as MODULE:NAME") from None


def absolute(reference: str) -> str:
    """The reference with the absolute path of its file, for processes in other folders; others as they are."""
    found = _FILE.fullmatch(reference)
    return reference if found is None else str(Path(found["path"]).resolve()) + reference[found.end("path") :]


def declaration(reference: str) -> str:
    """A digest of the file that a reference names: launches and answers are in no program.  Empty for other names."""
    found = _FILE.fullmatch(reference)
    return "" if found is None else digest(Path(found["path"]).read_bytes().hex())


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes a twentieth of a second

    return {point.name: point for point in entry_points(group=GROUP)}


def _of_module(name: str, place: str) -> KernelFamily:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"no family {name!r} ({place}): {error}; install the module or mend its name") from None
    if not isinstance(found, KernelFamily):
        raise InputError(f"{place} is no family of kernels: name a KernelFamily of that module")
    return found


def _of_file(path: Path, name: str | None) -> KernelFamily:
    path = path.resolve()
    if not path.is_file():
        raise InputError(f"there is no file {path}: name a Python file that declares a family of kernels")
    module = ModuleType(f"mmsbgen_file_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look up the module of their class
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        raise InputError(f"{where}: {type(error).__name__}: {error}; mend the file") from error
    families = {key: value for key, value in vars(module).items() if isinstance(value, KernelFamily)}
    if name is None and len({id(value) for value in families.values()}) == 1:
        return next(iter(families.values()))
    if name in families:
        return families[name]
    there = f"it has {', '.join(families)}: write {path.name}:NAME" if families else "it has none: see own_kernel"
    raise InputError(f"{path} has no single family of kernels{f' {name!r}' if name else ''}; {there}")
