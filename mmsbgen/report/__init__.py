"""Reports with pictures: the results of a run, and the records of a tuning database.

``import mmsbgen`` imports none of it; the modules that draw need Matplotlib (extra ``report``).
"""

from __future__ import annotations

from mmsbgen.base.errors import MissingDependencyError


def need_matplotlib() -> None:
    """Raise :class:`MissingDependencyError`, which names the extra, if Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures need Matplotlib: install it with pip install 'mmsbgen[report]' ({error})"
        ) from error
