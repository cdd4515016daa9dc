"""Versions of Python and of libraries, none of which is imported for it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["versions"]


def versions(*names: str) -> dict[str, str]:
    """The version of Python, and of every distribution among ``names`` that is installed."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
