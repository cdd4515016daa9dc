"""Look-ups of best configurations, answered from memory while tunes store trials."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.db.records.tuning_records import PROGRAM, KernelRecord, Key, ToolchainRecord
from mmsbgen.db.selection.index import Selection
from mmsbgen.db.selection.live_index import KernelName, LiveIndex
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import family
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import key_of, problem_record, program_digest
from mmsbgen.kernels.runtime import look_up_key
from mmsbgen.service.device_list import Devices, Target
from mmsbgen.service.models.kernel_models import Best

MOST_ANSWERS = 4096
log = logging.getLogger("mmsbgen.service")


class Asked(NamedTuple):
    """One look-up: device, kernel and problem values as the client wrote them."""

    device: str | None
    family: str
    kernel: str
    problem: tuple[tuple[str, str], ...]


class LookUps:
    """Answers look-ups with JSON texts, cached until records of their kernel are added.

    The store is checked for new records every ``seconds``, and answers of their kernels are forgotten. A single
    thread owns the index, so that cached look-ups never wait for the database.
    """

    def __init__(self, store: Store, devices: Devices, seconds: float) -> None:
        self._store, self._devices, self._seconds = store, devices, seconds
        self._index = LiveIndex(store)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._answers: OrderedDict[Asked, bytes] = OrderedDict()
        self._making: dict[Asked, asyncio.Task[bytes]] = {}
        self._following: asyncio.Task[None] | None = None
        self._devices_read = 0.0

    async def open(self) -> None:
        """Start to follow the store."""
        await self._run(self._read_devices)
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following the store and end the thread."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self._thread.shutdown(cancel_futures=True)

    async def best(self, asked: Asked) -> tuple[bytes, str]:
        """The answer as JSON, and its origin: cached ('kept') or newly 'made'.

        Raises :class:`InputError` for an unknown kernel, device or problem.
        """
        if (found := self._answers.get(asked)) is not None:
            return found, "kept"
        if (making := self._making.get(asked)) is None:  # concurrent requests for the same look-up share it
            making = self._making[asked] = asyncio.create_task(self._made(asked))
            making.add_done_callback(lambda _: self._making.pop(asked))
        return await asyncio.shield(making), "made"

    async def refresh(self) -> None:
        """Read new records now, so that the next look-ups use them."""
        await self._take_up()
        await self._run(self._read_devices)

    async def configuration(self, target: Target, found: KernelFamily, name: str, problem: Problem) -> Selection:
        """The configuration that is selected for a device."""
        selection: Selection = (await self._run(partial(self._select, target, found, name, problem)))[0]
        return selection

    async def target(self, device: str | None) -> Target:
        """The device of a request.  Raises :class:`InputError` if no device matches, or several."""
        found: Target = await self._run(partial(self._target, device))
        return found

    async def devices_changed(self) -> None:
        """Drop all cached answers after the devices of this machine were discovered."""
        self._answers.clear()

    async def _made(self, asked: Asked) -> bytes:
        answer: bytes = await self._run(partial(self._answer, asked))
        self._answers[asked] = answer
        self._answers.move_to_end(asked)
        while len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)
        return answer

    async def _take_up(self) -> None:
        """Forget the answers of kernels that have new records."""
        # Answers that were made before have been stored: the thread's results come in its order.
        changed: set[KernelName] = await self._run(self._update)
        for asked in [asked for asked in self._answers if (asked.family, asked.kernel) in changed]:
            del self._answers[asked]

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _follow(self) -> None:
        kernels = -1
        while True:
            if kernels < len(self._index.kernels):
                # Garbage collection of the index, which stays in memory, would stop all answers for 1/6 s.
                kernels = len(self._index.kernels)
                gc.freeze()
            await asyncio.sleep(self._seconds)
            try:
                await self._take_up()
            except MmsbgenError as error:
                log.warning("records that were added could not be read: %s", error)
            except Exception:  # one bad record must not stop the updates
                log.exception("records that were added could not be read")

    def _update(self) -> set[KernelName]:
        if changed := self._index.update():
            self._read_devices()
        return changed

    def _answer(self, asked: Asked) -> bytes:
        found = family(asked.family)
        found.kernel(asked.kernel)
        problem = found.problem(**dict(asked.problem))
        target = self._target(asked.device)
        selection, key = self._select(target, found, asked.kernel, problem)
        best = Best(
            device=target.record.label,
            device_key=target.record.key,
            local=target.info is not None,
            family=asked.family,
            kernel=asked.kernel,
            problem=dict(key.problem.params),
            configuration=selection.config,
            tier=selection.tier,  # type: ignore[arg-type]
            reason=selection.reason,
            expected_s=selection.expected_s,
            trial=selection.trial_ref,
            template_digest=program_digest(found, key, selection.config),
        )
        return best.model_dump_json().encode()

    def _target(self, device: str | None) -> Target:
        """The device of a look-up, even if its first records were stored just now."""
        try:
            return self._devices.target(device)
        except InputError:
            # The index follows only kernels that were looked up: it misses devices with records of others.
            if time.monotonic() - self._devices_read < self._seconds:
                raise
            self._read_devices()
            return self._devices.target(device)

    def _read_devices(self) -> None:
        self._devices.read(self._store)
        self._devices_read = time.monotonic()

    def _select(self, target: Target, found: KernelFamily, name: str, problem: Problem) -> tuple[Selection, Key]:
        spec = found.kernel(name)
        if target.traits.dialect not in spec.dialects:
            raise InputError(
                f"{name} is not written in {target.traits.dialect}, which {target.record.label} takes; it is in "
                f"{', '.join(spec.dialects)}"
            )
        key = self._key(target, spec, problem)
        return look_up_key(self._index, key, target.traits, found, problem), key

    def _key(self, target: Target, spec: KernelSpec, problem: Problem) -> Key:
        if target.info is not None:
            return key_of(target.info, spec, problem)
        kernel = KernelRecord(problem.family, spec.name, PROGRAM)
        key = Key(target.record, ToolchainRecord("", ""), kernel, problem_record(spec, problem))
        return Key(target.record, self._toolchain(key), kernel, key.problem)

    def _toolchain(self, key: Key) -> ToolchainRecord:
        """The compiler last used to tune a device of another machine."""
        of_device = [group for group in self._index.groups(key) if group.key.device == key.device]
        if not of_device:
            return key.toolchain
        return max(of_device, key=lambda g: max(one.created_at for one in g.candidates)).key.toolchain
