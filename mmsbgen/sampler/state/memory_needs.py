"""Memory needs of a run, and the check that they fit before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.base.host_memory import available_host_memory, readable

__all__ = ["MemoryNeeds", "available_host_memory", "of_refinement", "of_results", "of_start", "readable", "require"]

#: Most bytes that starts take, per link or vertex, and a constant part (measured in docs/memory.md).
LEIDEN_EACH, LEIDEN_ONCE = 180, 10_000_000
#: Most bytes that local moving on a device takes on the host per link (measured as those).
MOVED_EACH = 24
#: Most bytes that refinement takes per link, each of whose ends may be in another community (measured as those).
REFINEMENT_EACH = 600
#: Most links of communities that are split in a state with sparse rows: those of the largest communities.
MOST_SPLIT = 1 << 25
#: Bytes of an entry of sparse rows while links are counted and communities pruned (measured as those).
COUNTED = 48
#: Bytes per element for rounding rows to 16 bits.
NARROWED = 28
#: Largest number of entries of pi that results hold as codes of one byte.
MOST_CODES = 1 << 27
#: Bytes of a vertex in results beside its entries.
ROW_OF_RESULTS = 50


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes by purpose, on the ``device`` and on the ``host``, and those of the ``largest`` device array.

    ``held`` are bytes on the host of arrays that exist.
    """

    device: Mapping[str, int]
    host: Mapping[str, int]
    largest: tuple[str, int]
    held: int = 0

    @property
    def device_total(self) -> int:
        """Bytes of all device arrays."""
        return sum(self.device.values())

    @property
    def host_total(self) -> int:
        """Bytes of all host arrays."""
        return sum(self.host.values())


def of_graph(n_vertices: int, n_links: int) -> int:
    """Host bytes of a graph: its links, their adjacency, training links for a time; ids, offsets and degrees."""
    return 24 * (n_links + n_vertices)


def of_start(n_vertices: int, n_links: int, rows: int, moved: bool = False) -> int:
    """Most host bytes of starts: the work, or networkit's graph and the ``rows`` (in bytes) written at a time.

    ``moved`` is whether the only start is found by local moving on a device with memory of its own.
    """
    each = MOVED_EACH if moved else LEIDEN_EACH
    most = each * n_links + LEIDEN_EACH * n_vertices + LEIDEN_ONCE
    return max(most, most // 3 + rows)


def of_refinement(n_links: int, n_entries: int = 0) -> int:
    """Most host bytes of refinement, for parts of communities and for what explains the links.

    ``n_entries`` are those of all sparse rows, 0 for dense ones.
    """
    return REFINEMENT_EACH * (min(n_links, MOST_SPLIT) if n_entries else n_links) + COUNTED * n_entries


def of_results(
    n: int,
    k: int,
    real: int,
    top: int,
    needed: int,
    *,
    is_fixed: bool = False,
    chains: int = 1,
    keeps_spread: bool = False,
) -> int:
    """Most host bytes of making results of ``n`` rows of ``k`` reals of ``real`` bytes.

    The entries of rows are held in the order of pi and, their indices, in that of communities; then come the ``top``
    entries that are kept, those that the rule uses, its memberships, and pi in one byte an entry.

    Args:
        n: Number of vertices.
        k: Number of communities.
        real: Bytes of a real number.
        top: Entries of a row that are kept.
        needed: Entries of a row that the rule uses.
        is_fixed: Whether the rule puts a vertex into as many communities; else into some of them.
        chains: Number of chains, whose entries are all kept.
        keeps_spread: Whether results have the posterior's means and standard deviations, also in one byte an entry.
    """
    top, needed = min(top, k), min(needed, k)
    entries = max(top, needed)
    kept = top * (real + 4)
    codes = k if top < k and n * k <= MOST_CODES else 0
    each = entries * (real + 8) + (kept if top < entries else 0) + needed * (80 if is_fixed else 25) + codes
    spread = 2 * (top * real + codes) if keeps_spread else 0
    # Parts of the last chain's are there until they are put together.
    return n * (each + 2 * spread + (chains - 1) * (kept + codes + spread) + ROW_OF_RESULTS)


def require(needs: MemoryNeeds, info: DeviceInfo, used: int = 0) -> str:
    """Check that a run fits; returns in words what it takes of what is free.

    Raises :class:`DeviceMemoryError` if it does not fit.

    On a CPU the device's memory is the host's, so both sums count against the same limit.  ``used`` are bytes
    already allocated on the device.
    """
    host, source = available_host_memory()
    host += needs.held
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
    name, size = needs.largest
    if info.max_allocation and size > info.max_allocation:
        raise DeviceMemoryError(
            f"This run does not fit: an array of {name} takes {readable(size)}, and {info.name} "
            f"({info.platform}) allocates at most {readable(info.max_allocation)} at once. {remedy}"
        )
    if info.kind == "cpu":
        return f"needs {readable(needs.device_total + needs.host_total)} of memory, {readable(host)} free"
    return f"needs {readable(needs.device_total)} of {readable(info.global_memory)}"
