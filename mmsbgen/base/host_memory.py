"""Memory of the host and of its processes."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import InputError

_CGROUP = Path("/sys/fs/cgroup")

#: Numbers of glibc's mallopt, and the largest arrays that it is asked to keep: versions before 2.35 refuse the first.
_TRIM, _MMAP, _LARGEST_KEPT = -1, -3, (1 << 28, 1 << 25)
#: Bytes of free memory at the end of the heap above which glibc returns it.
_MOST_KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next arrays, as new pages of the system take as long as NumPy's work.

    It holds for the whole process, so this is for the command line alone.  :func:`available_host_memory` returns what
    is free.
    """
    if (mallopt := _of_libc("mallopt")) is not None and any(mallopt(_MMAP, size) for size in _LARGEST_KEPT):
        mallopt(_TRIM, _MOST_KEPT)


def _of_libc(name: str) -> Any:
    """A function of the C library; None where it has none of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def readable(size: float) -> str:
    """A number of bytes with a unit, for example "1.30 GB"."""
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.2f} GB" if size < 9.995 else f"{size:.1f} GB"


def available_host_memory(proc: Path = Path("/proc"), cgroup: Path = _CGROUP) -> tuple[int, str]:
    """Bytes that this process may still allocate, and the source of that limit in words.

    It is the minimum of the machine's available memory and the remainder of each enclosing control group, version 1 or
    2.  ``proc`` and ``cgroup`` are the mount points of these file systems.
    """
    import psutil

    if (trim := _of_libc("malloc_trim")) is not None:
        trim(0)
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
    """Resident bytes of a process and its descendants; 0 for a process that has ended.

    Descendants are left out if the system does not list them.
    """
    import psutil

    try:
        held: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0
    # psutil would read every process of the machine to find children, which would disturb timings.
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread may have ended meanwhile
            held += sum(resident_bytes(int(child)) for child in children.read_text().split())
    return held


def need_host_memory(size: int, what: str, remedy: str) -> None:
    """Raise :class:`InputError`, with a ``remedy``, if the ``size`` bytes of ``what`` are more than the memory left."""
    left, source = available_host_memory()
    if size > left:
        raise InputError(f"{what} take {readable(size)}, and {source} leaves {readable(left)}: {remedy}")


def _groups(proc: Path, cgroup: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's control group and its parents, with the file names of limit and usage.

    Inside a container the path of the group may be valid on the host only.  The root of the mount, which is always
    among the parents, is then the container's group.
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
    """Bytes of reclaimable page cache that count as used memory of the control group and its descendants."""
    try:
        values = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines() if " " in line)
    except OSError:
        return 0
    # Version 1 has the sum over descendants as total_inactive_file; version 2 always sums.
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))
