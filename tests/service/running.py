"""Services as real processes over real databases, and records of kernels that there are."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import (
    PROGRAM,
    DeviceRecord,
    KernelRecord,
    Key,
    RoofRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.kernels.record_key import problem_record, program_digest, recorded_traits

TOKEN = "a-token-that-only-the-tests-know"
COMMAND = [sys.executable, "-P", "-c", "from mmsbgen.cli import main; main(prog_name='mmsbgen')"]
_URL = re.compile(r"serves (http://\S+)/ from")


@dataclass
class Service:
    """A running ``mmsbgen serve``."""

    process: subprocess.Popen[bytes]
    url: str
    database: str
    data: Path
    log: Path

    def client(self, *, token: str | None = TOKEN, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, **options)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def serving(database: str, data: Path, *options: str, token: str | None = TOKEN) -> Iterator[Service]:
    """Run a service on a free port until the block ends."""
    environment = {name: text for name, text in os.environ.items() if name != "MMSBGEN_TOKEN"}
    if token:
        environment["MMSBGEN_TOKEN"] = token
    command = [
        *COMMAND,
        "serve",
        "--port",
        "0",
        "--database",
        database,
        "--data",
        str(data),
        "--workers",
        "0",
        *options,
    ]
    data.mkdir(parents=True, exist_ok=True)
    log = data / f"log-{uuid.uuid4().hex}"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file, env=environment)
    try:
        deadline = time.monotonic() + 60
        while not (found := _URL.search(log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the service did not start: {log.read_text()}")
            time.sleep(0.05)
        service = Service(process, found[1], database, data, log)
        with service.client() as client:
            assert client.get("/health").status_code == 200
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


MMSB = family()


def device(number: int = 0, **changes: Any) -> DeviceRecord:
    values: dict[str, Any] = {
        "backend": "cuda",
        "platform": "CUDA",
        "vendor": "NVIDIA",
        "name": f"Test GPU {number}",
        "architecture": f"sm_{200 + number}",
        "driver": "580.1",
        "kind": "gpu",
        "compute_units": 100 + number,
        "memory_bytes": 2**36,
        "extra": {"local_memory": 2**17, "max_block_size": 1024, "sub_group_sizes": [32], "vector_width_float": 4},
    }
    return DeviceRecord(**{**values, **changes})


def key(of: DeviceRecord, kernel: str = "update_pi", **problem: Any) -> Key:
    spec = MMSB.kernel(kernel)
    record = KernelRecord("mmsb", kernel, PROGRAM)
    return Key(of, ToolchainRecord("nvrtc", "13.0", "-O3"), record, problem_record(spec, MMSB.problem(**problem)))


def records(run: RunRecord, *, devices: int = 2, most: int = 40, sizes: tuple[int, ...] = (64, 256, 1024)) -> Bundle:
    """A run over some devices and problems, the configurations of each with other times; the best is known."""
    trials = []
    spec = MMSB.kernel("update_pi")
    for number in range(devices):
        of = device(number)
        configs = spec.space.configs(MMSB.problem(), recorded_traits(of))[:most]
        for k in sizes:
            for place, config in enumerate(configs):
                seconds = 1e-4 * (1 + (place * 7 + k + number) % len(configs))
                where, times = key(of, K=k), (seconds,) * 3
                extra = {"program": program_digest(MMSB, where, config)}
                trials.append(
                    TrialRecord(run=run.uuid, key=where, config=config, status="ok", times=times, extra=extra)
                )
    first = trials[0]
    failed = {"status": "compile_error", "message": "error: no\nsecond line"}
    odd = {**first.config, "block_size": 7}
    trials.append(TrialRecord(run=run.uuid, key=first.key, config=odd, **failed))
    roofs = [RoofRecord(run=run.uuid, device=device(0), kind="copy", gbps=4000.0)]
    roofs += [RoofRecord(run=run.uuid, device=device(0), kind="gather", row_bytes=4096, gbps=3900.0)]
    return Bundle([run], roofs, trials, [])


def filled(url: str) -> RunRecord:
    run = RunRecord(strategy="exhaustive", host="here")
    with open_store(url) as store:
        store.add_bundle(records(run))
        store.finish_run(run.uuid)
    return run
