"""Compiles, in separate processes, the configurations that a tuning run is about to measure.

Compiled kernels go into the cache in which the measuring process looks: the package's own, or the runtime's.  On a GPU
compiling overlaps with measuring, since the compiler does not use the device.  On a processor it would disturb the
timing: there the processes are stopped, except in :meth:`CompileAhead.wait`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Self

from mmsbgen.backends import DeviceInfo
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.nvidia.cuda_compile import Nvcc, compile_cuda, compiler_that_ends
from mmsbgen.backends.nvidia.nvrtc import NvrtcProcesses
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.base.processes import cores
from mmsbgen.base.stop_signals import deferring
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits

_MOST_JOBS = 16
_LOOK_S = 0.1


def default_jobs(info: DeviceInfo) -> int:
    """Default number of compilers: one per core, at most 16; beside a GPU one core is left to the measuring process."""
    return min(_MOST_JOBS, cores() if info.kind == "cpu" else cores() - 1)


def _digest(config: Config) -> object:
    return digest(dict(config))


class CompileAhead:
    """Compiles configurations of one problem's kernels for one device with ``jobs`` processes.

    ``problem`` must equal the run's in every parameter, as sources depend on all of them.  A configuration that does
    not compile, or loses its process, is left to the measuring process, which records why.  Leave the context to end
    the processes.
    """

    def __init__(
        self,
        info: DeviceInfo,
        family: str,
        problem: Problem,
        jobs: int,
        *,
        limits: TrialLimits | None = None,
        seed: int = 0,
    ) -> None:
        self.jobs = jobs
        self.before = info.kind == "cpu"
        """Whether nothing may compile while a kernel is timed."""
        self.seconds: dict[object, float] = {}
        """Compile seconds of the current kernel's programs by their names; failed ones are left out.

        Time in which the processes were stopped does not count.
        """
        self._ran: tuple[float, float | None] = 0.0, time.perf_counter()
        self.name: Callable[[Config], object] = _digest
        """The name of a configuration's program."""
        self._info, self._problem, self._family = info, problem, resolve_family(family)
        self._spec: KernelSpec | None = None
        self._compiler: Nvcc | NvrtcProcesses | None = None
        if info.backend == "cuda":
            with contextlib.suppress(MmsbgenError):  # the measuring process reports it
                self._compiler = compiler_that_ends(jobs)
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="ahead", initializer=self._give_way)
        # What may be needed later leaves room for what is needed now.
        self._later = ThreadPoolExecutor(max(1, jobs // 2), thread_name_prefix="later", initializer=self._give_way)
        self._asked: dict[object, Future[None]] = {}
        self._early: dict[str, tuple[dict[object, Future[None]], dict[object, float]]] = {}
        self._closed = False
        self._free: queue.SimpleQueue[Measurer] = queue.SimpleQueue()
        each = (limits or TrialLimits()).divided(jobs)
        self._patience_s = each.compile_s
        self._children = [Measurer(info.spec, family, each, seed) for _ in range(jobs)]
        for child in self._children:
            self._free.put(child)

    def start(self) -> None:
        """Start the processes now and wait for them; otherwise each starts with its first task."""
        if self._info.backend != "cuda":
            wait_for([self._pool.submit(child.open) for child in self._children])

    def early(self, kernel: str, configs: Sequence[Config]) -> None:
        """Beside a GPU, compile configurations of a kernel that begins later."""
        if not self.before:
            spec = self._family.kernel(kernel)
            names = {_digest(config): config for config in configs}
            seconds: dict[object, float] = {}
            asked = {name: self._pool.submit(self._compile, spec, name, one, seconds) for name, one in names.items()}
            self._early[kernel] = asked, seconds

    def begin(self, kernel: str, name: Callable[[Config], object] | None = None) -> None:
        """Switch to ``kernel``; pending requests for another kernel are dropped.

        Configurations with the same ``name(config)`` have one program; by default each has its own.
        """
        self.ask([])
        self._asked, self.seconds = self._early.pop(kernel, ({}, {}))
        self._spec, self.name = self._family.kernel(kernel), name or _digest

    def ask(self, configs: Sequence[Config], later: Sequence[Config] = ()) -> None:
        """Compile these next, in this order, and ``later`` with half of the processes.

        Pending earlier requests that are not among them are dropped.
        """
        now = {self.name(config): config for config in configs}
        wanted = now | {name: config for config in later if (name := self.name(config)) not in now}
        for name, future in list(self._asked.items()):
            if (name not in wanted or name in now) and future.cancel():
                del self._asked[name]
        for name, config in wanted.items():
            if name not in self._asked:
                pool = self._pool if name in now else self._later
                self._asked[name] = pool.submit(self._compile, self._spec, name, config, self.seconds)

    def settle(self, config: Config) -> None:
        """Wait for a compilation that has begun, and drop a pending one: the measuring process would repeat it."""
        future = self._asked.get(self.name(config))
        if future is not None and not future.cancel():
            wait_for([future], timeout=self._patience_s)

    def wait(self, stop: Callable[[], bool] = lambda: False, configs: Sequence[Config] | None = None) -> None:
        """Wait until these, or all requests, are compiled, or until ``stop()`` is true."""
        wanted = self._asked.values() if configs is None else [self._asked[self.name(config)] for config in configs]
        pending = set(wanted)
        self._wait(lambda: stop() or all(future.done() for future in pending), pending)

    def wait_for_one(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Wait until one more program is compiled, or until ``stop()`` is true; False if none is."""
        pending = {future for future in self._asked.values() if not future.done()}
        self._wait(lambda: stop() or any(future.done() for future in pending), pending)
        return any(future.done() for future in pending)

    def done(self, names: Sequence[object]) -> list[bool]:
        """Which of these programs were compiled, or failed to."""
        return [(future := self._asked.get(name)) is not None and future.done() for name in names]

    def pending(self, names: Sequence[object]) -> bool:
        """Whether one of these programs is asked for and not compiled yet."""
        return any((future := self._asked.get(name)) is not None and not future.done() for name in names)

    def _wait(self, over: Callable[[], bool], pending: Collection[Future[None]]) -> None:
        try:
            while pending and not over():
                self._set_running(True)
                wait_for(pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                pending = {future for future in pending if not future.done()} if not over() else ()
        finally:
            self._set_running(False)

    def _set_running(self, running: bool) -> None:
        """On a processor, continue the processes, or stop them."""
        if self.before:
            if running != (self._ran[1] is not None):
                self._ran = self._clock(), time.perf_counter() if running else None
            for child in self._children:
                child.set_running(running)

    def _clock(self) -> float:
        """Seconds so far in which the processes were not stopped."""
        ran, since = self._ran
        return ran if since is None else ran + time.perf_counter() - since

    def close(self) -> None:
        """Drop pending requests and end the processes.

        Ctrl-C waits until then: at its exit Python waits for the threads, and they for processes that may be stopped.
        """
        with deferring():
            self._close()

    def _close(self) -> None:
        self._closed = True
        for pool in (self._pool, self._later):
            pool.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.abandon()  # also one that starts, which would wait until it may run
            child.close()
        if self._compiler is not None:
            self._compiler.cancel()  # its result is not needed; it may take longer than a whole run
        for pool in (self._pool, self._later):
            pool.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _give_way(self) -> None:
        """On a GPU, lower the priority of compilers below that of the process that launches kernels."""
        if not self.before and hasattr(os, "setpriority"):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)

    def _compile(self, spec: KernelSpec | None, name: object, config: Config, seconds: dict[object, float]) -> None:
        if spec is None:
            raise RuntimeError("no kernel was begun")
        begin = self._clock()
        with contextlib.suppress(MmsbgenError, CancelledError):
            if self._info.backend == "cuda":
                traits = traits_of(self._info)
                text = render(spec, self._problem, config, traits).program
                options, cache = compiler_options(traits), BinaryCache()
                compile_cuda(text, self._info.architecture, options, compiler=self._compiler, cache=cache)
            else:
                child = self._free.get()
                try:
                    if self._closed:  # it would start its process again
                        return
                    child.prepare(spec.name, self._problem, config)
                finally:
                    self._free.put(child)
            seconds[name] = self._clock() - begin
