"""Import igraph without matplotlib."""

from __future__ import annotations

import sys

__all__ = ["import_without_pictures"]


def import_without_pictures() -> None:
    """Import igraph without matplotlib, whose ``pyplot`` takes five times as long to import as igraph itself.

    Only for processes of the command line and of workers, which do not plot with igraph.  Does nothing if either
    library is already imported.
    """
    if "igraph" in sys.modules or "matplotlib" in sys.modules:
        return
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # makes its import fail, which igraph tolerates
    try:
        import igraph  # noqa: F401
    finally:
        del sys.modules["matplotlib"]
