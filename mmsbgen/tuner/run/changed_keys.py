"""Which parts of a record's key have changed since it was made."""

from __future__ import annotations

from functools import cached_property

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.backends.discovery import discover
from mmsbgen.base.errors import InputError
from mmsbgen.db.records.nearness import Difference
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.families import family
from mmsbgen.kernels.record_key import device_record, toolchain_record
from mmsbgen.kernels.render import template_digest

__all__ = ["Present"]


class Present:
    """The package's templates as they are, and the devices of this machine with their drivers and compilers."""

    @cached_property
    def devices(self) -> list[DeviceInfo]:
        """The devices of this machine; looked for when first asked for."""
        return discover()[0]

    def differences(self, key: Key) -> list[Difference]:
        """The parts of a record's key that have changed since: today's value is wanted, the record's was found.

        A template is compared with the package's, driver and compiler with those of the same device in this
        machine.  Of a family or a device that is not here nothing can be said: the list is empty.
        """
        return [*self._of_template(key), *self._of_device(key)]

    def template_changed(self, key: Key) -> bool:
        """Whether the record's kernel is gone, or has another template than it was measured with."""
        return bool(self._of_template(key))

    def _of_template(self, key: Key) -> list[Difference]:
        try:
            kernels = family(key.kernel.family).kernels
        except InputError:
            return []
        if key.kernel.name not in kernels:
            return [Difference("kernel", None, key.kernel.name)]
        dialect = "cuda" if key.device.backend == "cuda" else "opencl"
        digest = template_digest(kernels[key.kernel.name].template, dialect)
        found = key.kernel.template_digest
        return [] if digest == found else [Difference("template digest", digest, found)]

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
