#!/usr/bin/env python
"""Measure the same part of update_phi's space for many problems, so that leave-one-out has every time it asks for.

    scripts/transfer_sweep.py --device cuda:0 --output docs/reports/transfer-h200-cuda.jsonl.gz

A search visits different configurations at each problem.  Here every block size and team of three placements is
measured at each K, and of one placement for other sizes of the mini-batch, at N = 65536: the state is larger than a
GPU's caches all the same.  scripts/leave_one_out.py reads what this writes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
from gpu_tune import PHI, Part, Told

from mmsbgen.backends import open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.kernels.problem import Value
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune

KS = (128, 256, 512, 768, 1024, 1536, 2048, 4096)
OTHER = ({"m": 512}, {"m": 2048}, {"m": 16384}, {"n": 8}, {"n": 128})
PLACES: tuple[dict[str, Value], ...] = (
    {"placement": "RRR", "rows_in_flight": 2},
    {"placement": "RRS", "rows_in_flight": 4},
    {"placement": "RSS", "rows_in_flight": 2},
)
QUICK = Patience(repetitions=5, enough_s=0.05, limit_s=0.3, most=15, hopeless=(math.inf, 20.0))


def parts(ks: Sequence[int], sizes: dict[str, int], base: int) -> Iterator[Part]:
    """What is measured, the placement that is best at most sizes first, so that a run that is cut short has it.

    ``base`` is the K at which other sizes of the mini-batch are measured.
    """
    kernels = family()
    common: dict[str, Value] = {"vector_width": 4, "prefetch": 0}
    for number, place in enumerate(PLACES):
        for k in ks:
            yield Part([PHI], kernels.problem(K=k, **sizes), 60.0, common | place)
        for other in OTHER if number == 0 else ():
            yield Part([PHI], kernels.problem(K=base, **sizes | other), 60.0, common | place)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--device", default="cuda:0", show_default=True, help="Device, as mmsbgen devices names it.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File of the export.")
@click.option("-k", "ks", type=click.IntRange(1), multiple=True, default=KS, show_default=True, help="Communities.")
@click.option("-m", type=click.IntRange(1), default=4096, show_default=True, help="Vertices of a mini-batch.")
@click.option("-n", type=click.IntRange(1), default=32, show_default=True, help="Partners of a vertex.")
@click.option("-N", "vertices", type=click.IntRange(2), default=65536, show_default=True, help="Vertices.")
@click.option("--total-seconds", type=float, default=480.0, show_default=True, help="Begin nothing more after this.")
@click.option("--trials", type=click.IntRange(1), default=200, show_default=True, help="Most for each part.")
@click.option("--jobs", type=click.IntRange(0), help="Compilers ahead of measuring; else what the machine allows.")
def main(
    device: str,
    output: Path,
    ks: tuple[int, ...],
    m: int,
    n: int,
    vertices: int,
    total_seconds: float,
    trials: int,
    jobs: int | None,
) -> None:
    with open_device(device) as opened:
        info = opened.info
    end = time.monotonic() + total_seconds
    base = min(ks, key=lambda k: abs(k - 512))
    with open_store("sqlite://") as store:
        for part in parts(ks, {"m": m, "n": n, "N": vertices}, base):
            if time.monotonic() > end:
                click.echo("time is up", err=True)
                break
            sizes = " ".join(f"{name}={part.problem[name]}" for name in "Kmn")
            click.echo(f"[{end - time.monotonic():.0f} s left] {sizes} {part.fixed['placement']}", err=True)
            try:
                tune(
                    info.spec,
                    "mmsb",
                    part.kernels,
                    part.problem,
                    store=store,
                    budget_trials=trials,
                    budget_seconds=part.seconds,
                    strategy="exhaustive",
                    fixed=part.fixed,
                    progress=Told(),
                    patience=QUICK,
                    roof_bytes=256 << 20,
                    compilers=jobs,
                )
            except MmsbgenError as error:
                click.echo(f"  failed: {error}", err=True)
        bundle = store.bundle()
    # The roofs were measured in a small buffer, to be quick: they say nothing, so no trial is held against them.
    found = [replace(trial, roof_gbps=None) for trial in bundle.trials]
    jsonl.write(Bundle(bundle.runs, [], found), output)
    click.echo(f"{len(found)} trials in {output}")


if __name__ == "__main__":
    main()
