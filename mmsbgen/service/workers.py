"""Workers beside the service: processes of ``mmsbgen worker`` that are started again when they end."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from mmsbgen.db.connect import URL_VARIABLE

__all__ = ["beside", "tied"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_LIVED_S = 5.0
"""A worker that lived so long did not fail at its start."""
_GRACE_S = 30.0
"""How long a worker may take to give its job back."""
_WORKER = """
from mmsbgen.service.workers import tied
tied()
from mmsbgen.cli import main
main(prog_name="mmsbgen")
"""
log = logging.getLogger("mmsbgen.service")
#: A job is given back in less; a worker that takes longer hangs.
_LAST_S = 60.0


@contextlib.contextmanager
def beside(count: int, database: str | None, data: Path, devices: Sequence[str] = ()) -> Iterator[None]:
    """Run ``count`` workers for the jobs of a database while the block runs; then have them give their jobs back.

    They take ``devices`` in turns, the best one where none is named.  They end with this process, however that ends.
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
    """Keep one worker running until ``stop`` is set; this thread outlives it, as Linux ends it with the thread."""
    arguments = ["worker", "--data", str(data), *(() if device is None else ("--device", device))]
    command = [sys.executable, "-c", _WORKER, str(os.getpid()), *arguments]
    # A URL may have a password, which a command line would show to everybody.
    environment = os.environ | ({} if database is None else {URL_VARIABLE: database})
    wait = _FIRST_WAIT_S
    while not stop.is_set():
        began = time.monotonic()
        # Ctrl-C is for the service, which then asks its workers to end, once.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
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


def _end_at_last(parent: int) -> None:
    """End this process a while after its service, should it hang over giving its job back: it holds a device."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(_LAST_S)
    os._exit(1)


def tied() -> None:
    """Have this process asked to end when its service does, whose number the command line begins with."""
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(1)
    threading.Thread(target=_end_at_last, args=(parent,), daemon=True).start()
