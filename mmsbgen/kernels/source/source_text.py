"""Formats rendered C source: indentation by braces, no stray white space, a blank line between functions.

The layout of the rendered source is then independent of the layout of the templates.  A digest of its tokens tells
whether two sources are the same program.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator

_INDENT = 4
_WORD = re.compile(r"\w+")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_DEFINE = re.compile(r"^#define (\w+)\b.*\n", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//.*")


def indent_source(text: str) -> str:
    """The same source with every line indented by the braces and parentheses that are open before it.

    Continuation lines of a statement and the body of a loop without braces are indented once more.  Only white space
    changes; within a comment of several lines only the indentation does.
    """
    lines: list[str] = []
    braces = parentheses = unfinished = 0
    in_comment = False
    shift = 0
    for raw in text.splitlines():
        line = raw.strip()
        if in_comment:
            inner = raw.rstrip()
            lines.append((" " * shift + inner if shift > 0 else inner[min(-shift, _leading(inner)) :]) if inner else "")
            in_comment = "*/" not in line
            continue
        if not line:
            if lines and lines[-1]:
                lines.append("")
            continue
        line = re.sub(r"\( +(?=[\w(])", "(", line)
        code = _COMMENT.sub("", _STRING.sub('""', line))
        in_comment = "/*" in code
        code = code.partition("/*")[0].strip()
        depth = braces - (1 if code.startswith("}") else 0)
        going_on = unfinished if braces > 0 and not code.startswith("{") else 0
        closes = 1 if code.startswith(")") else 0
        indent = _INDENT * (depth + going_on + max(0, parentheses - closes))
        shift = indent - _leading(raw)
        if lines and lines[-1] == "}" and not code.startswith("}"):
            lines.append("")
        lines.append(" " * indent + line)
        braces += code.count("{") - code.count("}")
        parentheses += code.count("(") - code.count(")")
        if code and not code.startswith("#") and parentheses == 0:
            unfinished = 0 if code[-1] in ";{}:" else unfinished + 1
    return "\n".join(lines).strip("\n") + "\n"


def without_unused_defines(text: str) -> str:
    """The same program without ``#define NAME ...`` lines whose name is not used elsewhere."""
    counts, defines = Counter(_words(text)), list(_DEFINE.finditer(text))
    while unused := [found for found in defines if counts[found[1]] == 1]:
        for found in unused:
            counts.subtract(_words(found[0]))
    kept, end = [], 0
    for found in defines:
        if not counts[found[1]]:
            kept.append(text[end : found.start()])
            end = found.end()
    return "".join([*kept, text[end:]])


def _words(text: str) -> list[str]:
    """The words outside comments."""
    return _WORD.findall(_COMMENT.sub("", text))


def _leading(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


_CONTINUED = re.compile(r"\\[ \t]*\n")
_QUOTED = r'(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
_COMMENTED = re.compile(rf"({_QUOTED})|/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#")
_MACRO = re.compile(r"\s*#\s*define\s+\w+\(?")
_TOKEN = re.compile(
    rf"{_QUOTED}|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*"
    r"|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||##|::|\S"
)


def tokens(source: str) -> Iterator[str]:
    """The tokens of C, CUDA or OpenCL source in their order; each preprocessor directive ends with a newline token.

    A string literal is one token.  So is ``#define F(``, because white space before the parenthesis would define
    another macro.
    """
    code = _COMMENTED.sub(lambda match: match[1] or " ", _CONTINUED.sub("", source))
    if "#" not in code:
        yield from _TOKEN.findall(code)
        return
    for line in code.split("\n"):
        if not _DIRECTIVE.match(line):
            yield from _TOKEN.findall(line)
            continue
        if defined := _MACRO.match(line):
            yield " ".join(defined[0].replace("#", "", 1).split())
        yield from _TOKEN.findall(line, defined.end() if defined else 0)
        yield "\n"


def digest_of_tokens(source: str) -> str:
    """The digest of the tokens of ``source`` (16 hexadecimal digits), the same in every process."""
    return hashlib.sha256("\0".join(tokens(source)).encode()).hexdigest()[:16]
