"""Finds the recorded devices and runs that options of ``mmsbgen db`` name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mmsbgen.base.errors import InputError

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import Store


def picked_device(store: Store, text: str | None, *, shipped: bool = False) -> str | None:
    """The filter of records for ``--device``.

    A part of a recorded device's name is returned unchanged; a device of this machine, such as ``opencl:0``, as its
    label. If no device is recorded, ``text`` is returned unchanged.

    Args:
        store: The database.
        text: The option's value, or None.
        shipped: Whether devices of the records that come with the package count as recorded.

    Raises:
        InputError: If no recorded device matches, and none or several of this machine do. The message lists all.
    """
    if text is None:
        return None
    known = store.devices()
    if shipped:
        from mmsbgen.db.selection.index import shipped_groups

        known += {group.key.device.key: group.key.device for of in shipped_groups().values() for group in of}.values()
    number = re.fullmatch(r"([a-z]+:)?[0-9]+", text.strip().lower())
    if not known or (not number and any(device.matches(text) for device in known)):
        return text
    from mmsbgen.backends.discovery import discover, matching
    from mmsbgen.kernels.record_key import device_record

    here = discover()[0]
    found = {device_record(info).label: info.spec for info in matching(text, here)}
    if len(found) == 1:
        return next(iter(found))
    lines = [*dict.fromkeys(f"  {device.label}" for device in known)]
    lines += [f"  {info.spec}  {info.name} ({info.platform}), of this machine" for info in here]
    what = f"may be several devices: {', '.join(found.values())}" if found else "is no device of the records or here"
    raise InputError("\n".join([f"--device {text!r} {what}; there are:", *lines]))


def picked_run(store: Store, text: str | None) -> str | None:
    """The uuid of the tuning run whose uuid is ``text`` or starts with it.

    Raises ``InputError`` if none or several match; the message lists the newest runs.
    """
    if text is None:
        return None
    from mmsbgen.db.store.paging import run_named

    try:
        return run_named(store, text).uuid
    except InputError as error:
        newest = [f"  {run.uuid}  {run.started[:19].replace('T', ' ')}  {run.status}" for run in store.runs()[:5]]
        told = ["; the newest are (mmsbgen db runs has all):", *newest] if newest else ["; there are none"]
        raise InputError(f"--run: {error}" + "\n".join(told)) from None
