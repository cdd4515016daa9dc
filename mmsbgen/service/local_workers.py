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
from mmsbgen.db.store.connect import URL_VARIABLE

__all__ = ["beside"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_LIVED_S = 5.0
"""A worker that runs longer than this did not fail at its start."""
_GRACE_S = 30.0
"""How long a worker may take to return its job to the queue."""
_LAST_S = 60.0
"""A worker that takes longer to return its job hangs."""
log = logging.getLogger("mmsbgen.service")


@contextlib.contextmanager
def beside(count: int, database: str | None, data: Path, devices: Sequence[str] = ()) -> Iterator[None]:
    """Run ``count`` workers for the jobs of a database while the block runs.

    ``devices`` are assigned to the workers in turn; without any, each uses the best device. When the block or this
    process ends, for whatever reason, the workers return their jobs to the queue and end.
    """
    stop = threading.Event()
    threads = []
    for number in range(count):
        device = devices[number % len(devices)] if devices else None
        thread = threading.Thread(target=_keep, args=(database, data / "worker", device, stop), daemon=True)
        thread.start()
        threads.append(thread)
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(_GRACE_S + 10)


def _keep(database: str | None, data: Path, device: str | None, stop: threading.Event) -> None:
    """Keep one worker running until ``stop`` is set."""
    arguments = ["worker", "--data", str(data), *(() if device is None else ("--device", device))]
    command = python_command("mmsbgen.service.local_workers", *arguments)
    # Not on the command line, which every user can read: the URL may have a password.
    environment = os.environ | python_environment() | ({} if database is None else {URL_VARIABLE: database})
    wait = _FIRST_WAIT_S
    while not stop.is_set():
        began = time.monotonic()
        # In a session of its own, Ctrl-C does not reach the worker: the service ends it.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        with process.stdin or contextlib.nullcontext():
            while process.poll() is None and not stop.wait(0.2):
                pass
            if stop.is_set():
                _end(process)
                return
        wait = _FIRST_WAIT_S if time.monotonic() - began > _LIVED_S else min(2 * wait, _LONGEST_WAIT_S)
        log.warning("a worker ended with %s; it is started again in %g s", process.returncode, wait)
        stop.wait(wait)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _tied() -> None:
    """End this process when the service ends, which closes this process's standard input."""
    threading.Thread(target=_end_with_service, args=(threading.get_ident(),), daemon=True).start()


def _end_with_service(main: int) -> None:
    """Send SIGTERM to this process when standard input is closed; kill it if it hangs, to free its device."""
    while os.read(0, 1):
        pass
    # To the main thread: in another thread the signal would not interrupt what the main one waits for.
    signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(_LAST_S)
    os._exit(1)


if __name__ == "__main__":
    _tied()
    runpy.run_module("mmsbgen", run_name="__main__")
