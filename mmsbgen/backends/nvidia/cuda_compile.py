"""Compiles CUDA C to machine code by nvcc or NVRTC; needs no GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.nvidia.nvrtc import NO_COMPILER, Nvrtc, NvrtcProcesses, has_nvrtc, header_folders, nvcc_path
from mmsbgen.base.errors import CompileError, InputError, MissingDependencyError
from mmsbgen.base.processes import cores, guarded_command, kill_group

#: Instructions that exist on sm_90 only; they need the target sm_90a.
_OF_SM_90 = "wgmma."
_COMMON_OPTIONS = ("--std=c++17", "--ptxas-options=-v")


@dataclasses.dataclass(frozen=True, slots=True)
class KernelResources:
    """Resources of one kernel as ptxas reports them; shared memory in bytes a block, all else a thread."""

    registers: int
    shared_bytes: int
    spill_stores: int


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code (a cubin) with the compiler's log; ``resources`` is by kernel.

    ``cached`` is true for a result that was read from a cache.
    """

    cubin: bytes
    log: str
    resources: dict[str, KernelResources]
    cached: bool = False


def find_compiler(prefer: Literal["nvcc", "nvrtc"] | None = None) -> Nvcc | Nvrtc:
    """Return NVRTC if it is installed and fits the driver, else nvcc; or the preferred one.

    NVRTC takes a third of nvcc's time for the same code.

    Raises:
        MissingDependencyError: it is not installed; the message says how to get it.
    """
    if prefer not in {None, "nvcc", "nvrtc"}:
        raise InputError(f"unknown CUDA compiler {prefer!r}: choose nvcc or nvrtc")
    path = nvcc_path() if prefer != "nvrtc" else None
    if prefer != "nvcc" and has_nvrtc():
        try:
            found = Nvrtc()
        except MissingDependencyError:
            if path is None:
                raise
        else:
            if path is None or (header_folders() and found.fits_driver()):
                return found
    if path is not None:
        return Nvcc(path)
    raise MissingDependencyError(NO_COMPILER)


def compiler_that_ends(processes: int) -> Nvcc | NvrtcProcesses:
    """The default compiler for ``processes`` compilations at a time, with a method ``cancel``."""
    found = find_compiler()
    return NvrtcProcesses(processes) if isinstance(found, Nvrtc) else found


def compile_cuda(
    source: str,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    *,
    compiler: CudaCompiler | None = None,
    cache: BinaryCache | None = None,
    anew: bool = False,
) -> Compiled:
    """Compile CUDA C for one architecture; neither a GPU nor a driver is needed.

    Args:
        source: the source text; kernels have C linkage (``extern "C"``).
        arch: the target architecture, such as "sm_90".
        options: further options, in the long form that nvcc and NVRTC share (``--maxrregcount=64``).
        compiler: None for the default of :func:`find_compiler`.
        cache: stores results under a digest of source, options, compiler and architecture; None for no cache.
        anew: discard a cached result and compile again.

    Raises:
        CompileError: the source was refused; the message holds the log.
        MissingDependencyError: there is no compiler.
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise InputError(f"unknown CUDA architecture {arch!r}: it looks like sm_90")
    compiler = find_compiler() if compiler is None else compiler
    target = "sm_90a" if arch == "sm_90" and _OF_SM_90 in source else arch
    flags = [f"--gpu-architecture={target}", *_COMMON_OPTIONS, *options]
    key = BinaryCache.key(["cuda", compiler.version, *flags, source])
    if anew and cache is not None:
        cache.discard(key)
    found = cached = cache.load(key) if cache is not None else None
    if found is None:
        found = compiler.compile(source, flags)
        if cache is not None:
            cache.store(key, *found)
    cubin, log = found
    return Compiled(cubin, log, parse_resources(log), cached is not None)


def compile_side_by_side(
    sources: Sequence[str], arch: str, options: Sequence[str] = (), *, compiler: CudaCompiler, cache: BinaryCache
) -> None:
    """Compile sources into ``cache`` in parallel, one on each core; sources with errors are skipped."""

    def one(source: str) -> None:
        with contextlib.suppress(CompileError):
            compile_cuda(source, arch, options, compiler=compiler, cache=cache)

    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(cores(), thread_name_prefix="compile"))
        if isinstance(compiler, Nvrtc) and len(sources) > 1:
            compiler = NvrtcProcesses(cores())
            stack.callback(compiler.cancel)  # first, as Ctrl-C does not reach the processes
        list(pool.map(one, sources))


def parse_resources(log: str) -> dict[str, KernelResources]:
    """Read registers, shared memory and spills of every kernel from the log of ``ptxas -v``."""
    result = {}
    for section in re.split(r"Compiling entry function ", log)[1:]:
        if (name := re.match(r"'(\w+)'", section)) is None:
            continue

        def number(pattern: str, section: str = section) -> int:
            match = re.search(pattern, section)
            return int(match[1]) if match else 0

        result[name[1]] = KernelResources(
            registers=number(r"Used (\d+) registers"),
            shared_bytes=number(r"(\d+) bytes smem"),
            spill_stores=number(r"(\d+) bytes spill stores"),
        )
    return result


class Nvcc:
    """The compiler driver of a CUDA toolkit, run as a child process.

    It starts several programs, which end together: their process group is ended by :meth:`cancel`, or by Linux when the
    calling thread ends.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.version = f"nvcc {_nvcc_version(path)}"
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._cancelled = False

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return cubin and log; raise CompileError with the log."""
        with tempfile.TemporaryDirectory(prefix="mmsbgen-nvcc-") as folder:
            Path(folder, "kernel.cu").write_text(source)
            command = [self.path, "--cubin", *options, "--output-file", "kernel.cubin", "kernel.cu"]
            returncode, log = self._run(command, folder)
            if returncode != 0:
                raise CompileError(f"{self.version} refused the source, options {list(options)}:\n{log}")
            return Path(folder, "kernel.cubin").read_bytes(), log

    def cancel(self) -> None:
        """End all compilations by this object and refuse new ones; their threads raise CompileError."""
        with self._lock:
            self._cancelled = True
            for process in self._running:
                self._kill(process)

    def _run(self, command: list[str], folder: str) -> tuple[int, str]:
        """The exit code and all output of a command."""
        with self._lock:
            if self._cancelled:
                raise CompileError(f"{self.version}: compiling was cancelled")
            process = subprocess.Popen(
                guarded_command(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                process_group=0,
            )
            self._running.add(process)
        try:
            output, _ = process.communicate()
        except BaseException:
            with self._lock:
                self._kill(process)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            raise
        finally:
            with self._lock:
                self._running.remove(process)
        return process.returncode, output.strip()

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a process group, unless its leader has ended and its id may be reused."""
        if process.poll() is None:
            kill_group(process)


CudaCompiler = Nvcc | Nvrtc | NvrtcProcesses
"""A compiler of CUDA C; ``version`` has its name and version, for example "nvcc 13.0.88"."""


@functools.cache
def _nvcc_version(path: str) -> str:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingDependencyError(f"CUDA: {path} does not run: {error}") from error
    match = re.search(r"\bV(\d+(?:\.\d+)+)", text)
    return match[1] if match else "of unknown version"
