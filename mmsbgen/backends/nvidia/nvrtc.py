"""NVRTC, NVIDIA's run-time compiler, in this process and in several others."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import queue
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import CompileError, MissingDependencyError
from mmsbgen.base.processes import ChildProcess, parent_connection

NO_COMPILER = (
    "CUDA: no compiler was found; put nvcc of the CUDA toolkit on the PATH (or set CUDA_HOME), "
    "or get NVRTC with: pip install 'mmsbgen[nvrtc]'"
)


class Nvrtc:
    """NVIDIA's run-time compiler, by the package ``cuda-bindings``."""

    def __init__(self) -> None:
        try:
            # Most runs have all they need in the cache: loading the library would take them a tenth of a second.
            number = importlib.metadata.version("nvidia-cuda-nvrtc")
        except importlib.metadata.PackageNotFoundError:
            _, major, minor = self._checked(self._nvrtc.nvrtcVersion(), "nvrtcVersion")
            number = f"{major}.{minor}"
        self.version = f"NVRTC {number}"
        self._major = int(number.partition(".")[0])

    @functools.cached_property
    def _nvrtc(self) -> Any:
        try:
            from cuda.bindings import nvrtc

            nvrtc.nvrtcVersion()  # loads the library
        except (ImportError, RuntimeError, OSError) as error:
            raise MissingDependencyError(f"{NO_COMPILER} (NVRTC does not load: {error})") from error
        return nvrtc

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return cubin and log; raise CompileError with the log."""
        nvrtc = self._nvrtc
        _, program = self._checked(
            nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []), "nvrtcCreateProgram"
        )
        try:
            flags = [flag.encode() for flag in (*options, *(f"-I{path}" for path in header_folders()))]
            (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
            _, size = self._checked(nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
            text = bytearray(size)
            self._checked(nvrtc.nvrtcGetProgramLog(program, text), "nvrtcGetProgramLog")
            log = text.decode(errors="replace").strip(" \n\0")
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                reason = log or status.name
                raise CompileError(f"{self.version} refused the source, options {list(options)}:\n{reason}")
            _, size = self._checked(nvrtc.nvrtcGetCUBINSize(program), "nvrtcGetCUBINSize")
            cubin = bytearray(size)
            self._checked(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN")
            return bytes(cubin), log
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    def _checked(self, answer: tuple[Any, ...], call: str) -> tuple[Any, ...]:
        if answer[0] != self._nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC: {call} failed: {answer[0].name}")
        return answer

    def fits_driver(self) -> bool:
        """Whether the driver loads what this compiles: it must be of the same major version, or a later one.

        True without a driver.
        """
        version = ctypes.c_int()
        try:
            status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        except (OSError, AttributeError):
            return True
        return status != 0 or version.value // 1000 >= self._major


class NvrtcProcesses:
    """NVRTC in ``count`` processes, each started with its first task: in one, only one program compiles at a time.

    They end with :meth:`cancel`.
    """

    def __init__(self, count: int) -> None:
        self.version = Nvrtc().version
        # The last in is the first out: it is warm.
        self._free: queue.LifoQueue[ChildProcess | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._started: set[ChildProcess] = set()
        # A process dies with the thread that started it, which must not be one that ends while others use it.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="nvrtc")
        self._lock = threading.Lock()
        self._cancelled = False

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return cubin and log; raise CompileError with the log, also for a process that died."""
        child = self._free.get()
        answer: tuple[bytes, str] | CompileError | None = None
        try:
            child = child or self._start()
            child.connection.send((source, [*options]))
            answer = child.connection.recv()
        except (EOFError, OSError) as error:
            how = str(error)
            if child is not None:
                how, said = child.ending(), child.printed(600)
                how += f"; its last words: {said}" if said else ""
            raise CompileError(f"{self.version}: {how}") from error
        finally:
            if child is not None and answer is None:  # what it still answers would be taken for the next program's
                self._end(child)
                child = None
            self._free.put(child)
        if isinstance(answer, CompileError):
            raise answer
        assert answer is not None
        return answer

    def cancel(self) -> None:
        """End all compilations and refuse new ones; their threads raise CompileError."""
        with self._lock:
            self._cancelled = True
            for child in self._started:
                child.kill()
        idle: list[ChildProcess | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._free.get_nowait())
        for one in idle:
            if one is not None:
                self._end(one)
            self._free.put(None)
        self._starter.shutdown(wait=False)

    def _start(self) -> ChildProcess:
        with self._lock:
            if self._cancelled:
                raise CompileError(f"{self.version}: compiling was cancelled")
            child = self._starter.submit(ChildProcess, "mmsbgen.backends.nvidia.nvrtc").result()
            self._started.add(child)
            return child

    def _end(self, child: ChildProcess) -> None:
        with self._lock:
            self._started.remove(child)
        child.close()


def nvcc_path() -> str | None:
    """The path of the CUDA toolkit's compiler, None if there is no toolkit."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [os.path.join(home, "bin") for home in (*homes, "/usr/local/cuda", "/opt/cuda")]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(folders))


def has_nvrtc() -> bool:
    """Whether the bindings of NVRTC are installed."""
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ImportError:
        return False


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Return the first folder that has CUDA's own headers, as NVRTC does not search for them."""
    candidates = [Path(folder, "nvidia", "cu13", "include") for folder in sys.path if folder]
    if (nvcc := nvcc_path()) is not None:
        candidates.append(Path(nvcc).resolve().parent.parent / "include")
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    candidates += [Path(home, "include") for home in homes if home]
    return tuple(str(path) for path in candidates if (path / "cuda_fp16.h").exists())[:1]


def main() -> None:
    """Compile what the parent process sends, until it closes the connection."""
    connection, compiler = parent_connection(), Nvrtc()
    os.nice(10)  # whoever launches kernels goes first
    with contextlib.suppress(EOFError, OSError):
        while True:
            source, options = connection.recv()
            try:
                answer: tuple[bytes, str] | CompileError = compiler.compile(source, options)
            except CompileError as error:
                answer = error
            connection.send(answer)


if __name__ == "__main__":
    main()
