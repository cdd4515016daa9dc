"""The tokens of C source, without comments and white space, and one digest of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

__all__ = ["digest_of_tokens", "tokens"]

_CONTINUED = re.compile(r"\\[ \t]*\n")
_TOKEN = re.compile(
    r"""
    (?P<comment> /\*.*?\*/ | //[^\n]* )
  | (?P<blank> [^\S\n]+ )
  | (?P<newline> \n )
  | (?P<text> (?: \b(?:u8|[uUL])? R"(?P<mark>[^()\s\\"]*)\(.*?\)(?P=mark)"
              | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' ) )
  | (?P<define> \#[^\S\n]*define[^\S\n]+\w+\(? )
  | (?P<word> \.?\d(?:[eEpP][+-]|'\w|[\w.])* | \w+
            | <<= | >>= | \.\.\. | -> | \+\+ | -- | << | >> | [<>=!+*/%&|^-]= | && | \|\| | \#\# | :: | . )
    """,
    re.DOTALL | re.VERBOSE,
)


def tokens(source: str) -> Iterator[str]:
    """The tokens of ``source`` in their order; each preprocessor directive ends with a newline token.

    Strings are one token each, as they stand.  ``#define F(`` is one token, as white space before the parenthesis
    would make it another macro.
    """
    directive = False
    fresh = True
    for match in _TOKEN.finditer(_CONTINUED.sub("", source)):
        kind, text = match.lastgroup, match[0]
        if kind in ("comment", "blank"):
            continue
        if kind == "newline":
            if directive:
                yield text
            directive, fresh = False, True
            continue
        directive = directive or (fresh and text.startswith("#"))
        fresh = False
        yield " ".join(text[1:].split()) if kind == "define" else text
    if directive:
        yield "\n"


def digest_of_tokens(source: str) -> str:
    """The digest of the tokens of ``source`` (16 hexadecimal digits), the same in every process."""
    return hashlib.sha256("\0".join(tokens(source)).encode()).hexdigest()[:16]
