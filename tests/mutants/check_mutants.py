"""Tune kernels with faults beside those without, and see that none with a fault is accepted.

    python -m tests.mutants.check_mutants --device pocl
    python -m tests.mutants.check_mutants --device cuda:0 --kernel update_phi --kernel theta_end

Most faults show only above the sizes of the small check, some only after the first launch.  Prints what the tuner said
of each.  Ends with status 1 if a fault was accepted that is not harmless on the device, or a sound kernel was not.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from typing import NamedTuple

import click

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.cli.shared.common import print_table
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.kernels.build import traits_of
from mmsbgen.tuner.measure.measurer import TrialLimits
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tuning_report import KernelReport
from tests.mutants.mutant_family import AXIS, MUTANT_FAMILY, NONE, config_of
from tests.mutants.mutants import MUTANTS, PROBLEMS, Mutant

FAMILY = "tests.mutants.mutant_family:MUTANT_FAMILY"
ROOF_BYTES = 64 << 20
HASTY = Patience(repetitions=3, enough_s=0.02)


class Found(NamedTuple):
    """What became of a mutant: one of the words below, the status of its trial and its message, or the reason."""

    mutant: Mutant
    verdict: str
    status: str
    message: str


REFUSED, HARMLESS, ELSEWHERE, ACCEPTED, BROKEN = "refused", "harmless here", "not here", "ACCEPTED", "DOES NOT COMPILE"


def harmless(mutant: Mutant, info: DeviceInfo) -> str | None:
    """Why a mutant computes what it should on a device, if it does."""
    return mutant.harmless.get(info.kind) or mutant.harmless.get(info.platform.split()[0])


def judged(mutant: Mutant, kernel: KernelReport, info: DeviceInfo) -> Found:
    """What the tuner made of a mutant that is among the trials of its kernel."""
    trial = next(trial for trial in kernel.trials if trial.config[AXIS] == mutant.name)
    why = harmless(mutant, info)
    if trial.status == "compile_error":
        return Found(mutant, BROKEN, trial.status, trial.message)
    if trial.status != "ok":
        return Found(mutant, REFUSED, trial.status, trial.message)
    return Found(mutant, ACCEPTED if why is None else HARMLESS, trial.status, why or "")


def check(info: DeviceInfo, name: str, sizes: str, mutants: list[Mutant]) -> tuple[list[Found], list[str]]:
    """Tune the kernel ``name`` with and without the faults of ``mutants``: what became of them, and complaints."""
    problem, traits, spec = MUTANT_FAMILY.problem(**PROBLEMS[sizes]), traits_of(info), MUTANT_FAMILY.kernel(name)
    if traits.dialect not in spec.dialects:
        return [Found(mutant, ELSEWHERE, "", f"not written in {traits.dialect}") for mutant in mutants], []
    configs = [{AXIS: mutant.name} | config_of(mutant, problem, traits) for mutant in mutants]
    refusals = [spec.space.refusal(config, problem, traits) for config in configs]
    found = [Found(mutant, ELSEWHERE, "", why) for mutant, why in zip(mutants, refusals, strict=True) if why]
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
        some, wrong = check(info, name, sizes, mutants)
        found, complaints = found + some, complaints + wrong
    sides = dict.fromkeys(("kernel", "sort", "left out or wrong", "verdict", "status", "message"), "left")
    rows = [(f.mutant.kernel, f.mutant.sort, f.mutant.name, f.verdict, f.status, f.message[:100]) for f in found]
    print_table(sides, [dict(zip(sides, row, strict=True)) for row in rows])
    for complaint in complaints:
        click.echo(complaint)
    counts = Counter(one.verdict for one in found)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    click.echo(f"\n{info.name} ({info.platform}): {len(found)} faults, {told}")
    sys.exit(1 if counts[ACCEPTED] or counts[BROKEN] or complaints else 0)


if __name__ == "__main__":
    main()
