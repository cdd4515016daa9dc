"""Routes of the tuning database: devices, look-ups, trials, runs."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord, newest_rates
from mmsbgen.db.store import paging
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.kernels.record_key import device_record
from mmsbgen.service.device_list import shipped
from mmsbgen.service.http.problem_details import documented
from mmsbgen.service.models import kernel_models
from mmsbgen.service.models.kernel_models import Cursor, Digest, KernelPath, Name, Pair, Status, Text, values_of
from mmsbgen.service.service_context import Core
from mmsbgen.tuner.run.changed_keys import of_program

router = APIRouter(prefix="/api/v1", tags=["tuning"], responses=documented(401, 421, 422, 429, 503))

Problem = Annotated[
    list[Pair],
    Query(description="Parameters of the problem as NAME=VALUE, each once.", max_length=32, examples=[["K=1024"]]),
]
Limit = Annotated[int, Query(ge=1, le=500, description="Most of a page.")]
After = Annotated[Cursor | None, Query(description="The 'next' of the page before.")]


def pairs(texts: list[str]) -> dict[str, str]:
    """Values of NAME=VALUE texts by name; raises ``InputError`` for a name that comes twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in found:
            raise InputError(f"the parameter {name} is given twice: give it once")
        found[name] = value
    return found


@router.get("/devices")
def devices(core: Core) -> kernel_models.DeviceList:
    """Devices of this machine, and devices with records."""
    local = {device_record(info).key: info for info in core.devices.local}
    counted = {device.key: (device, count) for device, count in paging.count_by_device(core.store)}
    # Roofs in the database precede shipped ones.
    copy, gather = newest_rates([*core.store.roofs(), *shipped().roofs])
    known = []
    for key, (device, count) in ({k: (d, 0) for k, d in shipped().devices.items()} | counted).items():
        values = values_of(device, kernel_models.KnownDevice) | {
            "trials": count,
            "shipped": key in shipped().devices,
            "local": key in local,
        }
        known.append(kernel_models.KnownDevice(**values, copy_gbps=copy.get(key), gather_gbps=gather[key]))
    return kernel_models.DeviceList(
        local=[kernel_models.LocalDevice(**info.as_dict(), key=key) for key, info in local.items()],
        known=sorted(known, key=lambda device: (device.label, device.driver, device.key)),
        hints=core.devices.hints,
    )


@router.get("/best")
async def best(
    core: Core,
    kernel: Annotated[Name, Query(description="The kernel.", examples=["update_phi"])],
    device: Annotated[
        Text | None,
        Query(description="A device's key, its name as --device takes it, or a part of its name; the best one here."),
    ] = None,
    family: Annotated[Text, Query(description="The family of the kernel; registered, and never a file.")] = "mmsb",
    problem: Problem = [],  # noqa: B006
) -> kernel_models.Best:
    """The best known configuration of a kernel for a device and a problem, with the reason for the choice.

    A run would use the same: the record of this exact key, else of the nearest trusted key, else the default.
    New records of other processes count at once.
    """
    await core.discovered.wait()
    return await asyncio.to_thread(core.look_ups.best, device, family, kernel, pairs(problem))


@router.get("/trials", responses=documented(404))
def trials(
    core: Core,
    kernel: Annotated[KernelPath | None, Query(description="NAME or FAMILY/NAME.")] = None,
    device: Annotated[Text | None, Query(description="A part of backend, name, platform or vendor.")] = None,
    problem: Problem = [],  # noqa: B006
    status: Annotated[Status | None, Query(description="How they ended.")] = None,
    run: Annotated[Text | None, Query(description="Of this run: its uuid, or 8 digits or more that begin it.")] = None,
    limit: Limit = 50,
    cursor: After = None,
) -> kernel_models.TrialPage:
    """Trials, newest first, failures included."""
    page = paging.trials(
        core.store,
        limit=limit,
        cursor=cursor,
        kernel=kernel,
        device=device,
        problem=_values(pairs(problem)),
        status=status,
        run=None if run is None else _run_named(core.store, run).uuid,
    )
    return kernel_models.TrialPage(trials=[_trial(trial) for trial in page.records], next=page.cursor)


@router.get("/trials/{uid}", responses=documented(404))
def one_trial(core: Core, uid: Annotated[Digest, Path()]) -> kernel_models.TrialModel:
    """One trial, from the database or the records that come with the package."""
    if (found := paging.trial(core.store, uid) or shipped().trials.get(uid)) is None:
        raise HTTPException(404, f"there is no trial {uid}")
    return _trial(found)


def _run_named(store: Store, text: str) -> RunRecord:
    try:
        return paging.run_named(store, text, shipped().runs)
    except InputError as error:
        raise HTTPException(404, str(error)) from None


def _values(texts: dict[str, str]) -> dict[str, Any]:
    """Values converted to the types of records: integers and booleans where the texts are such."""
    plain: dict[str, Any] = {"true": True, "false": False}
    return {
        name: plain.get(text, int(text) if re.fullmatch("-?[0-9]{1,18}", text) else text)
        for name, text in texts.items()
    }


def _trial(trial: TrialRecord) -> kernel_models.TrialModel:
    key = trial.key
    values = values_of(trial, kernel_models.TrialModel)
    return kernel_models.TrialModel(
        **values,
        trial=trial.uid,
        device=key.device.label,
        device_key=key.device.key,
        compiler=" ".join(filter(None, (key.toolchain.compiler, key.toolchain.version))),
        family=key.kernel.family,
        kernel=key.kernel.name,
        stale=any(found.part == "template digest" for found in of_program(trial)),
        problem=dict(key.problem.params),
        configuration=dict(trial.config),
    )
