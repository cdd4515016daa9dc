#!/usr/bin/env python
"""What it takes to begin: help, import, selecting a configuration, and com-DBLP from file to first iteration.

| what | target |
|---|---|
| `mmsbgen --help` | 0.5 s |
| `import mmsbgen` | 0.3 s |
| selecting from a warm store | 1 ms, no I/O |
| com-DBLP at K = 1024, random start, kernel cache warm, to the end of the first iteration | 20 s |
| peak resident memory of that run | 1.3 times the state and 1 GB |

The last two need --graph and an OpenCL CPU.  Writes docs/reports/startup.md and .json.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _harness import Sample, chosen_devices, parser, progress
from _report import Report

from mmsbgen.backends import DeviceInfo
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.record_key import key_of
from mmsbgen.sampler.state.device_state import StateShape

# Runs in a process of its own; the parent's clock is the same clock (CLOCK_MONOTONIC).
_FIRST_ITERATION = """
import sys, time
from pathlib import Path
begin, graph, k, device, iterations = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
from mmsbgen.detection.detect import Request, perform

seen = []

def note(sampler, trace):
    if not seen:
        sampler.device.synchronize()
        seen.append(time.monotonic() - begin)
        peak = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        print(seen[0], int(peak[0].split()[1]) * 1024, sampler.shape.spare_rows, flush=True)

options = {"n_communities": k, "iterations": iterations, "start": "random"}
perform(Path(graph), Request(options, device=device, on_progress=note))
"""


def timed_process(command: Sequence[str]) -> tuple[float, int, str]:
    """Run a command: wall seconds, peak resident bytes and standard output.  Raises SystemExit when it fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    # A pipe holds 64 KiB, far more than the children of this script say on either of them.
    out, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{command[0]} failed:\n{errors}")
    return seconds, usage.ru_maxrss * 1024, out


def repeated(command: Sequence[str], rounds: int) -> Sample:
    """Wall times of a command, after one run that does not count."""
    timed_process(command)
    return Sample(tuple(timed_process(command)[0] for _ in range(rounds)))


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The names of files opened and connections made meanwhile, by Python's audit events."""
    events: list[str] = []
    active = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if active and event.partition(".")[0] in {"open", "sqlite3", "socket", "subprocess", "os"}:
            events.append(event)

    sys.addaudithook(hook)  # cannot be removed again, only be made to do nothing
    try:
        yield events
    finally:
        active = False


def selection(info: DeviceInfo, trials: int, rounds: int) -> tuple[Sample, Sample, list[str]]:
    """First and warm look-up in a store of ``trials`` records, and the I/O that the warm ones did."""
    spec = MMSB.kernel("update_phi")
    problem = MMSB.problem()
    traits = traits_of(info)
    configs = spec.space.configs(problem, traits)[:trials]
    with tempfile.TemporaryDirectory() as folder:
        with open_store(Path(folder) / "tuning.db") as store:
            run = RunRecord(strategy="made up for a benchmark")
            store.begin_run(run)
            key = key_of(info, spec, problem)
            for number, config in enumerate(configs):
                store.add_trial(TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=(1.0 + number,)))
        with open_store(Path(folder) / "tuning.db", read_only=True) as store:
            index = Index(store)

            def look_up() -> float:
                begin = time.perf_counter()
                found = index.select(
                    key_of(info, spec, problem),
                    valid=lambda config: spec.space.refusal(config, problem, traits) is None,
                    default=dict(spec.default(problem, traits)),
                    irrelevant=MMSB.soft_parameters,
                )
                seconds = time.perf_counter() - begin
                assert found.tier == "exact"
                return seconds

            first = Sample((look_up(),))
    # The store is closed and its file is gone: what answers now is in memory.
    with watched() as events:
        warm = Sample(tuple(look_up() for _ in range(rounds)))
    return first, warm, events


