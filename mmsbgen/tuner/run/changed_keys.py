"""Which of the parts that a record depends on have changed since it was made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.backends.discovery import discover
from mmsbgen.base.errors import InputError
from mmsbgen.db.records.nearness import Difference
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.families import family
from mmsbgen.kernels.record_key import device_record, program_digest, toolchain_record

__all__ = ["Present", "of_program", "present_program"]


def present_program(key: Key, config: Mapping[str, Any]) -> str:
    """The digest that a recorded program has today; empty where its family is not known or it cannot be rendered."""
    try:
        return program_digest(family(key.kernel.family), key, dict(config))
    except InputError:
        return ""


def of_program(trial: TrialRecord) -> list[Difference]:
    """The kernel that is gone, or the digest of a program that has changed; empty for a family that is not known."""
    key = trial.key
    try:
        kernels = family(key.kernel.family).kernels
    except InputError:
        return []
    if key.kernel.name not in kernels:
        return [Difference("kernel", None, key.kernel.name)]
    now, then = present_program(key, trial.config), trial.template_digest
    return [] if now == then else [Difference("template digest", now, then)]


class Present:
    """The package's kernels as they are, and the devices of this machine with their drivers and compilers."""

    @cached_property
    def devices(self) -> list[DeviceInfo]:
        """The devices of this machine; looked for when first asked for."""
        return discover()[0]

    def differences(self, trial: TrialRecord) -> list[Difference]:
        """The parts that a trial depends on and that have changed: today's value is wanted, the trial's was found.

        Its program is compared with what is rendered today, driver and compiler with those of the same device in this
        machine.  Of a family or a device that is not here nothing can be said: the list is empty.
        """
        return [*of_program(trial), *self._of_device(trial.key)]

    def program_changed(self, trial: TrialRecord) -> bool:
        """Whether the trial's kernel is gone, or renders to another program today."""
        return bool(of_program(trial))

    def _of_device(self, key: Key) -> list[Difference]:
        same = [info for info in self.devices if device_record(info).identity == key.device.identity]
        if not same:
            return []
        info = next((info for info in same if info.driver == key.device.driver), same[0])
        toolchain = toolchain_record(info)
        pairs = {
            "driver": (info.driver, key.device.driver),
            "compiler": (toolchain.compiler, key.toolchain.compiler),
            "compiler version": (toolchain.version, key.toolchain.version),
            "compiler options": (toolchain.options, key.toolchain.options),
        }
        return [Difference(part, now, then) for part, (now, then) in pairs.items() if now != then]
