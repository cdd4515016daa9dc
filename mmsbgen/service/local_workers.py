"""The service's own workers: processes of ``mmsbgen worker``, restarted when they end."""

from __future__ import annotations

import contextlib
import logging
import os
import runpy
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from mmsbgen.base.processes import python_command, python_environment
from mmsbgen.db.store.default_location import URL_VARIABLE

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_LIVED_S = 20.0
"""A worker that runs longer than this did not fail at its start."""
_GRACE_S = 30.0
"""How long a worker may take to return its job to the queue."""
_LAST_S = 60.0
"""A worker that takes longer to return its job hangs."""
log = logging.getLogger("mmsbgen.service")


class LocalWorker:
    """A worker process that is started again, after growing pauses, until ``stop`` is set."""

    def __init__(self, command: list[str], environment: dict[str, str], stop: threading.Event) -> None:
        self._command, self._environment, self._stop = command, environment, stop
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._wait = _FIRST_WAIT_S
        self._failed = False
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()

    @property
    def alive(self) -> bool:
        """Whether the process runs; after a failed start, whether it has run for some seconds."""
        process, lived = self._process, time.monotonic() - self._began
        return process is not None and process.poll() is None and (lived > _LIVED_S or not self._failed)

    def _keep(self) -> None:
        while not self._stop.is_set():
            try:
                how = self._run()
            except OSError as error:  # out of memory or processes
                how = str(error)
            if self._stop.is_set():
                return
            self._failed = time.monotonic() - self._began <= _LIVED_S
            self._wait = min(2 * self._wait, _LONGEST_WAIT_S) if self._failed else _FIRST_WAIT_S
            log.warning("a worker ended with %s; it is started again in %g s", how, self._wait)
            self._stop.wait(self._wait)

    def _run(self) -> str:
        """Start the worker and wait until it ends, or end it when ``stop`` is set.  Returns its exit code."""
        self._began = time.monotonic()
        # In a session of its own, Ctrl-C does not reach the worker: the service ends it.
        process = self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, env=self._environment, start_new_session=True
        )
        with process.stdin or contextlib.nullcontext():
            while process.poll() is None and not self._stop.wait(0.2):
                pass
            if self._stop.is_set():
                _end(process)
        return str(process.returncode)


@contextlib.contextmanager
def beside(
    count: int, database: str | None, data: Path, devices: Sequence[str] = (), *options: str
) -> Iterator[Sequence[LocalWorker]]:
    """Run ``count`` workers for the jobs of a database while the block runs; yields them.

    ``devices`` are assigned to the workers in turn; without any, each uses the best device. ``options`` are further
    ones of their command. When the block or this process ends, for whatever reason, the workers return their jobs to
    the queue and end.
    """
    stop = threading.Event()
    # Not on the command line, which every user can read: the URL may have a password.
    environment = os.environ | python_environment() | ({} if database is None else {URL_VARIABLE: database})
    workers = []
    for number in range(count):
        device = ("--device", devices[number % len(devices)]) if devices else ()
        command = python_command(
            "mmsbgen.service.local_workers", "worker", "--data", str(data / "worker"), *device, *options
        )
        workers.append(LocalWorker(command, environment, stop))
    try:
        yield workers
    finally:
        stop.set()
        for worker in workers:
            worker.thread.join(_GRACE_S + 10)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _end_with_service(main: int) -> None:
    """Send SIGTERM to this process when standard input is closed; kill it if it hangs, to free its device."""
    while os.read(0, 1):
        pass
    # To the main thread: in another thread the signal would not interrupt what the main one waits for.
    signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(_LAST_S)
    os._exit(1)


if __name__ == "__main__":
    # The service closes this process's standard input when it ends.
    threading.Thread(target=_end_with_service, args=(threading.get_ident(),), daemon=True).start()
    runpy.run_module("mmsbgen", run_name="__main__")
