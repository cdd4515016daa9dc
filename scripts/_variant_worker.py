"""Check variants of kernels in a process of their own: a compiler or driver that dies takes no one with it.

``_variant_worker.py DEVICE`` reads one JSON object a line, ``{"kernel", "problem", "config"}``, and answers each with
``{"status", "message", "seconds"}``.  Statuses: ok, wrong_result, compile_error, launch_error, invalid.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

TIMEOUT = 180.0
"""Seconds for one variant, unless the parent says otherwise."""


class Result(NamedTuple):
    """What became of one variant; ``status`` may also be crashed or timeout."""

    status: str
    message: str
    seconds: float


class Worker:
    """The parent's end: starts the process when it is needed and again after it died or a launch failed.

    After a failed launch a CUDA context refuses all further work, which would then count as failures too.
    """

    def __init__(self, device: str, timeout: float = TIMEOUT, cache: str | None = None) -> None:
        """Compiled kernels are kept in the folder ``cache``, or where the user's are."""
        self.device = device
        self.timeout = timeout
        # The reference's products are small: threads that wait for the next one would take time from the compilers.
        self._environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self._environment |= {"XDG_CACHE_HOME": cache, "POCL_KERNEL_CACHE": "0"} if cache else {}
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def check(self, kernel: str, problem: Mapping[str, Any], config: Mapping[str, Any]) -> Result:
        """Build, run and verify one variant."""
        started = time.monotonic()
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"kernel": kernel, "problem": dict(problem), "config": dict(config)}) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self.timeout)
        except (BrokenPipeError, queue.Empty):
            answer = ""
        seconds = time.monotonic() - started
        if answer:
            result = Result(**json.loads(answer))
            if result.status == "launch_error":
                self.close(kill=True)
            return result
        timed_out = process.poll() is None and seconds >= self.timeout
        self.close(kill=True)
        if timed_out:
            return Result("timeout", f"no answer in {self.timeout:g} s", seconds)
        return Result("crashed", f"the process died (exit status {process.returncode})", seconds)

    def close(self, kill: bool = False) -> None:
        """End the process."""
        if self._process is not None:
            if kill:
                self._process.kill()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._reader.join()
            self._process = None

    def stop(self) -> None:
        """End a check that another thread waits for; it counts as crashed."""
        process = self._process
        if process is not None:
            process.kill()

    def _start(self) -> subprocess.Popen[str]:
        self._answers = queue.Queue()
        command = [sys.executable, __file__, self.device]
        # In a session of its own: the key that interrupts the parent is not to look like a kernel that crashed.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=self._environment,
        )
        self._reader = threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True)
        self._reader.start()
        return self._process


def _pump(lines: Any, answers: queue.Queue[str]) -> None:
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")


def main(spec: str) -> None:
    """Answer until standard input ends."""
    from mmsbgen.backends import open_device
    from mmsbgen.build import check
    from mmsbgen.errors import CompileError, ConfigError, LaunchError
    from mmsbgen.families import family

    # Compilers print to standard output; answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    statuses = {ConfigError: "invalid", CompileError: "compile_error", LaunchError: "launch_error"}
    kernels = family()
    with open_device(spec) as device:
        for line in sys.stdin:
            asked = json.loads(line)
            started = time.monotonic()
            try:
                problem = kernels.problem(**asked["problem"])
                wrong = check(device, kernels.kernel(asked["kernel"]), problem, asked["config"])
                status, message = ("ok", "") if wrong is None else ("wrong_result", wrong)
            except tuple(statuses) as error:
                status, message = statuses[type(error)], str(error)
            seconds = time.monotonic() - started
            answers.write(json.dumps({"status": status, "message": message, "seconds": seconds}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
