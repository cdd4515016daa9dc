"""Libraries: imports of optional ones, and versions of those installed."""

from __future__ import annotations

import importlib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from threading import RLock
from types import ModuleType
from typing import Any

from mmsbgen.base.errors import MissingDependencyError

#: The extra that installs each optional library.
EXTRAS = {
    "arviz": "arviz",
    "cdlib": "cdlib",
    "cryptography": "fleet",
    "distributed": "fleet",
    "h5netcdf": "arviz",
    "igraph": "igraph",
    "kernel_tuner": "tune",
    "networkx": "graph",
    "pandas": "tables",
    "pyarrow": "tables",
}

#: Libraries that networkit imports if they are installed, for functions that mmsbgen does not use.
_UNUSED = ("IPython", "matplotlib", "networkx", "pandas", "plotly", "seaborn", "sklearn", "tabulate")
_lightly = False
_importing = RLock()


def import_lightly() -> None:
    """Import networkit, once it is needed, without the optional libraries of its plots and tables, which take seconds.

    Only for processes of the command line and of workers, which use none of these functions.
    """
    global _lightly
    _lightly = True


def networkit() -> Any:
    """The module networkit, imported at the first call."""
    with _importing:
        if not _lightly or "networkit" in sys.modules:
            return importlib.import_module("networkit")
        left_out = [name for name in _UNUSED if name not in sys.modules]
        for name in left_out:
            sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail, which networkit tolerates
        try:
            return importlib.import_module("networkit")
        finally:
            for name in left_out:
                sys.modules.pop(name, None)


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
