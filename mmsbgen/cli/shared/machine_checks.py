"""Checks of a machine for what mmsbgen needs, with remedies."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mmsbgen.backends.opencl.intel_runtime import ADVICE
from mmsbgen.base import libraries
from mmsbgen.base.errors import MissingDependencyError, MmsbgenError
from mmsbgen.base.progress import stage

Status = Literal["ok", "note", "warning", "problem"]
#: Extras that users may want, with what each is for.
EXTRAS = {
    "cuda": "kernels on NVIDIA's GPUs",
    "nvrtc": "compiling for NVIDIA's GPUs without the CUDA toolkit",
    "tune": "kernel_tuner's search strategies",
    "fleet": "tuning several devices at once",
    "postgres": "a tuning database on a server",
    "graph": "graphs of networkx, GEXF and GraphML files",
    "igraph": "GML and Pajek files, results as igraph's covers",
    "tables": "data frames and Parquet",
    "cdlib": "results as cdlib's clusterings",
    "report": "reports and pictures",
    "serve": "the service over HTTP",
}
#: K, vertices and links of a usual graph, com-DBLP.
_USUAL = (64, 317_080, 1_049_866)
_FREE_DISK, _LITTLE_DISK = 100 << 20, 1 << 30
_FREE_MEMORY, _LITTLE_MEMORY = 500 << 20, 2 << 30
_OTHER_DEVICE = "Choose another device with --device meanwhile"
_REMEDIES = {
    "compile_error": "The driver's compiler refuses a kernel that it should take: renew the driver or runtime",
    "launch_error": "The driver refuses to run the kernel: see whether other programs hold the device, then restart it",
    "wrong_result": "The device computes wrongly, so results cannot be trusted: renew the driver or runtime",
    "timeout": "The device or its compiler hangs: see whether other programs keep it busy, then restart it",
    "crashed": "The driver or its compiler crashes: renew it",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check: its topic, status and text, and a remedy unless the status is ``ok``."""

    topic: str
    status: Status
    what: str
    remedy: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def examine(
    database: str | Path | None = None, device: str | None = None, *, self_tests: bool = True
) -> Iterator[Finding]:
    """Yield the findings of all checks, cheap ones first; nothing is changed.

    A check that raises an error yields a finding too.

    Args:
        database: The database, as :func:`mmsbgen.db.store.tuning_store.open_store` takes it.
        device: The only device to check, as :func:`mmsbgen.backends.open_device` takes it; None for all.
        self_tests: Whether to compile, check and time a kernel on each device, some seconds each.
    """
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "Python": _python,
        "memory": _memory,
        "disk": _disk,
        "OpenCL": _opencl,
        "CUDA": _cuda,
        "devices": lambda: _devices(device, self_tests),
        "database": lambda: _database(database, device),
    }
    for topic, check in checks.items():
        try:
            yield from check()
        except MmsbgenError as error:
            yield Finding(topic, "problem", str(error), "See the message")
        except Exception as error:  # drivers and libraries may raise anything; the other checks go on
            yield Finding(topic, "problem", f"the check itself failed: {type(error).__name__}: {error}", "Report it")


def _python() -> Iterator[Finding]:
    from mmsbgen.base.version import __version__

    here = f"mmsbgen {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    yield Finding("Python", "ok", f"{here}, {platform.machine()}", details={"executable": sys.executable})
    for extra, needed in _requirements().items():
        found = libraries.versions(*needed)
        versions = {name: found.get(name) for name in needed}
        there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        missing = [name for name, version in versions.items() if version is None]
        if extra == "" and missing:
            what = f"{', '.join(missing)} is not installed, which mmsbgen cannot do without"
            yield Finding("Python", "problem", what, "pip install --force-reinstall mmsbgen", dict(versions))
        elif missing and extra:
            what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: {EXTRAS[extra]}"
            yield Finding("Python", "note", what, f"pip install 'mmsbgen[{extra}]', if you want that", dict(versions))
        else:
            yield Finding("Python", "ok", there, details=dict(versions))


