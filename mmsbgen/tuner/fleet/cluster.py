"""The Dask cluster of a fleet: a scheduler, workers with one device each, and tasks pinned to devices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.libraries import library
from mmsbgen.base.processes import python_environment
from mmsbgen.kernels.record_key import device_record
from mmsbgen.tuner.fleet.fleet_worker import DEVICE_VARIABLE
from mmsbgen.tuner.measure.measurer import Measurer

T = TypeVar("T")
_RESOURCE = "mmsbgen device "
_START_S = 60.0
"""How long workers may take to appear, or to come back after one has died."""
_CONNECT_S = 5.0
_LOOPBACK = "127.0.0.1"
_NEED = "several devices"


class LostError(MmsbgenError):
    """A worker died while it ran the task."""


class FleetWorkers:
    """The workers of one kind of device."""

    def __init__(self, client: Any, resource: str, workers: Sequence[str]) -> None:
        self.client, self.resource, self.workers = client, resource, tuple(workers)

    def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run ``function`` on one of the devices, which it has to itself, and return its result.

        Raises the function's exceptions, :class:`LostError` when the worker dies, and :class:`MmsbgenError` when all
        workers are gone and none comes back.
        """
        from distributed import CancelledError, KilledWorker

        future = self.client.submit(function, *arguments, resources={self.resource: 1}, pure=False, retries=0)
        alone_since = None
        try:
            while True:
                try:
                    found: T = future.result(timeout=2.0)
                    return found
                except TimeoutError:
                    if resources(self.client).get(self.resource):
                        alone_since = None
                    elif alone_since is None:
                        alone_since = time.monotonic()
                    elif time.monotonic() - alone_since > _START_S:
                        raise MmsbgenError(
                            f"all workers with this device are gone for {_START_S:.0f} s ({', '.join(self.workers)}); "
                            "start them and give the same command again"
                        ) from None
        except KilledWorker as error:
            where = error.last_worker.address if error.last_worker is not None else "unknown"
            raise LostError(f"the worker {where} died, its machine or its process was ended") from None
        except CancelledError:
            raise LostError("the scheduler gave the task up: a connection broke") from None
        finally:
            future.release()


def resources(client: Any) -> dict[str, list[str]]:
    """Addresses of the workers by the resource of their device; other workers are left out."""
    found: dict[str, list[str]] = {}
    for address, worker in client.scheduler_info(n_workers=-1)["workers"].items():
        for name in worker.get("resources", {}):
            if name.startswith(_RESOURCE):
                found.setdefault(name, []).append(address)
    return {name: sorted(addresses) for name, addresses in found.items()}


def device_of(spec: str | None) -> DeviceInfo:
    """Open a device, or the best one, in a child and return its description.

    Raises :class:`InputError` when there is none.
    """
    with Measurer(spec, "") as measurer:
        return measurer.open()


@contextlib.contextmanager
def local_workers(specs: Sequence[str]) -> Iterator[Any]:
    """Yield a client of a scheduler in this process with one worker per device; "all" is every device of this machine.

    Anyone who reaches a Dask scheduler or worker can run any code in it.  So all of them listen on the loopback
    interface only, and require the certificate that this process has made, also from other users of the machine.

    Raises :class:`InputError` for a device that does not exist or is named twice.
    """
    distributed = _distributed()
    library("cryptography", _NEED)
    infos = _infos(specs)
    here = {"host": _LOOPBACK, "protocol": "tls", "security": distributed.Security.temporary()}
    workers = {info.spec: {"cls": distributed.Nanny, "options": _options(info) | here} for info in infos}
    options = {"port": 0, "dashboard": False, "dashboard_address": f"{_LOOPBACK}:0"}
    scheduler = {"cls": distributed.Scheduler, "options": options | here}
    of = {"workers": workers, "scheduler": scheduler, "security": here["security"], "silence_logs": 50}
    with (
        _configured(),
        distributed.SpecCluster(**of) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        _await_workers(client, len(infos), "this machine")
        yield client


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Yield a client of a scheduler that runs elsewhere.

    Raises :class:`InputError` when the scheduler does not answer or has no worker with a device.
    """
    distributed = _distributed()
    with _configured():
        try:
            client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise _no_scheduler(address, error) from None
        with client:
            _await_workers(client, 1, address)
            yield client


def serve(address: str, spec: str | None, told: Callable[[DeviceInfo], None]) -> None:
    """Run a worker with one device for the scheduler at ``address`` until that closes; a lost process is replaced.

    ``told`` is called once the worker is connected.  Raises :class:`InputError` for a device that does not exist and a
    scheduler that does not answer.
    """
    distributed = _distributed()
    info = device_of(spec)

    async def run() -> None:
        nanny = distributed.Nanny(address, death_timeout=_CONNECT_S, **_options(info))
        try:
            await asyncio.wait_for(nanny, _START_S)
        except (OSError, ValueError, TimeoutError) as error:
            await nanny.close()
            raise _no_scheduler(address, error) from None
        told(info)
        await nanny.finished()

    with _configured(), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def _infos(specs: Sequence[str]) -> list[DeviceInfo]:
    if list(specs) == ["all"]:
        from mmsbgen.backends import discover

        found, hints = discover()
        if not found:
            raise InputError("\n".join(["no device to compute on was found", *hints]))
        return found
    infos = [device_of(spec) for spec in specs]
    for position, info in enumerate(infos):
        if info.spec in [other.spec for other in infos[:position]]:
            raise InputError(f"the device {info.spec} is named twice: a device measures for one worker only")
    return infos


def _options(info: DeviceInfo) -> dict[str, Any]:
    """Options of a worker: one thread, one device, no limit of Dask's own on its memory."""
    return {
        "nthreads": 1,
        "resources": {_RESOURCE + device_record(info).key: 1},
        "env": {DEVICE_VARIABLE: info.spec, **python_environment()},
        "memory_limit": 0,
        "preload": ["mmsbgen.tuner.fleet.fleet_worker"],
        "silence_logs": 50,
        "services": {},
        "dashboard": False,
    }


@contextlib.contextmanager
def _configured() -> Iterator[None]:
    """Configure Dask for measuring: tasks whose worker dies are not retried, and nothing is served over HTTP.

    Dask's nannies set variables of their workers in this process too; those are removed at the end.
    """
    import dask

    with dask.config.set(
        {
            "distributed.scheduler.allowed-failures": 0,
            "distributed.nanny.pre-spawn-environ.PYTHONSAFEPATH": "1",
            "distributed.comm.timeouts.connect": f"{_CONNECT_S}s",
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
        }
    ):
        names = {DEVICE_VARIABLE, "PYTHONHASHSEED", "__DASK_PARENT_PID", *python_environment()}
        names |= set(dask.config.get("distributed.nanny.pre-spawn-environ"))
        set_by_dask = names - set(os.environ)
        try:
            yield
        finally:
            for name in set_by_dask:
                os.environ.pop(name, None)


def _await_workers(client: Any, count: int, where: str) -> None:
    end = time.monotonic() + _START_S
    while sum(map(len, resources(client).values())) < count:
        if time.monotonic() > end:
            raise InputError(
                f"no worker with a device came to {where} within {_START_S:.0f} s: "
                "start one on each machine and for each device with 'mmsbgen worker SCHEDULER --device SPEC'"
            )
        time.sleep(0.1)


def _no_scheduler(address: str, error: Exception) -> InputError:
    return InputError(
        f"no scheduler answers at {address!r} ({type(error).__name__}): name it as tcp://HOST:PORT, "
        "and start one with 'dask scheduler'"
    )


def _distributed() -> Any:
    return library("distributed", _NEED)
