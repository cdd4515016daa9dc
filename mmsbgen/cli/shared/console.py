"""Standard streams that outlast their readers, the shared console on standard error, and texts of others on it."""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from mmsbgen.base.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

_NO_READER = (errno.EPIPE, errno.EIO)
"""Errors of a pipe whose reader has ended, and of a terminal that was closed."""
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


def say(text: str) -> None:
    """Print a text on standard error, above what a progress bar draws there, which ``click.echo`` writes through."""
    if sys.stderr is not None:
        sys.stderr.write(f"{shown(text)}\n")
        sys.stderr.flush()


def keep_streams() -> None:
    """Make this process's standard output and error drop what nobody can read, instead of raising ``OSError``.

    Otherwise a message would end a run whose log is piped into a program that ends first.  A full disk is still an
    error on standard output, which has results.  Streams that something else has replaced are left alone.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if (before := getattr(sys, name)) is not getattr(sys, f"__{name}__"):
            continue
        if before is None:  # closed; this takes its number, so that no database gets it and then messages of libraries
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            continue
        raw = _LastingFile(number, "w", closefd=False)
        buffer = raw if isinstance(before.buffer, io.RawIOBase) else io.BufferedWriter(raw)
        like = {key: getattr(before, key) for key in ("encoding", "errors", "line_buffering", "write_through")}
        setattr(sys, name, io.TextIOWrapper(buffer, **like))


class _LastingFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            unread, result = error.errno in _NO_READER, self.fileno() == 1
            size = memoryview(data).nbytes  # click tries with no byte, and /dev/full fails at that too
            if unread or (result and size):
                # Libraries write there themselves: LLVM ends the process with exit code 1 if it cannot.
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)
            if result and size and not unread:
                raise InputError(
                    f"cannot write to standard output: {error.strerror}. Free some space, or name another file."
                ) from error
            return size