def _requirements() -> dict[str, list[str]]:
    """Names of the packages that mmsbgen needs on this system, by extra; the key "" has the required ones."""
    found: dict[str, list[str]] = defaultdict(list)
    try:
        lines = importlib.metadata.requires("mmsbgen") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    for line in lines:
        name, _, marker = line.partition(";")
        needs = dict(re.findall(r"(\w+)\s*==\s*['\"]([^'\"]+)['\"]", marker))
        key, here = needs.get("extra", ""), {"sys_platform": sys.platform, "platform_machine": platform.machine()}
        if all(needs.get(name, value) == value for name, value in here.items()) and (key in EXTRAS or not key):
            found[key].append(re.split(r"[\s<>=!~\[(]", name.strip(), maxsplit=1)[0])
    return dict(sorted(found.items()))


def _memory() -> Iterator[Finding]:
    from mmsbgen.base.host_memory import available_host_memory, readable
    from mmsbgen.base.processes import cores

    left, source = available_host_memory()
    what = f"{readable(left)} of memory free ({source}); {cores()} cores"
    details = {"available_bytes": left, "source": source, "cores": cores()}
    if left < _FREE_MEMORY:
        yield Finding("memory", "problem", what, "End other programs, or raise the limit of the control group", details)
    elif left < _LITTLE_MEMORY:
        yield Finding("memory", "warning", what, "Enough for small graphs alone: end other programs", details)
    else:
        yield Finding("memory", "ok", what, details=details)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        what = f"a process may have {readable(limit)} of address space, which runtimes of devices reserve freely"
        yield Finding("memory", "warning", what, "ulimit -v unlimited", {"limit_bytes": limit})


def _disk() -> Iterator[Finding]:
    import platformdirs

    from mmsbgen.base.host_memory import readable

    folders = {
        "data": (platformdirs.user_data_path("mmsbgen"), "XDG_DATA_HOME"),
        "cache": (platformdirs.user_cache_path("mmsbgen"), "XDG_CACHE_HOME"),
        "temporary": (Path(tempfile.gettempdir()), "TMPDIR"),
    }
    for name, (folder, variable) in folders.items():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        details = {"folder": str(folder), "free_bytes": free}
        if (reason := _unwritable(there)) is not None:
            what = f"the {name} folder {folder} cannot be written: {reason}"
            yield Finding("disk", "problem", what, f"Mend its permissions, or name another in {variable}", details)
        elif free < _LITTLE_DISK:
            status: Status = "problem" if free < _FREE_DISK else "warning"
            what = f"{readable(free)} left for the {name} folder {folder}"
            yield Finding("disk", status, what, f"Free some space, or name another folder in {variable}", details)
        else:
            yield Finding("disk", "ok", f"{folder} can be written ({name}, {readable(free)} left)", details=details)


def _unwritable(folder: Path) -> str | None:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _opencl() -> Iterator[Finding]:
    from mmsbgen.backends.opencl import intel_runtime, opencl_device

    chosen = [name for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "POCL_DEVICES") if os.environ.get(name)]
    folder = intel_runtime.SYSTEM_VENDORS
    for file in sorted(folder.glob("*.icd")) if folder.is_dir() else []:
        library = file.read_text(errors="replace").strip()
        if library.startswith("/") and not Path(library).exists():
            what = f"{file} registers {library}, which is not there"
            yield Finding("OpenCL", "warning", what, "Install that runtime again, or remove the file")
        else:
            yield Finding("OpenCL", "ok", f"{file} registers {library}")
    found, hints = opencl_device.discover()
    for hint in hints:
        yield Finding("OpenCL", "note", hint, "See the message, if you want that")
    for text in sorted({f"{info.platform}, driver {info.driver}" for info in found}):
        yield Finding("OpenCL", "ok", text)
    for name in chosen:
        yield Finding("OpenCL", "note", f"{name}={os.environ[name]} decides which platforms there are", "Unset it else")


