"""Libraries: imports of optional ones, and versions of those installed."""

from __future__ import annotations

import importlib
import platform
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from mmsbgen.base.errors import MissingDependencyError

#: The extra that installs each optional library.
EXTRAS = {
    "arviz": "arviz",
    "cdlib": "cdlib",
    "h5netcdf": "arviz",
    "igraph": "igraph",
    "networkx": "graph",
    "pandas": "tables",
    "pyarrow": "tables",
}


def library(name: str, what: str) -> ModuleType:
    """Import a library such as ``pyarrow.parquet``; raises MissingDependencyError, naming the extra, if missing."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingDependencyError(
            f"{package} is not installed, which {what} need; get it with: pip install 'mmsbgen[{EXTRAS[package]}]'"
        ) from None


def versions(*names: str) -> dict[str, str]:
    """The versions of Python and of the installed distributions among ``names``, by name."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
