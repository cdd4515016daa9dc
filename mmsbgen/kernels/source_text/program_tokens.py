"""Tokens of C source, without comments and white space, and their digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

_CONTINUED = re.compile(r"\\[ \t]*\n")
_STRING = r'(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
_COMMENT = re.compile(rf"({_STRING})|/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#")
_DEFINE = re.compile(r"\s*#\s*define\s+\w+\(?")
_TOKEN = re.compile(
    rf"{_STRING}|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*"
    r"|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||##|::|\S"
)


def tokens(source: str) -> Iterator[str]:
    """The tokens of C, CUDA or OpenCL source in their order; each preprocessor directive ends with a newline token.

    A string literal is one token.  So is ``#define F(``, because white space before the parenthesis would define
    another macro.
    """
    code = _COMMENT.sub(lambda match: match[1] or " ", _CONTINUED.sub("", source))
    if "#" not in code:
        yield from _TOKEN.findall(code)
        return
    for line in code.split("\n"):
        if not _DIRECTIVE.match(line):
            yield from _TOKEN.findall(line)
            continue
        if defined := _DEFINE.match(line):
            yield " ".join(defined[0].replace("#", "", 1).split())
        yield from _TOKEN.findall(line, defined.end() if defined else 0)
        yield "\n"


def digest_of_tokens(source: str) -> str:
    """The digest of the tokens of ``source`` (16 hexadecimal digits), the same in every process."""
    return hashlib.sha256("\0".join(tokens(source)).encode()).hexdigest()[:16]