def _cuda() -> Iterator[Finding]:
    from mmsbgen.backends.nvidia import cuda_compile, cuda_device, nvrtc

    version = Path("/proc/driver/nvidia/version")
    if driver := version.exists():
        yield Finding("CUDA", "ok", version.read_text().splitlines()[0].strip())
    for name, remedy in (("nvcc", "install the CUDA toolkit"), ("nvrtc", "pip install 'mmsbgen[nvrtc]'")):
        try:
            found = cuda_compile.find_compiler(name)  # type: ignore[arg-type]
            place = nvrtc.nvcc_path() if name == "nvcc" else None
            yield Finding("CUDA", "ok", f"compiler {found.version}{f' at {place}' if place else ''}")
        except MissingDependencyError:
            if driver:
                yield Finding("CUDA", "note", f"the compiler {name} is not here; one of two is enough", remedy)
    devices, hints = cuda_device.discover()
    for hint in hints:
        missing = driver and not devices
        advice = "Follow the message: this machine has NVIDIA's driver" if missing else "Nothing, without such a GPU"
        yield Finding("CUDA", "warning" if missing else "note", hint, advice)


def _devices(spec: str | None, self_tests: bool) -> Iterator[Finding]:
    from mmsbgen.backends import discover
    from mmsbgen.backends.discovery import select_device

    found, hints = discover()
    if not found:
        what = "there is no device that kernels can run on"
        remedy = "; ".join(hints) or f"get a runtime for processors: {ADVICE}"
        yield Finding("devices", "problem", what, remedy)
        return
    for info in [select_device(spec, found, hints)] if spec else found:
        if self_tests:
            with stage(f"testing {info.name} ({info.platform})"):
                yield self_test(info.spec)
        else:
            yield Finding("devices", "ok", f"{info.spec}: {info.name} ({info.platform})", details=info.as_dict())


class _BusyError(Exception):
    """Another process measures on the device."""


def self_test(device: str) -> Finding:
    """Compile a kernel of a default run without caches, compare it with the reference, time it; in a child process."""
    from mmsbgen.backends import find_device
    from mmsbgen.families import family
    from mmsbgen.kernels.build import traits_of
    from mmsbgen.sampler.chain.chain_problem import problem_of_default_run
    from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
    from mmsbgen.tuner.measure.timing import Patience

    info = find_device(device)
    kernels = family()
    problem = problem_of_default_run(64, 2000, 20_000, info)
    name = kernels.worth_tuning(problem)[0]
    config = kernels.kernel(name).default(kernels.kernel(name).check_problem(problem), traits_of(info))
    where = f"{info.spec}: {info.name} ({info.platform})"

    def busy(_: str) -> None:
        raise _BusyError

    try:
        with (
            _caches_of_its_own(),
            Measurer(info.spec, "mmsb", TrialLimits(load_s=60, compile_s=60, run_s=30)) as measurer,
        ):
            measurer.waiting = busy
            measurer.load(name, problem)
            outcome = measurer.measure(config, patience=Patience(repetitions=5, enough_s=0.0))
    except _BusyError:
        what = f"{where}: not tested, as another process measures on it"
        return Finding("devices", "note", what, "Ask again when that has ended", info.as_dict())
    except MmsbgenError as error:
        return Finding("devices", "problem", f"{where}: {error}", f"{_REMEDIES['crashed']}. {_OTHER_DEVICE}")
    details = {**info.as_dict(), "kernel": name, "status": outcome.status, "compile_s": outcome.compile_s}
    if outcome.status != "ok" or outcome.timing is None:
        remedy = f"{_REMEDIES.get(outcome.status, _REMEDIES['crashed'])}. {_OTHER_DEVICE}"
        return Finding("devices", "problem", f"{where}: {outcome.status}: {outcome.message}", remedy, details)
    details["seconds"] = best = min(outcome.timing.times)
    compiled = f"{name} compiled in {outcome.compile_s or 0.0:.1f} s, checked, {best * 1e3:.3g} ms a call"
    return Finding("devices", "ok", f"{where}: {compiled}", details=details)


