"""Imports of optional libraries."""

from __future__ import annotations

import importlib
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
