"""Versions of Python and of libraries, read without importing them."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["versions"]


def versions(*names: str) -> dict[str, str]:
    """The versions of Python and of the installed distributions among ``names``, by name."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