@contextmanager
def _caches_of_its_own() -> Iterator[None]:
    """Give child processes empty compiler caches, but the user's device locks."""
    import platformdirs

    locks = platformdirs.user_cache_path("mmsbgen") / "locks"
    names = ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="mmsbgen-doctor-") as folder:
        os.environ.update({name: str(Path(folder, name)) for name in names})
        Path(folder, "POCL_CACHE_DIR").mkdir()
        Path(folder, "XDG_CACHE_HOME", "mmsbgen").mkdir(parents=True)
        with suppress(OSError):
            locks.mkdir(parents=True, exist_ok=True)
            Path(folder, "XDG_CACHE_HOME", "mmsbgen", "locks").symlink_to(locks)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _database(url: str | Path | None, spec: str | None) -> Iterator[Finding]:
    from mmsbgen.backends.discovery import discover, select_device
    from mmsbgen.db.selection.index import Index
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.families import family
    from mmsbgen.kernels.record_key import device_record
    from mmsbgen.kernels.runtime import look_up
    from mmsbgen.sampler.chain.chain_problem import problem_of_default_run
    from mmsbgen.tuner.run.changed_keys import Present

    try:
        store = open_store(url, read_only=True)
    except MmsbgenError as error:
        yield Finding("database", "problem", str(error), "Name another with --database or MMSBGEN_DATABASE_URL")
        return
    with store:
        yield from _state_of(store)
        trials, present = store.trials(), Present()
        devices, hints = discover()
        kernels = family()
        for info in [select_device(spec, devices, hints)] if spec else devices:
            record = device_record(info)
            own = [trial for trial in trials if trial.key.device.identity == record.identity]
            counts = Counter("stale" if present.differences(trial) else trial.status for trial in own)
            problem = problem_of_default_run(*_USUAL, info)
            name = kernels.worth_tuning(problem)[0]
            chosen = look_up(Index(store), info, kernels, name, problem)
            told = ", ".join(f"{count} {status}" for status, count in counts.most_common()) or "none"
            what = f"trials of {info.name} ({info.platform}): {told}"
            what += f"; {name} of a default run has tier {chosen.tier} ({chosen.reason})"
            details = {"device": info.spec, "trials": dict(counts), "tier": chosen.tier}
            if counts["ok"]:
                yield Finding("database", "ok", what, details=details)
            else:
                remedy = f"mmsbgen tune --device {info.spec}" + (" --retune" if counts["stale"] else "")
                yield Finding("database", "note", what, f"{remedy} may find faster configurations", details)


def _state_of(store: Any) -> Iterator[Finding]:
    """Findings about a database: whether it exists, its schema and its integrity."""
    from mmsbgen.db.store.connect import check_pages
    from mmsbgen.db.store.schema import REVISION

    if store.missing:
        what = f"there is no tuning database at {store.location} yet"
        yield Finding("database", "note", what, "mmsbgen tune makes it")
        return
    counts = f"{len(store.runs())} runs, {len(store.quarantined())} configurations in quarantine"
    what = f"{store.location}, schema {REVISION}: {counts}"
    yield Finding("database", "ok", what, details={"location": store.location})
    if store.place.path is not None:
        try:
            check_pages(store.database)  # of any size
        except MmsbgenError as error:
            yield Finding("database", "problem", str(error), "Take the last copy, or move the file away and tune again")
        if not os.access(store.place.path, os.W_OK):
            what = f"{store.location} can be read, but not written"
            yield Finding("database", "warning", what, "Mend its permissions before you tune")
