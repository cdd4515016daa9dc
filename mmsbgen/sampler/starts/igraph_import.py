"""igraph for processes of our own, which draw nothing with it."""

from __future__ import annotations

import sys

__all__ = ["import_without_pictures"]


def import_without_pictures() -> None:
    """Import igraph as where there is no matplotlib, whose ``pyplot`` takes five times as long as all of igraph.

    For processes of the command line and of workers alone: igraph draws nothing in them.  Where either library is
    loaded already nothing is changed.
    """
    if "igraph" in sys.modules or "matplotlib" in sys.modules:
        return
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # an import of it fails, igraph goes without
    try:
        import igraph  # noqa: F401
    finally:
        del sys.modules["matplotlib"]
