"""Comparison of stored records with today's programs, drivers and compilers."""

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


def present_program(key: Key, config: Mapping[str, Any]) -> str:
    """The digest of a recorded program as rendered today; empty if its family is unknown or it cannot be rendered."""
    try:
        return program_digest(family(key.kernel.family), key, dict(config))
    except InputError:
        return ""


def of_program(trial: TrialRecord) -> list[Difference]:
    """The difference if a trial's kernel is gone or its program has changed; empty for an unknown family."""
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
    """The package's kernels as of today, and the devices of this machine with their drivers and compilers."""

    @cached_property
    def devices(self) -> list[DeviceInfo]:
        """The devices of this machine, discovered on first use."""
        return discover()[0]

    def differences(self, trial: TrialRecord) -> list[Difference]:
        """The parts of a trial's key that have changed: ``wanted`` is today's value, ``found`` the trial's.

        The program is compared with today's rendering, driver and compiler with those of the same device in this
        machine. Families and devices that are not available here are skipped.
        """
        return [*of_program(trial), *self._of_device(trial.key)]

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
