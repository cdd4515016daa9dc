"""For the API reference: roles in docstrings become names in code, declared options show their help and default."""

from __future__ import annotations

import ast
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

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Called for each attribute: of ``option(default, help, ...)`` the help is shown, and the default."""
        call = attr.value
        if isinstance(call, griffe.ExprCall) and str(call.function) == "option":
            default, text = call.arguments[:2]
            attr.value = None if str(default) == "MISSING" else default
            attr.docstring = griffe.Docstring(ast.literal_eval(str(text)), parent=attr)
