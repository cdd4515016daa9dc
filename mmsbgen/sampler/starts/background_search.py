"""Search for the starts of a large graph in a separate process, which reads the graph while the run opens its device.

A process is used because it can be ended at any time, and a thread cannot.  It calls
:data:`mmsbgen.sampler.starts.start_methods.STARTS`, so the starts are the same as without it.  It can be started before
the graph is there, as loading its program takes almost a second.  If no process can be started, the search runs in this
process.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.backends.opencl import compiler_caches, intel_runtime
from mmsbgen.base.processes import ChildProcess
from mmsbgen.graph import Split
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts.local_moving import JOINED, MOST_ENDS
from mmsbgen.sampler.starts.start_methods import MANY, MOVED, STARTS, Start, worth_trying
from mmsbgen.sampler.state import memory_needs
from mmsbgen.sampler.state.memory_needs import MemoryNeeds

__all__ = [
    "Searcher",
    "StartSearch",
    "device_bytes",
    "has_room",
    "searcher_ahead",
    "searching_device",
    "searching_for_starts",
]

log = logging.getLogger(__name__)
#: Seconds between two polls of the process.
_LOOK_S = 0.05

#: Share of the device's memory, or of the free memory of a CPU, that a chain and the search for its start may take.
_TOGETHER = 0.9

#: Fewest bytes of a text for each of its links, and of a file that is packed.
_LEAST_BYTES, _LEAST_PACKED = 8, 4
#: Bytes that a process takes to use a device whose memory is the host's.
_PROCESS = 200_000_000


def device_bytes(n: int, links: int) -> int:
    """Most memory that local moving of a graph of ``n`` vertices takes on a device, in bytes."""
    # Of vertices offsets, labels, volumes, costs and places; of links both ends, weights, and tables of a batch; of a
    # part of the links tables and rows of a contraction.
    return _PROCESS + 72 * n + 2 * links * 11 + min(2 * links * 24, 12 * JOINED)


def searching_device(split: Split, info: DeviceInfo, needs: MemoryNeeds) -> str | None:
    """The device if the search for starts has room on it beside a chain with these ``needs``, else None."""
    wanted = device_bytes(split.graph.n_vertices, split.n_training_links)
    return info.spec if has_room(info, needs, needs.device_total, wanted) else None


def has_room(info: DeviceInfo, needs: MemoryNeeds, taken: int, wanted: int) -> bool:
    """Whether a device has room for ``wanted`` bytes beside ``taken`` ones; chains with these ``needs`` are on it."""
    room = info.global_memory - taken
    if info.kind == "cpu":
        room = memory_needs.available_host_memory()[0] - taken - needs.host_total
    return wanted < _TOGETHER * room


def starts_sought(split: Split, options: Options) -> list[str]:
    """The starts that are sought in the training links for ``options`` that are sized for the graph."""
    tried = worth_trying(split, options.n_communities) if options.start == "auto" else [options.start]
    return [name for name in tried if name not in (None, "random")]


def only_moved(split: Split, options: Options, info: DeviceInfo, taken: int) -> bool:
    """Whether only local moving seeks starts, on a device with its own memory, of which ``taken`` bytes are in use."""
    links = split.n_training_links
    wanted = device_bytes(split.graph.n_vertices, links)
    room = info.kind != "cpu" and wanted < _TOGETHER * (info.global_memory - taken)
    return room and MANY < links < MOST_ENDS // 2 and starts_sought(split, options) == [MOVED]


class Searcher:
    """A process that searches for starts as soon as it gets a graph; raises OSError if there can be none."""

    def __init__(self) -> None:
        self._links = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = ChildProcess("mmsbgen.sampler.starts.search_process", stdin=self._links)
        except BaseException:
            self._links.close()
            raise

    def search(self, split: Split, k: int, seed: int, names: tuple[str, ...], device: str | None) -> ChildProcess:
        """Begin; returns the process.  Raises OSError if the graph cannot be passed on."""
        adjacency = split.training_adjacency
        with self._links as links:
            for array in (adjacency.offsets, adjacency.neighbours):
                np.save(links, array)
            links.seek(0)
            self.process.connection.send((split.graph.n_vertices, k, seed, device or "", names))
        return self.process

    def close(self) -> None:
        """End the process."""
        self._links.close()
        self.process.close()


@contextmanager
def searcher_ahead(source: Any, options: Options) -> Iterator[Searcher | None]:
    """A process for the starts of a graph that is still to be read; None if it is surely small or needs no search.

    The process ends with an error in the block, and else with the :class:`StartSearch` that gets it.
    """
    ahead: Searcher | None = None
    with suppress(OSError):  # whoever reads the file tells that it is missing
        if options.start != "random" and bool(options.start or options.block) and _may_be_large(source):
            # Prepared here, as a process that is killed would leave its temporary folders behind.
            compiler_caches.prepare()
            intel_runtime.prepare()
            ahead = Searcher()
    try:
        yield ahead
    except BaseException:
        if ahead is not None:
            ahead.close()
        raise


def _may_be_large(source: Any) -> bool:
    """Whether a file may have over :data:`MANY` links; raises OSError if there is no such file."""
    if not isinstance(source, str | os.PathLike):
        return False
    packed = os.fsdecode(source).endswith((".gz", ".npz", ".parquet"))
    return os.stat(source).st_size > MANY * (_LEAST_PACKED if packed else _LEAST_BYTES)


class StartSearch:
    """A running search for the starts ``names`` of ``split`` with ``k`` communities; ``close`` ends its process.

    The device called ``device`` finds the moves of local moving; None for threads.  It is used only after
    :meth:`use_device`, so that the run opens it first and has what it needs on it.
    """

    def __init__(
        self,
        split: Split,
        k: int,
        seed: int,
        names: Iterable[str],
        device: str | None = None,
        ahead: Searcher | None = None,
    ) -> None:
        self.names, self.device = tuple(names), device
        self._split, self._k, self._seed = split, k, seed
        self._found: dict[str, Start] = {}
        self._process: ChildProcess | None = None
        try:
            ahead = ahead or Searcher()
            self._process = ahead.search(split, k, seed, self.names, device)
        except BaseException as error:
            if ahead is not None:
                ahead.close()
            if not isinstance(error, OSError):
                raise
            log.warning("starts are found in this process, as there can be no other: %s", error)

    def start(self, name: str, asked: Callable[[], bool] = lambda: False) -> Start:
        """Wait for the start ``name``; one that is not among ``names`` is computed in this process.

        Raises KeyboardInterrupt if ``asked`` returns true while waiting.
        """
        while name in self.names and name not in self._found:
            self._read(asked)
        found = self._found.get(name)
        return found if found is not None else STARTS[name](self._split, self._k, self._seed)

    @property
    def moves_on_device(self) -> bool:
        """Whether the process waits for :meth:`use_device`."""
        return self.device is not None and MOVED in self.names

    def use_device(self, config: Config | None) -> None:
        """Let the process use the device, by a configuration of the kernel best_labels; None for threads instead."""
        if self._process is not None:
            with suppress(OSError):  # its end is noticed by who waits for a start
                self._process.connection.send(None if config is None else dict(config))

    def close(self) -> None:
        """End the process, even if it is still searching."""
        if self._process is not None:
            self._process.close()

    def _read(self, asked: Callable[[], bool]) -> None:
        """Wait for the next start; if there is no process, or no longer, nothing more is expected of it."""
        if self._process is None:
            self.names = ()
            return
        try:
            while not self._process.connection.poll(_LOOK_S):
                if asked():
                    raise KeyboardInterrupt
            found: Start | str = self._process.connection.recv()
            if isinstance(found, str):
                log.warning("%s", found)
            else:
                self._found[found.name] = found
        except (EOFError, OSError):
            self._process.kill()
            self.names = ()
            log.warning("starts are found in this process, as the other one failed: %s", self._process.printed())


@contextmanager
def searching_for_starts(
    split: Split, options: Options, device: str | None = None, ahead: Searcher | None = None
) -> Iterator[StartSearch | None]:
    """Search in the background for the starts that ``options`` may use; None for a small graph or a random start.

    The device called ``device`` helps (:class:`StartSearch`), and the process ``ahead`` searches if it is there.
    """
    with ExitStack() as stack:
        if ahead is not None:
            stack.callback(ahead.close)
        sized = options.sized_for(split.graph.n_vertices, split.graph.n_links)
        names = starts_sought(split, sized)
        if split.n_training_links <= MANY or not names:
            stack.close()
            yield None
            return
        stack.pop_all()
        sought = StartSearch(split, sized.n_communities, sized.seed, names, device, ahead)
        stack.callback(sought.close)
        yield sought
