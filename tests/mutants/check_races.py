"""Run kernels in Oclgrind, which sees each access to memory, and look for data races.

    python -m tests.mutants.check_races
    python -m tests.mutants.check_races --kernel update_phi --kernel theta_end

Runs one small configuration of each OpenCL kernel with teams of several work-items, which must have no race, and the
faults of check_mutants.py that remove barriers, which must have some: on a real device a removed barrier may show in no
answer.  Ends with status 1 otherwise.  Needs Oclgrind (apt-get install oclgrind); takes a minute.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import CompileError, MmsbgenError
from mmsbgen.cli.shared.common import print_table
from mmsbgen.families import family
from mmsbgen.kernels.build import check, traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits
from tests.mutants.mutant_family import AXIS, MUTANT_FAMILY, NONE, config_of
from tests.mutants.mutants import MUTANTS, PROBLEMS

K, BLOCKS = 7, (4, 8, 16)
LOG = "OCLGRIND_LOG"
_DRAWS = "a draw that is not the first of its vertex sees another number before and after the write"
#: Kernels whose races in global memory do not matter, and why.
HARMLESS = {
    "shared_partners": _DRAWS,
    "draw_shared": _DRAWS,
    "update_pi": "what is overwritten was read before the barrier of a sum that needs it",
}
_RACE = re.compile(r"\bdata race at (\w+) memory")


class Case(NamedTuple):
    """A configuration to run; ``fault`` is what was removed."""

    spec: KernelSpec
    problem: Problem
    config: Config
    fault: str = NONE


def small(spec: KernelSpec, problem: Problem, traits: Traits) -> Config | None:
    """A valid configuration whose work-items share much, in small blocks: each takes a simulator long."""
    rng = random.Random(spec.name)
    axes = {axis.name: axis.values for axis in spec.space.axes}
    wanted = {"block_size": BLOCKS, "team": ("block",), "reduction": ("local",), "share": (4, 8), "vector_width": (1,)}
    wanted |= {"rows_in_flight": (1,), "prefetch": (0,), "pairs_in_flight": (1,), "partners_in_flight": (1,)}
    axes |= {name: kept for name in axes if (kept := [v for v in axes[name] if v in wanted.get(name, axes[name])])}
    tried = ({name: rng.choice(values) for name, values in axes.items()} for _ in range(3000))
    return next((config for config in tried if spec.space.refusal(config, problem, traits) is None), None)


def cases(kernels: KernelFamily, traits: Traits, only: tuple[str, ...]) -> Iterator[Case]:
    """Sound kernels, then those with a barrier less."""
    for name, spec in kernels.written_in("opencl").items():
        problem = spec.check_problem(kernels.problem(K=K))
        if not only or name in only:
            yield Case(spec, problem, small(spec, problem, traits) or spec.default(problem, traits))
    for mutant in MUTANTS:
        if mutant.sort == "barrier" and (not only or mutant.kernel in only):
            spec = MUTANT_FAMILY.kernel(mutant.kernel)
            problem = spec.check_problem(MUTANT_FAMILY.problem(**PROBLEMS[mutant.problem] | {"K": K}))
            config = {AXIS: mutant.name} | config_of(mutant, problem, traits) | {"block_size": 16}
            if "share" in config:
                config |= {"share": 8}
            yield Case(spec, problem, config, mutant.name)


def races(device: Device, case: Case, log: Path) -> tuple[list[str] | None, str]:
    """The memory of each race in Oclgrind's ``log``, and what the check said; None if it does not compile."""
    before = log.stat().st_size if log.exists() else 0
    try:
        said = check(device, case.spec, case.problem, case.config) or ""
    except CompileError as error:
        return None, str(error)
    except MmsbgenError as error:
        said = str(error)
    if not log.exists():
        return [], said
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(before)
        return _RACE.findall(file.read()), said


def verdict(case: Case, found: list[str] | None) -> str:
    """In a word; those in capitals are failures."""
    if found is None:
        return "not in Oclgrind"
    if case.fault != NONE:
        return "seen" if found else "NOT SEEN"
    if case.spec.name in HARMLESS and set(found) == {"global"}:
        return "harmless"
    return "A RACE" if found else "none"


def watched(only: tuple[str, ...]) -> int:
    """Run all cases on Oclgrind's device, which this process was started with; the exit status."""
    log, rows, failed = Path(os.environ[LOG]), [], 0
    with open_device("oclgrind") as device:
        for case in cases(family(), traits_of(device.info), only):
            begin = time.monotonic()
            found, said = races(device, case, log)
            word = verdict(case, found)
            failed += word.isupper()
            shown = " ".join(f"{name}={value}" for name, value in case.config.items() if name in ("team", "block_size"))
            rows.append((case.spec.name, shown, case.fault, word, str(len(found or ())), said.partition("\n")[0][:60]))
            click.echo(f"{case.spec.name} {case.fault}: {word} ({time.monotonic() - begin:.1f} s)", err=True)
    sides = dict.fromkeys(("kernel", "configuration", "left out", "races", "count", "answer"), "left")
    print_table(sides, [dict(zip(sides, row, strict=True)) for row in rows])
    return 1 if failed or not rows else 0


def icd() -> Path | None:
    """Oclgrind's library for OpenCL loaders."""
    found = shutil.which("oclgrind")
    library = Path(found or "").resolve().parents[1] / "lib/oclgrind/liboclgrind-rt-icd.so" if found else None
    return library if library is not None and library.exists() else None


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Kernel; may be repeated (default: all).")
def main(kernels: tuple[str, ...]) -> None:
    """Start this script again with Oclgrind as the only platform."""
    if LOG in os.environ:
        sys.exit(watched(kernels))
    library = icd()
    if library is None:
        raise click.ClickException("Oclgrind was not found on the PATH: apt-get install oclgrind")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "oclgrind.icd").write_text(f"{library}\n")
        own = {"OCL_ICD_VENDORS": f"{folder}{os.sep}", LOG: f"{folder}{os.sep}log", "XDG_CACHE_HOME": folder}
        own |= {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_MAX_ERRORS": "1000000"}
        own["OCLGRIND_BUILD_OPTIONS"] = "-cl-opt-disable"  # its LLVM has instructions that it cannot run
        again = [sys.executable, "-m", "tests.mutants.check_races", *sys.argv[1:]]
        sys.exit(subprocess.run(again, env=os.environ | own, check=False).returncode)


if __name__ == "__main__":
    main()
