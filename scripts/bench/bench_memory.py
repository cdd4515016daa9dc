"""Memory of the state: float64 and float32, phi kept and dropped (the paper's saving of 75 %).

Each row is measured in a process of its own: the state is allocated on the device and filled there, then the bytes
of all device allocations and the peak resident memory are read.  On a CPU the device's memory is the process's.
Writes docs/reports/memory.md and .json and renews the table in docs/memory.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import REPORTS, ROOT, Report, chosen_devices, markdown_table, progress

from mmsbgen.backends import open_device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.sampler.state.device_state import Shape, State

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
DOCUMENT = ROOT / "docs" / "memory.md"


def resident() -> dict[str, int]:
    """Bytes resident now and at the peak so far, from the kernel."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")}


def measure(spec: str, n_vertices: int, k: int, spare_rows: int, dtype: str, keep_phi: bool) -> dict[str, Any]:
    """Allocate and fill one state in this process; bytes by name, in all, and resident."""
    with open_device(spec) as device:
        problem = MMSB.problem(K=k, N=n_vertices, m=spare_rows, dtype=dtype)
        init = MMSB.kernel("init_pi")
        bound = build(device, init, problem, init.default(problem, traits_of(device.info)))
        # Compilers grow a process by more than a small state; let them do so before anything is counted.
        warm = State(device, Shape(16, k, 1, dtype))
        scalars = {"n_vertices": np.uint64(16), "row_sum": warm.shape.real.type(1), "seed": np.uint64(1)}
        bound.launch(16, warm.buffers | scalars).wait()
        warm.release()
        before = resident()
        state = State(device, Shape(n_vertices, k, spare_rows, dtype))
        bound.launch(n_vertices, state.buffers | scalars | {"n_vertices": np.uint64(n_vertices)}).wait()
        buffers = dict(state.buffers)
        if keep_phi:
            # What the program without the paper's change has: phi of every vertex beside pi.
            buffers["phi"] = device.alloc((n_vertices, state.shape.row), state.shape.real)
            written = state.buffers | {"pi": buffers["phi"]} | scalars | {"n_vertices": np.uint64(n_vertices)}
            bound.launch(n_vertices, written).wait()
        after = resident()
        return {
            "allocated": device.allocated,
            "arrays": {name: buffer.nbytes for name, buffer in buffers.items()},
            "resident_before": before["VmRSS"],
            "peak_resident": after["VmHWM"],
            "peak_growth": after["VmHWM"] - before["VmRSS"],
        }


def in_child(arguments: list[str]) -> dict[str, Any] | None:
    """Run :func:`measure` in a fresh process; None, with a line to the user, when it did not fit."""
    command = [sys.executable, __file__, "--one", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        progress(f"  {' '.join(arguments)}: {reason}")
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def gigabytes(size: float) -> str:
    """Bytes as GB (1e9) with three digits."""
    return f"{size / 1e9:.3f}"


def rows_of(found: dict[tuple[int, str, bool], dict[str, Any] | None]) -> list[list[object]]:
    """The table: one line for each K, type and whether phi is kept."""
    rows: list[list[object]] = []
    for (k, dtype, keep), numbers in found.items():
        name = f"K = {k}, {dtype}, phi {'kept' if keep else 'dropped'}"
        full = found.get((k, "float64", True))
        if numbers is None:
            rows.append([name, "does not fit", "-", "-", "-", "-"])
            continue
        saved = "-" if full is None else f"{100 * (1 - numbers['allocated'] / full['allocated']):.1f} %"
        arrays = numbers["arrays"]
        large = ", ".join(f"{n} {gigabytes(arrays[n])}" for n in ("pi", "phi") if n in arrays)
        rows.append(
            [
                name,
                gigabytes(numbers["allocated"]),
                large,
                gigabytes(numbers["peak_growth"]),
                gigabytes(numbers["peak_resident"]),
                saved,
            ]
        )
    return rows


def renew(table: list[str]) -> None:
    """Put the table between the markers of docs/memory.md."""
    if not DOCUMENT.exists():
        return
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{DOCUMENT} lacks the lines {BEGIN} and {END}")
    DOCUMENT.write_text("\n".join([before + BEGIN, *table, END + after]))


def main() -> None:
    """Run the benchmark, or one measurement of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="a device as 'mmsbgen devices' names it (default: the first OpenCL CPU)")
    parser.add_argument("-k", type=int, action="append", help="communities; repeat for several (64, 256, 1024)")
    parser.add_argument("-N", type=int, default=317080, help="vertices (317080, those of com-DBLP)")
    parser.add_argument("-m", type=int, default=4097, help="vertices of the mini-batch: spare rows (4097)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        spec, n_vertices, k, spares, dtype, keep = args.one
        print(json.dumps(measure(spec, int(n_vertices), int(k), int(spares), dtype, keep == "kept")))
        return

    report = Report(
        "Memory of the state",
        f"N = {args.N} vertices, spare rows for a mini-batch of {args.m} vertices. Bytes in GB (1e9).",
    )
    report.devices = chosen_devices([args.device] if args.device else None)[:1]
    spec = report.devices[0].spec
    found: dict[tuple[int, str, bool], dict[str, Any] | None] = {}
    for k in args.k or (64, 256, 1024):
        for dtype in ("float64", "float32"):
            # Puts the kernel into the cache: a process that compiles grows by far more than one that loads.
            in_child([spec, "16", str(k), "1", dtype, "dropped"])
            for keep in (True, False):
                progress(f"K={k} {dtype} phi {'kept' if keep else 'dropped'}")
                words = [spec, args.N, k, args.m, dtype, "kept" if keep else "dropped"]
                found[k, dtype, keep] = in_child([str(word) for word in words])
    head = ["state", "device allocations, GB", "of which", "growth of the process, GB", "its peak, GB", "saved"]
    report.table(head, rows_of(found))
    report.text(
        "Saved: against float64 with phi kept. The rows of the mini-batch, which are stored twice while it is worked "
        "on, are why it is not exactly 75 %."
    )
    report.data["results"] = [
        {"k": k, "dtype": dtype, "phi": "kept" if keep else "dropped", "measured": numbers}
        for (k, dtype, keep), numbers in found.items()
    ]
    report.write("memory", args.output)
    if args.output == REPORTS:
        renew(markdown_table(head, rows_of(found)))


if __name__ == "__main__":
    main()
