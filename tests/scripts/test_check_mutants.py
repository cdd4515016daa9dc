from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends import Device
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits

POCL = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 18, platform="Portable Computing Language")
CUDA = Traits("cuda", "gpu", sub_group_size=32)


@pytest.fixture(scope="module")
def family() -> Any:
    import _mutant_family

    return _mutant_family


@pytest.mark.parametrize("traits", [POCL, CUDA], ids=["opencl", "cuda"])
def test_every_fault_changes_the_program_in_both_dialects(family: Any, traits: Traits) -> None:
    from _mutants import MUTANTS, PROBLEMS

    assert len(MUTANTS) >= 40
    assert len({(mutant.kernel, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)
    tried = 0
    for mutant in MUTANTS:
        problem = family.MUTANT_FAMILY.problem(**PROBLEMS[mutant.problem])
        spec = family.MUTANT_FAMILY.kernel(mutant.kernel)
        if traits.dialect not in spec.dialects:
            continue
        config = {family.AXIS: family.NONE} | family.config_of(mutant, problem, traits)
        if spec.space.refusal(config, problem, traits) is None:
            sound = render(spec, problem, config, traits)
            own = render(family.MMSB.kernel(mutant.kernel), problem, family.config_of(mutant, problem, traits), traits)
            assert sound.digest == own.digest, "without a fault the kernel is the package's"
            assert render(spec, problem, config | {family.AXIS: mutant.name}, traits).digest != sound.digest
            tried += 1
    assert tried >= 0.8 * len(MUTANTS)


def test_the_script_tells_what_became_of_each(pocl_device: Device, scripts: Path) -> None:
    command = [sys.executable, scripts / "check_mutants.py", "--device", pocl_device.info.spec, "--kernel", "theta_end"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 faults, 2 refused" in done.stdout
    assert done.stdout.count("wrong_result") == 2
