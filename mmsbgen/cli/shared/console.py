"""The one console on standard error, so that messages go above a bar that is being drawn."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@functools.cache
def stderr() -> Console:
    """Made when first needed; it writes to what ``sys.stderr`` is at the time."""
    from rich.console import Console

    return Console(stderr=True)
