"""The shared console on standard error, which prints messages above a progress bar, and texts of others on it."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: Control characters, other line ends, marks of the direction of text, and surrogates, which no output can encode.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    """``text`` with the characters escaped that control a terminal or hide what is written, but for tabs and line ends.

    Texts of files, of their names and of compilers go through it before they reach a terminal or a log.
    """
    return _CONTROLS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


@functools.cache
def stderr() -> Console:
    """The console, created on first use; it writes to the current ``sys.stderr``."""
    from rich.console import Console

    return Console(stderr=True)