def first_iteration(graph: Path, k: int, device: str, iterations: int) -> tuple[float, int, int, int]:
    """Seconds to the end of the first iteration, peak bytes then and at the end, and spare rows."""
    begin = time.monotonic()
    command = [sys.executable, "-c", _FIRST_ITERATION, str(begin), str(graph), str(k), device, str(iterations)]
    _, peak, out = timed_process(command)
    seconds, at_first, spares = out.split()[:3]
    return float(seconds), int(at_first), peak, int(spares)


def report_graph(report: Report, args: argparse.Namespace, info: DeviceInfo) -> None:
    """com-DBLP, or another graph, from file to first iteration."""
    from mmsbgen.graph import load_edge_list

    n_vertices = load_edge_list(args.graph).n_vertices
    progress(f"warming the kernel cache on {info.spec}")
    first_iteration(args.graph, args.k, info.spec, 1)
    runs = [first_iteration(args.graph, args.k, info.spec, args.iterations) for _ in range(args.graph_rounds)]
    times, peak = Sample(tuple(run[0] for run in runs)), max(run[2] for run in runs)
    state = sum(spec.nbytes for spec in StateShape(n_vertices, args.k, runs[0][3], "float32").arrays())
    allowed = 1.3 * state + 1e9
    report.text(f"## {args.graph.name}, K = {args.k}, on {info.platform}")
    report.table(
        ["", "measured", "target", "kept"],
        [
            ["file to the end of the first iteration, s", times.text(1), "20", _kept(times.median < 20)],
            ["peak resident, GB", f"{peak / 1e9:.2f}", f"{allowed / 1e9:.2f}", _kept(peak < allowed)],
        ],
    )
    report.text(
        f"The state is {state / 1e9:.2f} GB; the peak is that of the whole run of {args.iterations} iterations."
    )
    report.data.setdefault("graphs", []).append(
        {"device": info.spec, "graph": args.graph.name, "k": args.k, "first_iteration": times.as_dict(), "peak": peak}
        | {"state": state, "peak_at_first_iteration": runs[0][1]}
    )


def _kept(condition: bool) -> str:
    return "yes" if condition else "**no**"


def main() -> None:
    """Run the benchmark."""
    options = parser(__doc__, repetitions=11, database=False)
    options.add_argument("--graph", type=Path, help="an edge list, for example com-dblp.txt.gz")
    options.add_argument("-k", type=int, default=1024, help="communities (1024)")
    options.add_argument("--iterations", type=int, default=3, help="iterations of the run whose peak is taken (3)")
    options.add_argument("--graph-rounds", type=int, default=3, help="repetitions with the graph (3)")
    options.add_argument("--trials", type=int, default=500, help="records in the store that is asked (500)")
    args = options.parse_args()

    report = Report("What it takes to begin", "Wall times of whole processes, but for the selection.")
    report.devices = chosen_devices(args.device)
    help_ = repeated([str(Path(sys.executable).parent / "mmsbgen"), "--help"], args.repetitions)
    bare = repeated([sys.executable, "-c", "pass"], args.repetitions)
    importing = repeated([sys.executable, "-c", "import mmsbgen"], args.repetitions)
    first, warm, events = selection(report.devices[0], args.trials, max(200, args.repetitions))
    report.table(
        ["", "measured", "target", "kept"],
        [
            ["`mmsbgen --help`, s", help_.text(1), "0.5", _kept(help_.median < 0.5)],
            ["`import mmsbgen`, s", importing.text(1), "0.3", _kept(importing.median < 0.3)],
            ["(Python alone, s)", bare.text(1), "-", "-"],
            ["selection from a warm store, ms", warm.text(), "1", _kept(warm.median < 1e-3 and max(warm.times) < 5e-3)],
            ["files or connections opened by it", len(events), "0", _kept(not events)],
            [f"(the first selection, which reads {args.trials} records, ms)", first.text(), "-", "-"],
        ],
    )
    report.data |= {
        "help": help_.as_dict(),
        "import": importing.as_dict(),
        "python": bare.as_dict(),
        "selection": warm.as_dict(),
        "first_selection": first.as_dict(),
        "selection_events": events,
    }
    if args.graph:
        for info in report.devices:
            report_graph(report, args, info)
    report.write("startup", args.output)


if __name__ == "__main__":
    main()
