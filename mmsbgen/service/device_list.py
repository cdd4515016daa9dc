"""Devices that requests may name: those of this machine, and those with records, also shipped ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.backends.discovery import discover, matching, select_device
from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.tuning_records import DeviceRecord, RoofRecord, RunRecord, TrialRecord
from mmsbgen.db.selection.index import SHIPPED
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.record_key import device_record, recorded_traits
from mmsbgen.kernels.space import Traits
from mmsbgen.service.http.helper_process import HelperProcess

_DISCOVERY_SECONDS = 60.0
_KEY = re.compile(r"[0-9a-f]{32}")


class Shipped(NamedTuple):
    """The shipped records of all devices."""

    devices: dict[str, DeviceRecord]
    """By key."""
    trials: dict[str, TrialRecord]
    """By uid."""
    runs: dict[str, RunRecord]
    """By uuid."""
    roofs: list[RoofRecord]
    """Newest first."""


@cache
def shipped() -> Shipped:
    """The records in the package, read once."""
    bundles = [jsonl.read(path) for path in sorted([*SHIPPED.glob("*.jsonl"), *SHIPPED.glob("*.jsonl.gz")])]
    trials = {trial.uid: trial for bundle in bundles for trial in bundle.trials}
    return Shipped(
        {trial.key.device.key: trial.key.device for trial in trials.values()},
        trials,
        {run.uuid: run for bundle in bundles for run in bundle.runs},
        sorted((roof for bundle in bundles for roof in bundle.roofs), key=lambda roof: roof.measured_at, reverse=True),
    )


@dataclass(frozen=True)
class Target:
    """The device of a request; ``info`` is None unless it is a device of this machine."""

    record: DeviceRecord
    traits: Traits
    info: DeviceInfo | None = None


class Devices:
    """The devices of this machine and the devices with records.

    The former are discovered in a child process, so that a driver that crashes or hangs does not stop the service.
    """

    def __init__(self) -> None:
        self.local: list[DeviceInfo] = []
        self.hints: list[str] = []
        self.known: dict[str, DeviceRecord] = {}

    async def discover(self) -> None:
        """Find the devices of this machine; an error becomes a hint."""
        child = HelperProcess()
        try:
            self.local, self.hints = await child.run(_DISCOVERY_SECONDS, discover)
        except Exception as error:  # of whatever library
            reason = f"no answer in {_DISCOVERY_SECONDS:g} s" if isinstance(error, TimeoutError) else repr(error)
            self.hints = [f"the devices of this machine could not be listed: {reason}"]
        finally:
            child.close()

    def read(self, store: Store) -> None:
        """Read the devices that have records, including shipped ones."""
        self.known = shipped().devices | {device.key: device for device in store.devices()}

    def target(self, text: str | None) -> Target:
        """The device that ``text`` names; for None, the best one of this machine.

        ``text`` is the key of a device with records, a name or number as ``--device`` takes it, or a part of the name
        of a device with records.

        Raises :class:`InputError` if no device matches, or several.
        """
        if text is not None and _KEY.fullmatch(text):
            if text not in self.known:
                raise InputError(f"no device has the key {text}: GET /api/v1/devices lists those there are")
            return self._recorded(self.known[text])
        try:
            return _here(select_device(text, self.local, self.hints))
        except InputError as error:
            # An ambiguous name or an unknown number of this machine is not looked up among recorded devices.
            if text is None or matching(text, self.local) or text.strip().isdecimal():
                raise
            found = [device for device in self.known.values() if device.matches(text)]
            if len({device.identity for device in found}) > 1:
                names = "; ".join(f"{device.key} {device.label}" for device in found[:10])
                raise InputError(f"{text!r} may be several devices, name one by its key: {names}") from None
            if not found:
                raise InputError(f"{error}\nnor is there a record of such a device") from None
            return self._recorded(max(found, key=lambda device: device.driver))

    def _recorded(self, device: DeviceRecord) -> Target:
        same = next((info for info in self.local if device_record(info).key == device.key), None)
        return _here(same) if same is not None else Target(device, recorded_traits(device))


def _here(info: DeviceInfo) -> Target:
    return Target(device_record(info), traits_of(info), info)
