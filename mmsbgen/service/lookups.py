"""Look-ups of best configurations."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.tuning_records import PROGRAM, KernelRecord, Key, ToolchainRecord
from mmsbgen.db.selection.index import Selection
from mmsbgen.db.selection.live_index import LiveIndex
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import family
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import key_of, problem_record, program_digest
from mmsbgen.kernels.runtime import look_up_key
from mmsbgen.service.device_list import Devices, Target
from mmsbgen.service.models.kernel_models import Best


class LookUps:
    """Answers look-ups from memory, one at a time; records of the store that are new are read before."""

    def __init__(self, store: Store, devices: Devices) -> None:
        self._store, self._devices = store, devices
        self._index = LiveIndex(store)
        self._lock = Lock()
        devices.read(store)

    def best(self, device: str | None, of: str, kernel: str, values: dict[str, str]) -> Best:
        """The best known configuration of a kernel for a device and the values of a problem.

        Raises :class:`InputError` for an unknown kernel, device or problem.
        """
        found = family(of)
        found.kernel(kernel)
        target, selection, key = self.selected(device, found, kernel, found.problem(**values))
        return Best(
            device=target.record.label,
            device_key=target.record.key,
            local=target.info is not None,
            family=of,
            kernel=kernel,
            problem=dict(key.problem.params),
            configuration=selection.config,
            tier=selection.tier,  # type: ignore[arg-type]
            reason=selection.reason,
            expected_s=selection.expected_s,
            trial=selection.trial_ref,
            template_digest=program_digest(found, key, selection.config),
        )

    def selected(
        self, device: str | None, found: KernelFamily, name: str, problem: Problem
    ) -> tuple[Target, Selection, Key]:
        """The device that a text names, the configuration that is selected for it, and the key of the look-up.

        Raises :class:`InputError` if no device matches, or several.
        """
        with self._lock:
            try:
                target = self._devices.target(device)
            except InputError:
                self._devices.read(self._store)  # its first records may have come just now
                target = self._devices.target(device)
            self._index.update()
            traits = target.traits
            if traits.dialect not in found.kernel(name).dialects:
                raise InputError(
                    f"{name} is not written in {traits.dialect}, which {target.record.label} takes; it is in "
                    f"{', '.join(found.kernel(name).dialects)}"
                )
            key = self._key(target, found.kernel(name), problem)
            return target, look_up_key(self._index, key, traits, found, problem), key

    def _key(self, target: Target, spec: KernelSpec, problem: Problem) -> Key:
        """The key of a look-up; for another machine's device, with the compiler last used to tune it."""
        if target.info is not None:
            return key_of(target.info, spec, problem)
        kernel = KernelRecord(problem.family, spec.name, PROGRAM)
        key = Key(target.record, ToolchainRecord("", ""), kernel, problem_record(spec, problem))
        tuned = [group for group in self._index.groups(key) if group.key.device == key.device]
        last = max(tuned, key=lambda group: max(one.created_at for one in group.candidates), default=None)
        return key if last is None else replace(key, toolchain=last.key.toolchain)
