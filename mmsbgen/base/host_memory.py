"""Memory of this machine and of its processes."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["available_host_memory", "readable", "resident_bytes"]

_CGROUP = Path("/sys/fs/cgroup")


def readable(size: float) -> str:
    """Bytes for a reader: 1.30 GB."""
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def available_host_memory(proc: Path = Path("/proc"), cgroup: Path = _CGROUP) -> tuple[int, str]:
    """Bytes that this process may still allocate, and where that limit comes from.

    The smallest of the machine's available memory and what each enclosing control group, version 1 or 2, leaves.
    ``proc`` and ``cgroup`` are where the process's control groups are told and mounted.
    """
    import psutil

    best, source = psutil.virtual_memory().available, "the machine's available memory"
    for folder, limit_name, usage_name in _groups(proc, cgroup):
        try:
            limit, usage = (int((folder / name).read_text()) for name in (limit_name, usage_name))
        except (OSError, ValueError):  # "max" is no limit
            continue
        left = max(0, limit - usage + _reclaimable(folder))
        if left < best:
            best, source = left, f"the limit of {readable(limit)} of control group {folder.relative_to(cgroup)}"
    return best, source


def resident_bytes(pid: int) -> int:
    """Bytes of memory that a process and those that it started hold; 0 for one that is gone.

    Children are left out where the system does not list them.
    """
    import psutil

    try:
        held: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0
    # psutil finds children by reading every process of the machine: too long beside what is timed.
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread may have ended meanwhile
            held += sum(resident_bytes(int(child)) for child in children.read_text().split())
    return held


def _groups(proc: Path, cgroup: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's control group and its parents, with the names of limit and usage there.

    Inside a container the path of the group may be one that only the host sees; then the mount's own root, which
    is always among the parents, is the container's group.
    """
    found = []
    with contextlib.suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                base, names = cgroup, ("memory.max", "memory.current")
            elif "memory" in controllers.split(","):
                base, names = cgroup / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
            else:
                continue
            relative = Path(path.lstrip("/"))
            found += [(base / part, *names) for part in (relative, *relative.parents)]
    return found


def _reclaimable(folder: Path) -> int:
    """Page cache that the kernel gives back under pressure, counted as used by the control group and those below."""
    try:
        values = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines() if " " in line)
    except OSError:
        return 0
    # Version 1 has the sum over the groups below as total_inactive_file; version 2 sums up in any case.
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))
