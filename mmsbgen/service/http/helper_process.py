"""A child process that works for the service: it may crash, hang or run out of memory without harm."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from mmsbgen.base.processes import ChildProcess, parent_connection

_MOST_CALLS = 200
"""After so many calls the process is replaced."""


class HelperProcess:
    """Calls functions in a child process, one after another.

    Args:
        address_space: Its limit of memory, bytes; 0 for none.
    """

    def __init__(self, address_space: int = 0) -> None:
        self._address_space = address_space
        self._child: ChildProcess | None = None
        self._calls = 0
        self._turn = asyncio.Semaphore(1)

    async def run(self, seconds: float, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work``; the process is killed when that takes too long or is cancelled.

        Raises what it raises, TimeoutError, or EOFError if the process died.
        """
        async with self._turn:
            return await self._run(seconds, work, arguments)

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    async def _run(self, seconds: float, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._child is None or self._calls == _MOST_CALLS:
            self.close()
            self._child = ChildProcess(__name__, address_space=self._address_space)
            self._calls = 0
        self._calls += 1
        child, answered = self._child, False
        calling = asyncio.ensure_future(asyncio.to_thread(_call, child, seconds, work, arguments))
        try:
            found, error = await asyncio.shield(calling)
            answered = not isinstance(error, MemoryError)
        finally:
            if not answered:
                child.kill()  # the thread that listens to it ends, and only then is its connection closed
                await asyncio.gather(calling, return_exceptions=True)
                self.close()
        if error is not None:
            raise error
        return found


def _call(child: ChildProcess, seconds: float, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The answer of :func:`serve`."""
    try:
        child.connection.send((work, arguments))
        if not child.connection.poll(seconds):
            raise TimeoutError
        return child.connection.recv()
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise EOFError from error


def serve(connection: Connection) -> None:
    """Answer ``(function, arguments)`` with ``(result, None)`` or ``(None, error)`` until the parent hangs up."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            work, arguments = connection.recv()
            try:
                answer: tuple[Any, Exception | None] = work(*arguments), None
            except Exception as error:
                answer = None, error
            connection.send(answer)


if __name__ == "__main__":
    # Imported under its own name, so that the parent can unpickle its classes.
    importlib.import_module("mmsbgen.service.http.helper_process").serve(parent_connection())
