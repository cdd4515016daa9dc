"""Pictures and pages of what a run found and of what the tuning database holds.

Nothing here is imported by ``import mmsbgen``; the modules that draw need Matplotlib (extra ``report``).
"""

from __future__ import annotations

from mmsbgen.base.errors import MissingDependencyError


def need_matplotlib() -> None:
    """Raise :class:`MissingDependencyError`, which names the extra, where Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures need Matplotlib: install it with pip install 'mmsbgen[report]' ({error})"
        ) from error
