#!/usr/bin/env python
"""Check a fleet on a machine with several devices: all of them measure, one worker killed costs no candidate.

    scripts/fleet_check.py --workers cuda:0,cuda:1 --output fleet.json

Tunes update_phi three times into fresh databases: on the first device alone, on all, and on all again while the process
of one worker is killed with kill -9 in the middle.  Prints what each device measured and how long it took, and ends
with exit code 1 when a device measured nothing, a configuration was measured twice, or a candidate was lost.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import psutil

from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import family
from mmsbgen.kernels.problem import Problem
from mmsbgen.tuner.fleet.fleet_run import tune_fleet


@click.command(help=__doc__)
@click.option("--workers", required=True, metavar="SPEC,...", help="Devices of this machine.")
@click.option("--trials", type=click.IntRange(8), default=64, show_default=True, help="Configurations of each run.")
@click.option("-k", "k", type=int, default=1024, show_default=True, help="Communities.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the figures go as JSON.")
def main(workers: str, trials: int, k: int, output: Path | None) -> None:
    names = [name.strip() for name in workers.split(",")]
    problem = family("mmsb").problem(K=k, N=100_000, m=4096, n=32)
    runs = {"one device": names[:1], "all": names, "one worker killed": names}
    found: dict[str, Any] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, devices in runs.items():
            with open_store(Path(folder) / f"{name}.sqlite3") as store:
                found[name] = run = one(store, devices, problem, trials, kill=name == "one worker killed")
            click.echo(f"{name}: {json.dumps(run)}")
            wrong += [f"{name}: {fault}" for fault in faults(run, devices, trials)]
    found["faults"] = wrong
    if output is not None:
        output.write_text(json.dumps(found, indent=2) + "\n")
    for fault in wrong:
        click.echo(f"FAULT {fault}")
    raise SystemExit(1 if wrong else 0)


def one(store: Store, devices: list[str], problem: Problem, trials: int, *, kill: bool) -> dict[str, Any]:
    """One run, with what came of it."""
    stop, killed = threading.Event(), list[int]()
    killer = threading.Thread(target=kill_one, args=(store, trials, killed, stop))
    if kill:
        killer.start()
    begin = time.monotonic()
    try:
        report = tune_fleet(
            "mmsb", ["update_phi"], problem, store=store, workers=devices, strategy="random", budget_trials=trials
        )
    finally:
        stop.set()
        if kill:
            killer.join()
    stored = [trial for trial in store.trials(run=report.run) if trial.round == 0]
    kernels = [kernel for device in report.devices for kernel in device.kernels]
    span = [trial.created_at for trial in stored]
    return {
        "status": report.status,
        "seconds": round(time.monotonic() - begin, 1),
        "workers": report.workers,
        "measured": dict(Counter(str(trial.extra.get("where", "lost")) for trial in stored)),
        "searched": [min(span), max(span)] if span else [],
        "statuses": dict(Counter(trial.status for trial in stored)),
        "repeated": len(stored) - len({(trial.key.key, trial.config_digest) for trial in stored}),
        "lost": [trial.message for trial in stored if "worker" in trial.message and "died" in trial.message],
        "killed": killed,
        "best": [None if k.best is None else {"config": dict(k.best.config), "s": k.best.median_s} for k in kernels],
    }


def kill_one(store: Store, trials: int, killed: list[int], stop: threading.Event) -> None:
    """Kill the process of one worker while it measures, when a quarter of the configurations is done."""
    while not stop.wait(0.05):
        if len(store.trials()) < trials // 4:
            continue
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "mmsbgen.tuner.measure.trial_process" in child.cmdline() and (parent := child.parent()) is not None:
                    parent.kill()
                    killed.append(parent.pid)
                    return


def faults(run: dict[str, Any], devices: list[str], trials: int) -> list[str]:
    """What is not as it must be."""
    found = []
    if run["status"] != "finished":
        found.append(f"the run is {run['status']}")
    groups = len(run["workers"])
    if sum(map(len, run["workers"])) != len(devices):
        found.append(f"{len(devices)} devices, but the workers are {run['workers']}")
    silent = {place for group in run["workers"] for place in group} - run["measured"].keys()
    if silent:
        found.append(f"nothing was measured on {', '.join(sorted(silent))}")
    if run["repeated"]:
        found.append(f"{run['repeated']} configurations were measured twice")
    if sum(run["measured"].values()) != groups * trials:
        found.append(f"{sum(run['measured'].values())} trials instead of {groups * trials}")
    if run["lost"]:
        found.append(f"{len(run['lost'])} candidates were lost to {len(run['killed'])} killed workers")
    if any(best is None for best in run["best"]):
        found.append("no configuration works")
    return found


if __name__ == "__main__":
    main()
