"""For the API reference: references in docstrings, such as a class role with a dotted name, become names in code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:py:)?(?:attr|class|data|func|meth|mod):`(~?)([^`]+)`")


def _name(found: re.Match[str]) -> str:
    short, name = found.groups()
    return f"`{name.rpartition('.')[2] if short else name}`"


class Roles(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_name, obj.docstring.value)
