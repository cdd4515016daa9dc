"""Which definitions a function rests on, read from the sources, and one digest of them.  For the scripts that check."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

#: A definition at the top of a module: the module's name and its own, which is "*" for all of a module.
Name = tuple[str, str]


class _Module(NamedTuple):
    """What stands at the top of a module: statements by the name that they define, and where other names are from."""

    defined: dict[str, list[ast.stmt]]
    imported: dict[str, Name]


@functools.cache
def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is a module and no package
        return False


@functools.cache
def _module(name: str) -> _Module:
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    assert spec.origin is not None, name
    found = _Module({}, {})
    for statement in _statements(ast.parse(Path(spec.origin).read_text()).body):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                found.imported[alias.asname or whole] = (whole, "*")
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                found.imported[alias.asname or alias.name] = (str(statement.module), alias.name)
        else:
            for defined in _defines(statement):
                found.defined.setdefault(defined, []).append(statement)
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under ``if`` and ``try`` among them."""
    for statement in body:
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for block in [*blocks, *(handler.body for handler in getattr(statement, "handlers", []))]:
                yield from _statements(block)
        else:
            yield statement


def _defines(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


class _Uses(ast.NodeVisitor):
    """Names that a definition looks up when it runs, with the attribute that it takes of each; no annotations."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str]] = set()

    def visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name):
                    self.found.add((child.value.id, child.attr))
                elif isinstance(child, ast.Name):
                    self.found.add((child.id, "*"))
                elif isinstance(child, ast.AST):
                    self.visit(child)


def closure(functions: list[Callable[..., Any]], package: str) -> dict[Name, str]:
    """The definitions that functions rest on, themselves included, each as its syntax without comments and docstrings.

    Definitions of ``package`` are followed, no others.  A name is taken for a use wherever it stands, so that there are
    rather too many than too few.
    """
    found: dict[Name, str] = {}
    pending = [_home(function) for function in functions]
    while pending:
        module, name = place = pending.pop()
        if place in found or not f"{module}.".startswith(f"{package}."):
            continue
        top = _module(module)
        if name == "*":
            found[place] = ""
            pending += [(module, each) for each in top.defined]
        elif name in top.defined:
            found[place] = "\n".join(_plain(statement) for statement in top.defined[name])
            uses = _Uses()
            for statement in top.defined[name]:
                uses.visit(statement)
            pending += [target for use in uses.found for target in _resolved(module, *use)]
        else:
            pending += _resolved(module, name, "*")
    return found


def _home(function: Callable[..., Any]) -> Name:
    """Where a function is defined; all of its module where it has no name at the top, as a lambda."""
    name = function.__qualname__.partition(".")[0]
    return (function.__module__, name if name in _module(function.__module__).defined else "*")


def _resolved(module: str, name: str, attribute: str) -> list[Name]:
    """Where the attribute of a name, or the name itself, is defined, if it is a module's and not a function's own."""
    top = _module(module)
    if name in top.defined:
        return [(module, name)]
    if name not in top.imported:
        return []
    source, original = top.imported[name]
    if original == "*":
        inner = f"{source}.{attribute}"
        return [(inner, "*")] if attribute != "*" and _exists(inner) else [(source, attribute)]
    inner = f"{source}.{original}"
    return [(inner, attribute)] if _exists(inner) else [(source, original)]


def _plain(statement: ast.stmt) -> str:
    copy = ast.parse(ast.unparse(statement))
    for node in ast.walk(copy):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(copy)


def digest(functions: list[Callable[..., Any]], package: str) -> str:
    """One digest (16 hexadecimal digits) of the definitions that functions rest on."""
    found = closure(functions, package)
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]
