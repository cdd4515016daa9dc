"""The service under load: best-configuration look-ups over HTTP while a tune's trials go into the same database.

| what | target |
|---|---|
| look-ups answered a second, from 20,000 trials | 500 |
| 99 % of the look-ups at 500 a second are answered within | 50 ms |

A real `mmsbgen serve`, a writer and the client are three processes.  Look-ups are drawn at random from 192: four
devices and four kernels with twelve problems each, of which nine were tuned and three were not.  The closed loop has as
many requests under way as connections; the open loop sends them at a fixed rate whatever the answers do, and counts the
time from when a request was due.  Writes docs/reports/service.md and .json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from _common import REPORTS, Report, progress

from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import (
    PROGRAM,
    DeviceRecord,
    KernelRecord,
    Key,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.kernels.record_key import problem_record, program_digest, recorded_traits

MMSB = family()
KERNELS = ("update_phi", "update_pi", "theta_partial", "block_shared")
TUNED = (20, 50, 64, 100, 128, 256, 512, 1000, 1024)
NOT_TUNED = (30, 300, 700)
TRIALS = 20_000
AIM_RATE, AIM_P99_MS = 500, 50


def device(number: int) -> DeviceRecord:
    """A GPU that there is not."""
    return DeviceRecord(
        backend="cuda",
        platform="CUDA",
        vendor="NVIDIA",
        name=f"Benchmark GPU {number}",
        architecture=f"sm_{200 + number}",
        driver="580",
        kind="gpu",
        compute_units=100 + number,
        memory_bytes=2**36,
        extra={"local_memory": 2**17, "max_block_size": 1024, "sub_group_sizes": [32], "vector_width_float": 4},
    )


def key(of: DeviceRecord, kernel: str, k: int) -> Key:
    """The key of a kernel for ``k`` communities."""
    spec = MMSB.kernel(kernel)
    record = KernelRecord("mmsb", kernel, PROGRAM)
    return Key(of, ToolchainRecord("nvrtc", "13.0", "-O3"), record, problem_record(spec, MMSB.problem(K=k)))


class Trials:
    """Makes trials with real configurations and random times, each configuration of a key once a call."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.devices = [device(number) for number in range(4)]

    def some(self, run: str, kernel: str, of: DeviceRecord, k: int, count: int) -> list[TrialRecord]:
        """``count`` trials of one key, as far as it has configurations."""
        spec, problem, traits = MMSB.kernel(kernel), MMSB.problem(K=k), recorded_traits(of)
        found: dict[tuple[Any, ...], TrialRecord] = {}
        where = key(of, kernel, k)
        for _ in range(200 * count):
            config = {axis.name: self.chance.choice(axis.values) for axis in spec.space.axes}
            values = tuple(config.values())
            if values not in found and spec.space.refusal(config, problem, traits) is None:
                times = tuple(self.chance.uniform(1e-4, 1e-3) for _ in range(7))
                extra = {"program": program_digest(MMSB, where, config)}
                found[values] = TrialRecord(run=run, key=where, config=config, status="ok", times=times, extra=extra)
                if len(found) == count:
                    break
        return list(found.values())


