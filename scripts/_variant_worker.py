"""Check variants of kernels in a process of their own: a compiler or driver that dies takes no one with it.

``_variant_worker.py DEVICE THREADS FAMILY`` reads one JSON object a line, ``{"kernel", "problem", "config"}``.  It
answers each in its turn with ``{"status", "message", "seconds"}``.  Statuses: ok, wrong_result, compile_error,
launch_error, no_memory, invalid, error.  What it has read it compiles ahead with so many threads, where the device can.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import CompileError, ConfigError, DeviceMemoryError, LaunchError, MmsbgenError
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import check, compiler_options, traits_of
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.render import render

V = TypeVar("V", bound=tuple[str, Mapping[str, Any], Mapping[str, Any]])

TIMEOUT = 180.0
"""Seconds for one variant, unless the parent says otherwise."""
#: CU_CTX_SCHED_BLOCKING_SYNC of cuda.h.
_BLOCKING_SYNC = 4


class Result(NamedTuple):
    """What became of one variant; ``status`` may also be crashed or timeout."""

    status: str
    message: str
    seconds: float


class Worker:
    """The parent's end: starts the process when it is needed and again after it died or a launch failed.

    After a failed launch a CUDA context refuses all further work, which would then count as failures too.
    """

    def __init__(
        self, device: str, timeout: float = TIMEOUT, cache: str | None = None, threads: int = 0, family: str = "mmsb"
    ) -> None:
        """Compiled kernels are kept in the folder ``cache``, or where the user's are.

        With ``threads`` that compile ahead the process is asked for three times as many variants at once.
        """
        self.device = device
        self.family = family
        self.timeout = timeout
        self._threads = threads
        # The reference's products are small: threads that wait for the next one would take time from the compilers.
        self._environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self._environment |= {"XDG_CACHE_HOME": cache, "POCL_KERNEL_CACHE": "0"} if cache else {}
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._stopped = False

    def check(self, kernel: str, problem: Mapping[str, Any], config: Mapping[str, Any]) -> Result:
        """Build, run and verify one variant."""
        ((_, result),) = self.check_all([(kernel, problem, config)])
        return result

    def check_all(self, variants: Iterable[V]) -> Iterator[tuple[V, Result]]:
        """Build, run and verify them in their order: tuples of kernel, problem and configuration.

        A process that dies may have died of one that it compiled ahead: the first is asked for once more, alone.
        """
        coming, waiting = iter(variants), deque[V]()
        asked, alone = 0, False  # how many of those that wait the process has, and whether it is to have one alone
        while True:
            if self._process is None:
                asked = 0
            while not alone and len(waiting) <= 3 * self._threads and (variant := next(coming, None)) is not None:
                waiting.append(variant)
            if not waiting:
                return
            for variant in list(waiting)[asked : 1 if alone else None]:
                self._ask(variant)
            asked = 1 if alone else len(waiting)
            result = self._answer()
            alone = result.status == "crashed" and asked > 1 and not self._stopped
            if not alone:
                asked -= 1
                yield waiting.popleft(), result

    def _ask(self, variant: tuple[str, Mapping[str, Any], Mapping[str, Any]]) -> None:
        process = self._process or self._start()
        assert process.stdin is not None
        kernel, problem, config = variant
        with contextlib.suppress(BrokenPipeError):  # the answer tells
            process.stdin.write(json.dumps({"kernel": kernel, "problem": dict(problem), "config": dict(config)}) + "\n")
            process.stdin.flush()

    def _answer(self) -> Result:
        """Of what was asked for first."""
        process = self._process
        assert process is not None
        started = time.monotonic()
        try:
            answer = self._answers.get(timeout=self.timeout)
        except queue.Empty:
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
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            self._reader.join()
            self._process = None

    def stop(self) -> None:
        """End a check that another thread waits for; it counts as crashed."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def _start(self) -> subprocess.Popen[str]:
        self._answers = queue.Queue()
        command = [sys.executable, __file__, self.device, str(self._threads), self.family]
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


def _sleep_while_waiting() -> None:
    """Have this process sleep while it waits for a CUDA device, which many share: the cores are for the compilers."""
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            for device in range(count.value):
                driver.cuDevicePrimaryCtxSetFlags_v2(device, _BLOCKING_SYNC)


def _read(device: Device, kernels: KernelFamily, threads: int) -> Iterator[dict[str, Any]]:
    """What is asked for on standard input; where the device can, compiled once it is yielded, if it compiles."""
    lines = (json.loads(line) for line in sys.stdin)
    if not threads or not device.side_by_side:
        yield from lines
        return
    traits, known = traits_of(device.info), queue.Queue[tuple[dict[str, Any], Future[None]] | None]()

    def compile_one(asked: Mapping[str, Any]) -> None:
        spec = kernels.kernel(asked["kernel"])
        with contextlib.suppress(MmsbgenError):  # the check tells
            problem = spec.check_problem(kernels.problem(**asked["problem"]))
            text = render(spec, problem, asked["config"], traits).text
            device.compile_ahead([text], compiler_options(traits))

    def read(pool: ThreadPoolExecutor) -> None:
        for asked in lines:
            known.put((asked, pool.submit(compile_one, asked)))
        known.put(None)

    with ThreadPoolExecutor(threads) as pool:
        threading.Thread(target=read, args=(pool,), daemon=True).start()
        while (found := known.get()) is not None:
            asked, compiled = found
            compiled.result()
            yield asked


def main(spec: str, threads: int, family: str) -> None:
    """Answer until standard input ends."""
    # Compilers print to standard output; answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    statuses: dict[type[MmsbgenError], str] = {
        ConfigError: "invalid",
        CompileError: "compile_error",
        LaunchError: "launch_error",
        DeviceMemoryError: "no_memory",
        MmsbgenError: "error",
    }
    kernels = resolve_family(family)
    if spec.startswith("cuda"):
        _sleep_while_waiting()
    with open_device(spec) as device:
        for asked in _read(device, kernels, threads):
            started = time.monotonic()
            try:
                problem = kernels.problem(**asked["problem"])
                wrong = check(device, kernels.kernel(asked["kernel"]), problem, asked["config"])
                status, message = ("ok", "") if wrong is None else ("wrong_result", wrong)
            except MmsbgenError as error:
                status = next(name for kind, name in statuses.items() if isinstance(error, kind))
                message = str(error)
            seconds = time.monotonic() - started
            answers.write(json.dumps({"status": status, "message": message, "seconds": seconds}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
