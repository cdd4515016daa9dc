#!/usr/bin/env python
"""Tune kernels with faults beside those without, and see that none with a fault is accepted.

    scripts/check_mutants.py --device pocl
    scripts/check_mutants.py --device cuda:0 --kernel update_phi --kernel theta_end

Most faults show only above the sizes of the small check, some only after the first launch.  Prints what the tuner said
of each.  Ends with status 1 if a fault was accepted that is not harmless on the device, or a sound kernel was not.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import NamedTuple

import click
from _mutant_family import AXIS, MUTANT_FAMILY, NONE, config_of
from _mutants import MUTANTS, PROBLEMS, Mutant

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.cli.shared.common import print_table
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.kernels.build import traits_of
from mmsbgen.tuner.measure.measurer import TrialLimits
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tuning_report import KernelReport

FAMILY = "_mutant_family:MUTANT_FAMILY"
ROOF_BYTES = 64 << 20
HASTY = Patience(repetitions=3, enough_s=0.02)


class Found(NamedTuple):
    """What became of a mutant: the status of its trial, its message, and whether that is as it should be."""

    mutant: Mutant
    status: str
    message: str
    right: bool


def harmless(mutant: Mutant, info: DeviceInfo) -> str | None:
    """Why a mutant computes what it should on a device, if it does."""
    return mutant.harmless.get(info.kind) or mutant.harmless.get(info.platform.split()[0])


def judged(mutant: Mutant, kernel: KernelReport, info: DeviceInfo) -> Found:
    """What the tuner made of a mutant that is among the trials of its kernel."""
    trial = next(trial for trial in kernel.trials if trial.config[AXIS] == mutant.name)
    why = harmless(mutant, info)
    if trial.status == "compile_error":
        return Found(mutant, trial.status, trial.message, False)
    if why is not None:
        return Found(mutant, trial.status, f"harmless here: {why}", True)
    return Found(mutant, trial.status, trial.message, trial.status != "ok")


def check(info: DeviceInfo, name: str, sizes: str, mutants: list[Mutant]) -> tuple[list[Found], list[str]]:
    """Tune the kernel ``name`` with and without the faults of ``mutants``: what became of them, and complaints."""
    problem, traits, spec = MUTANT_FAMILY.problem(**PROBLEMS[sizes]), traits_of(info), MUTANT_FAMILY.kernel(name)
    if traits.dialect not in spec.dialects:
        return [Found(mutant, "", f"the kernel is not written in {traits.dialect}", True) for mutant in mutants], []
    configs = [{AXIS: mutant.name} | config_of(mutant, problem, traits) for mutant in mutants]
    refusals = [spec.space.refusal(config, problem, traits) for config in configs]
    found = [Found(m, "", f"not here: {why}", True) for m, why in zip(mutants, refusals, strict=True) if why]
    valid = [mutant for mutant, why in zip(mutants, refusals, strict=True) if why is None]
    if not valid:
        return found, []
    with open_store("sqlite://") as store:
        report = tune(
            info.spec,
            FAMILY,
            [name],
            problem,
            store=store,
            strategy="exhaustive",
            budget_trials=10**6,
            fixed={AXIS: (NONE, *(mutant.name for mutant in valid))},
            limits=TrialLimits(run_s=30.0),
            patience=HASTY,
            roof_bytes=ROOF_BYTES,
        )
        (kernel,) = report.kernels
        found += [judged(mutant, kernel, info) for mutant in valid]
        sound = [trial for trial in kernel.trials if trial.config[AXIS] == NONE]
        complaints = [f"{name} without a fault: {trial.message}" for trial in sound if trial.status != "ok"]
        allowed = {NONE, *(mutant.name for mutant in valid if harmless(mutant, info))}
        chosen = Index(store, shipped=None).select(kernel.key, valid=lambda config: True, default={AXIS: NONE})
        best = kernel.best.config if kernel.best is not None else {AXIS: "nothing"}
        for what, config in (("won", best), ("is selected", chosen.config)):
            if config[AXIS] not in allowed:
                complaints.append(f"{name}: {config[AXIS]!r} {what}")
    return found, complaints


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="opencl:0", show_default=True, help="Device, as 'mmsbgen devices' names it.")
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Kernel; may be repeated (default: all).")
def main(device: str, kernels: tuple[str, ...]) -> None:
    """Tune kernels with faults, and fail if one is accepted."""
    with open_device(device) as opened:
        info = opened.info
    found: list[Found] = []
    complaints: list[str] = []
    cases: defaultdict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in MUTANTS:
        if not kernels or mutant.kernel in kernels:
            cases[mutant.kernel, mutant.problem].append(mutant)
    for (name, sizes), mutants in cases.items():
        click.echo(f"{name}: {len(mutants)} faults ...", err=True)
        told, wrong = check(info, name, sizes, mutants)
        found, complaints = found + told, complaints + wrong
    sides = dict.fromkeys(("kernel", "sort", "left out or wrong", "status", "message", ""), "left")
    rows = [
        (
            one.mutant.kernel,
            one.mutant.sort,
            one.mutant.name,
            one.status,
            one.message[:100],
            "" if one.right else "FAILS",
        )
        for one in found
    ]
    print_table(sides, [dict(zip(sides, row, strict=True)) for row in rows])
    for complaint in complaints:
        click.echo(complaint)
    missed = sum(not one.right for one in found)
    click.echo(f"\n{info.name} ({info.platform}): {len(found)} faults, {missed} of them accepted or not tried")
    sys.exit(1 if missed or complaints else 0)


if __name__ == "__main__":
    main()
