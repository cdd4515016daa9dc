"""What Linux tells of this machine's memory and processes, and what it can be asked to do with ours."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

__all__ = ["available_host_memory", "cores", "die_with_parent", "first_to_go", "readable", "resident_bytes"]

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def readable(size: float) -> str:
    """Bytes for a reader: 1.30 GB."""
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _groups(proc: Path, cgroup: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's control group and its parents, with the names of limit and usage there.

    Inside a container the path of the group may be one that only the host sees; then the mount's own root, which
    is always among the parents, is the container's group.
    """
    found = []
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, names = cgroup, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = cgroup / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        relative = Path(path.lstrip("/"))
        found += [(base / part, *names) for part in dict.fromkeys((relative, *relative.parents))]
    return found


def _reclaimable(folder: Path) -> int:
    """Page cache that the kernel gives back under pressure, counted as used by the control group and those below."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    # Version 1 has the sum over the groups below as total_inactive_file; version 2 sums up in any case.
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))


def available_host_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> tuple[int, str]:
    """Bytes that this process may still allocate, and where that limit comes from.

    The smallest of the machine's available memory and what each enclosing control group, version 1 or 2, leaves.
    ``proc`` and ``cgroup`` are where these file systems are mounted.
    """
    best, source = 2**62, "no known limit"
    try:
        meminfo = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
        best, source = int(meminfo["MemAvailable"].split()[0]) * 1024, "the machine's available memory"
    except (OSError, KeyError, ValueError):
        pass
    for folder, limit_name, usage_name in _groups(proc, cgroup):
        limit, usage = _number(folder / limit_name), _number(folder / usage_name)
        if limit is None or usage is None or limit >= 2**60:
            continue
        left = max(0, limit - usage + _reclaimable(folder))
        if left < best:
            best, source = left, f"the limit of {readable(limit)} of control group {folder.relative_to(cgroup)}"
    return best, source


def resident_bytes(pid: int, proc: Path = _PROC) -> int:
    """Bytes of memory that a process and those that it started, by any thread, hold; 0 where that is not known.

    Where the system does not tell which those are, they are left out.
    """
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    children: list[str] = []
    with contextlib.suppress(OSError):
        for thread in (proc / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                children += (thread / "children").read_text().split()
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident_bytes(int(child), proc) for child in children)


def die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when ``parent``, which started it, ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def first_to_go() -> None:
    """Where the machine runs out of memory all the same, Linux ends this process before any other."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