def fill(url: str) -> int:
    """Fill a database with :data:`TRIALS` trials; returns how many there are."""
    trials, count, number = Trials(0), 0, 0
    with open_store(url) as store:
        while count < TRIALS:
            run = RunRecord(strategy="default", host="bench")
            keys = [(kernel, of, k) for kernel in KERNELS for of in trials.devices for k in TUNED]
            each = min(-(-TRIALS // len(keys)), 100)
            made = [t for kernel, of, k in keys for t in trials.some(run.uuid, kernel, of, k, each)]
            count += store.add_bundle(Bundle([run], [], made[: TRIALS - count], []))
            store.finish_run(run.uuid)
            number += 1
            progress(f"{count} trials after {number} runs")
    return count


def write(url: str, rate: float, seconds: float) -> None:
    """Store trials one by one at ``rate`` a second, a kernel after the other, as a tune does; prints how many."""
    trials, end = Trials(int(time.time())), time.monotonic() + seconds
    stored, worst = 0, 0.0
    with open_store(url) as store:
        run = RunRecord(strategy="default", host="writer")
        store.begin_run(run)
        while time.monotonic() < end:
            kernel, of = trials.chance.choice(KERNELS), trials.chance.choice(trials.devices)
            for trial in trials.some(run.uuid, kernel, of, trials.chance.choice(TUNED), 20):
                began = time.monotonic()
                stored += store.add_trial(trial)
                took = time.monotonic() - began
                worst = max(worst, took)
                if time.monotonic() > end:
                    break
                time.sleep(max(0.0, 1 / rate - took))
        store.finish_run(run.uuid)
    print(json.dumps({"stored": stored, "worst_s": worst}))


@dataclass
class Load:
    """What a client saw; latencies are seconds."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    tiers: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the answers came."""
        ordered = sorted(self.latencies)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds


class Connection:
    """One connection that is kept open, with one request under way at most."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url)

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection(self.place.hostname, self.place.port)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of an answer."""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.place.netloc}\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None, head
        return int(head[9:12]), await self.reader.readexactly(int(length[1]))


_TIER = re.compile(rb'"tier":"([a-z]+)"')


async def load(url: str, paths: Sequence[str], connections: int, seconds: float, rate: float | None) -> Load:
    """Ask for random ``paths`` for so long; at ``rate`` a second, or as fast as answers come."""
    found, chance = Load(), random.Random(1)
    opened = [Connection(url) for _ in range(connections)]
    for one in opened:
        await one.open()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for one in opened:
        free.put_nowait(one)

    async def ask(one: Connection, due: float) -> None:
        status, body = await one.get(chance.choice(paths))
        found.latencies.append(time.perf_counter() - due)
        found.statuses[status] += 1
        if tier := _TIER.search(body):
            found.tiers[tier[1].decode()] += 1
        free.put_nowait(one)

    began = time.perf_counter()
    if rate is None:

        async def closed(one: Connection) -> None:
            while time.perf_counter() - began < seconds:
                await ask(one, time.perf_counter())

        await asyncio.gather(*(closed(one) for one in opened))
    else:
        tasks = []
        for number in range(int(seconds * rate)):
            due = began + number / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            # Where all connections are busy, waiting for one counts.
            tasks.append(asyncio.create_task(ask(await free.get(), due)))
        await asyncio.gather(*tasks)
    found.seconds = time.perf_counter() - began
    return found


@contextlib.contextmanager
def serving(url: str, folder: Path) -> Iterator[tuple[str, int]]:
    """A service without workers and without a limit of its rate; its URL and process number."""
    command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "serve", "--port", "0", "--workers", "0"]
    options = ["--database", url, "--data", str(folder / "data"), "--rate", "1000000/second"]
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen([*command, *options], stderr=file)
    try:
        while not (found := re.search(r"serves (http://\S+)/ from", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait()


def measure(url: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both loops over a database with a writer beside them."""
    asked = [
        {"kernel": kernel, "device": device(number).key, "problem": f"K={k}"}
        for kernel in KERNELS
        for number in range(4)
        for k in (*TUNED, *NOT_TUNED)
    ]
    paths = [f"/api/v1/best?{urlencode(one)}" for one in asked]
    seconds = arguments.seconds
    results: dict[str, Any] = {}
    with serving(url, folder) as (place, pid):
        first = asyncio.run(first_answers(place, paths))
        results["first"] = {"median_ms": 1e3 * statistics.median(first), "max_ms": 1e3 * max(first)}
        for name, rate in (("closed", None), ("open", float(arguments.rate))):
            command = [sys.executable, __file__, "--write", url, "--writes", str(arguments.writes)]
            writer = subprocess.Popen([*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True)
            time.sleep(2)
            found = asyncio.run(load(place, paths, arguments.connections, seconds - 3, rate))
            said, _ = writer.communicate()
            results[name] = {
                "rate": found.rate,
                "answers": len(found.latencies),
                "statuses": dict(found.statuses),
                "tiers": dict(found.tiers),
                **{f"p{share}_ms": found.percentile(share / 100) for share in (50, 90, 99, 99.9)},
                "max_ms": 1e3 * max(found.latencies),
                "writer": json.loads(said),
            }
            progress(f"{name}: {results[name]}")
        memory = Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]
        results["peak_mib"] = int(memory) / 1024
    return results


async def first_answers(url: str, paths: Sequence[str]) -> list[float]:
    """Seconds of each look-up the first time, when its records are read and its answer is made."""
    one, times = Connection(url), []
    await one.open()
    for path in paths:
        began = time.perf_counter()
        status, body = await one.get(path)
        assert status == 200, body
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", action="append", metavar="URL", help="An empty one; SQLite in a new folder.")
    parser.add_argument("--seconds", type=float, default=30, help="Of each loop.")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rate", type=int, default=AIM_RATE, help="Of the open loop, a second.")
    parser.add_argument("--writes", type=float, default=5, help="Trials a second that the writer stores.")
    parser.add_argument("--output", type=Path, default=REPORTS, help="Folder of the report.")
    parser.add_argument("--write", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.writes, arguments.seconds)
        return
    report = Report(
        "Look-ups over HTTP",
        f"`mmsbgen serve` answers best-configuration look-ups from {TRIALS} trials while a writer stores "
        f"{arguments.writes:g} trials a second, on the same machine as the client. In the closed loop "
        f"{arguments.connections} requests are always under way; in the open loop {arguments.rate} a second are sent, "
        "and an answer's time counts from when its request was due.",
    )
    with tempfile.TemporaryDirectory() as name:
        for number, url in enumerate(arguments.database or [f"{name}/tuning.sqlite3"]):
            folder = Path(name) / str(number)
            folder.mkdir()
            fill(url)
            found = measure(url, folder, arguments)
            kind = "PostgreSQL" if "://" in url and not url.startswith("sqlite") else "SQLite"
            report.data[kind] = found
            tell(report, kind, found, arguments.rate)
    report.write("service", arguments.output)


def tell(report: Report, kind: str, found: dict[str, Any], rate: int) -> None:
    """Put the numbers of one database into the report."""
    closed, opened = found["closed"], found["open"]
    writers = (closed["writer"], opened["writer"])
    others = sum(n for one in (closed, opened) for status, n in one["statuses"].items() if status != 200)
    in_time = kept(opened["p99_ms"] < AIM_P99_MS)
    first = found["first"]
    rows: list[list[object]] = [
        ["look-ups a second, closed loop", f"{closed['rate']:.0f}", AIM_RATE, kept(closed["rate"] >= AIM_RATE)],
        ["99 % of these within, ms", f"{closed['p99_ms']:.1f}", "-", "-"],
        [f"99 % at {rate} a second within, ms", f"{opened['p99_ms']:.1f}", AIM_P99_MS, in_time],
        ["half of these within, ms", f"{opened['p50_ms']:.1f}", "-", "-"],
        ["99.9 % of these within, ms", f"{opened['p99.9_ms']:.1f}", "-", "-"],
        ["the slowest, ms", f"{opened['max_ms']:.1f}", "-", "-"],
        ["other answers than 200", others, 0, kept(others == 0)],
        ["a first look-up, which reads and selects: median, ms", f"{first['median_ms']:.1f}", "-", "-"],
        ["the slowest first one, ms", f"{first['max_ms']:.0f}", "-", "-"],
        ["trials stored meanwhile", sum(one["stored"] for one in writers), "-", "-"],
        ["the slowest of these, ms", f"{1e3 * max(one['worst_s'] for one in writers):.0f}", "-", "-"],
        ["peak resident memory, MiB", f"{found['peak_mib']:.0f}", "-", "-"],
    ]
    tiers = opened["tiers"]
    whole = sum(tiers.values())
    report.text(f"## {kind}")
    report.table(["", "measured", "target", "kept"], rows)
    shares = ", ".join(f"{tier} {100 * count / whole:.0f} %" for tier, count in sorted(tiers.items()))
    report.text(f"{opened['answers']} answers in the open loop; by tier: {shares}.")


def kept(reached: bool) -> str:
    """For the last column."""
    return "yes" if reached else "no"


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
