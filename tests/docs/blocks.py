"""Runs the code blocks of a page of the documentation, and holds what they print against what the page shows.

A block says what it is by its language:

* ``bash``: commands; they must succeed.  What they print is not shown.
* ``console``: commands after ``$ ``, each with what it prints (both streams) below it.  ``...`` stands for anything, as
  in doctest.  A command must succeed unless its output has a line that begins with ``Error``.
* ``python``: run in one namespace a page.
* ``text``: no code.  Titled *output* it is what the Python block before it prints.

A title, which readers see too, says what is special: *numbers vary* leaves numbers out of the comparison, *output
depends on the machine* the whole output; with any other title, such as *needs the network*, a block is not run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

LANGUAGES = ("bash", "console", "python", "text")
VARIES = "numbers vary"
DEPENDS = "output depends on the machine"
OUTPUT = "output"
TITLES = (VARIES, DEPENDS, OUTPUT)

_FENCES = RawFencedCodeBlockLexer(re.compile(r"(?P<info>[^\n]*)\n"))
_INFO = re.compile(r'(?P<language>[a-z]+)(?: title="(?P<title>[^"]+)")?')
_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?(?:ns|us|ms|s|MB|GB|GiB|MiB|KiB)\b)?")
_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: What a run says of itself where it takes long.
_PROGRESS = re.compile(r"^.*: .*(?:\d s left|\d s so far)\n", re.MULTILINE)
#: Longer than any block of a page may take.
_LIMIT_S = 120


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: its first line's number, language, title and text."""

    line: int
    language: str
    title: str
    text: str

    @property
    def reason(self) -> str | None:
        """Why it is not run, or None."""
        return self.title if self.language != "text" and self.title and self.title not in TITLES else None

    @property
    def first(self) -> str:
        """Its first line, without a prompt."""
        return self.text.partition("\n")[0].removeprefix("$ ")


def blocks(document: Document) -> Iterator[tuple[Region, Block]]:
    """The fenced blocks of a document; raises AssertionError for a first line that is not in the form above."""
    for region in _FENCES(document):
        lexemes = region.lexemes
        line = document.text.count("\n", 0, region.start) + 1
        found = _INFO.fullmatch(lexemes["info"].strip())
        assert found, f"{document.path}:{line}: write ```LANGUAGE or ```LANGUAGE title=..., not ```{lexemes['info']}"
        yield region, Block(line, found["language"], found["title"] or "", str(lexemes["source"]))


@dataclass
class Shell:
    """A shell whose folder and exported variables last from one block of a page to the next."""

    folder: Path
    env: dict[str, str]
    state: Path
    shown_as: dict[str, str] = field(default_factory=dict)
    """Folders and the processor's name, and what pages show in their place."""
    groups: list[int] = field(default_factory=list)

    def run(self, command: str) -> tuple[int, str]:
        """Exit status and output (both streams) of a piece of a script, which stops where a command fails."""
        state = shlex.quote(str(self.state))
        kept = f'{{ declare -px; printf "cd %q\\n" "$PWD"; }} >{state}'
        keep = f"trap 'status=$?; {kept}; exit $status' EXIT"
        before = f". {state}\n" if self.state.exists() else ""
        log = self.state.with_suffix(".log")
        # Output goes to a file, as a pipe would be kept open by what goes on in the background.
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", f"{before}{keep}\n{command}\n"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            status = process.wait(_LIMIT_S)
        text = _PROGRESS.sub("", log.read_text(encoding="utf-8"))
        for here, shown in self.shown_as.items():
            text = text.replace(here, shown)
        return status, text

    def close(self) -> None:
        """End what was left running in the background."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block, each with the output shown below it."""
    command: list[str] = []
    shown: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield "\n".join(command), "\n".join(shown)
            command, shown = [line[2:]], []
        elif command and command[-1].endswith("\\") and not shown:
            command.append(line.removeprefix("> "))
        else:
            assert command, f"a console block begins with {line!r}, not with a prompt"
            shown.append(line)
    yield "\n".join(command), "\n".join(shown)


def same(shown: str, got: str, numbers_vary: bool) -> bool:
    """Whether the output is what the page shows, whatever the white space."""
    if numbers_vary:
        shown, got = (_NUMBER.sub("#", text) for text in (shown, got))
    return doctest.OutputChecker().check_output(shown.strip() + "\n", got.strip() + "\n", _SAME)


class Page:
    """Evaluates the blocks of one page in their order."""

    def __init__(self, shell: Shell, update: bool = False) -> None:
        self.shell = shell
        self.update = update
        """Whether what differs is renewed instead of reported."""
        self.renewed: dict[int, str] = {}
        """New texts of blocks, by the number of their first line."""
        self.python = PythonEvaluator()
        self.printed = ""
        self.ran = 0

    def parse(self, document: Document) -> Iterable[Region]:
        """A parser of sybil's: every block is a region that this page evaluates."""
        for region, block in blocks(document):
            region.parsed, region.evaluator = region.lexemes["source"], self.evaluate
            region.lexemes["block"] = block
            yield region

    def evaluate(self, example: Example) -> None:
        """Run one block; raises AssertionError for what is wrong."""
        block: Block = example.region.lexemes["block"]
        where = f"{example.path}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: {block.language!r} is not one of {', '.join(LANGUAGES)}"
        if block.reason is not None:
            return
        if block.language == "text":
            if block.title in TITLES:
                self.renew(block, self.shown(block, block.text, self.printed, where))
            return
        self.ran += 1
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.python(example)
            self.printed = printed.getvalue()
        elif block.language == "bash":
            status, got = self.shell.run(block.text)
            assert status == 0, f"{where}: exit status {status}\n{block.text}\n{got}"
        else:
            self.renew(block, "".join(self.session(block, where)))

    def session(self, block: Block, where: str) -> Iterator[str]:
        """Run the commands of a console block; the text of each as it is to be shown."""
        for command, shown in commands(block.text):
            status, got = self.shell.run(command)
            fails = re.search(r"^Error", shown, re.MULTILINE) is not None
            assert (status != 0) == fails or self.update, f"{where}: {command}: exit status {status}\n{got}"
            prompt = "$ " + command.replace("\n", "\n> ") + "\n"
            yield prompt + self.shown(block, shown, got, f"{where}: {command}")

    def shown(self, block: Block, shown: str, got: str, what: str) -> str:
        """The output to show: what the page has where it is right.  Raises AssertionError where it is wrong."""
        if block.title == DEPENDS and (shown.strip() or not self.update):
            assert bool(shown.strip()) == bool(got.strip()), f"{what} prints\n{got}"
        elif not same(shown, got, block.title == VARIES):
            assert self.update, f"{what}: the page shows\n{shown}\nbut it prints\n{got}"
            shown = got
        else:
            return shown + "\n" if shown else ""
        return "\n".join(line.rstrip() for line in shown.rstrip().splitlines()) + "\n" if shown.strip() else ""

    def renew(self, block: Block, text: str) -> None:
        """Keep a block's new text."""
        if self.update and text.rstrip() != block.text.rstrip():
            self.renewed[block.line] = text


def renewed(text: str, blocks_by_line: dict[int, str]) -> str:
    """A page with the contents of some fenced blocks replaced."""
    lines = text.splitlines(keepends=True)
    for line, content in sorted(blocks_by_line.items(), reverse=True):
        end = next(at for at in range(line, len(lines)) if lines[at].startswith("```"))
        lines[line:end] = [content]
    return "".join(lines)
