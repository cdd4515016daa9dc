"""What a run needs and what there is: numbers before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.errors import DeviceMemoryError

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Needs:
    """Bytes by purpose; ``device`` lives on the device, ``host`` in this process."""

    device: Mapping[str, int]
    host: Mapping[str, int]

    @property
    def device_total(self) -> int:
        """Bytes of all device arrays."""
        return sum(self.device.values())

    @property
    def host_total(self) -> int:
        """Bytes of all host arrays."""
        return sum(self.host.values())


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


def require(needs: Needs, info: DeviceInfo, used: int = 0) -> str:
    """One line with what is needed and what there is; raises :class:`DeviceMemoryError` when it does not fit.

    On a CPU the device's memory is the host's, so both sums count against the same limit.  ``used`` are bytes
    already allocated on the device.
    """
    host, source = available_host_memory()
    parts = ", ".join(f"{name} {readable(size)}" for name, size in needs.device.items() if size >= 1_000_000)
    text = f"needs {readable(needs.device_total)} on the device ({parts or 'little'})"
    remedy = "Use fewer communities, a smaller mini-batch, or a device with more memory."
    if info.kind == "cpu":
        total = needs.device_total + needs.host_total
        text += f" and {readable(needs.host_total)} beside it; {source} leaves {readable(host)}"
        if total > host:
            raise DeviceMemoryError(f"This run does not fit: it {text}. {remedy}")
    else:
        text += f" of {readable(info.global_memory)} on {info.name}"
    if 0 < info.global_memory < needs.device_total + used:
        has = f"{info.name} ({info.platform}) has {readable(info.global_memory)}"
        has += f", of which {readable(used)} are taken" if used else ""
        raise DeviceMemoryError(f"This run does not fit: it {text}; {has}. {remedy}")
    if info.kind != "cpu" and needs.host_total > host:
        raise DeviceMemoryError(
            f"This run does not fit: it needs {readable(needs.host_total)} on the host; {source} leaves "
            f"{readable(host)}. {remedy}"
        )
    largest = max(needs.device.items(), key=lambda item: item[1])
    if info.max_allocation and largest[1] > info.max_allocation:
        raise DeviceMemoryError(
            f"This run does not fit: its {largest[0]} array takes {readable(largest[1])}, and {info.name} "
            f"({info.platform}) allocates at most {readable(info.max_allocation)} at once. {remedy}"
        )
    return text
