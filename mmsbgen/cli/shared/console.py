"""The shared console on standard error, which prints messages above a progress bar."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@functools.cache
def stderr() -> Console:
    """The console, created on first use; it writes to the current ``sys.stderr``."""
    from rich.console import Console

    return Console(stderr=True)
