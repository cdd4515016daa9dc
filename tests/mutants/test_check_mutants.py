from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mmsbgen.backends import Device
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits
from tests.mutants.mutants import MUTANTS, PROBLEMS

POCL = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 18, platform="Portable Computing Language")
CUDA = Traits("cuda", "gpu", sub_group_size=32)


@pytest.mark.slow
@pytest.mark.parametrize("traits", [POCL, CUDA], ids=["opencl", "cuda"])
def test_every_fault_changes_the_program_in_both_dialects(traits: Traits) -> None:
    # Not at the top of the file: it adds to the templates of this process.

    # Not at the top of the file: it adds to the templates of this process.
    from tests.mutants.mutant_family import AXIS, MMSB, MUTANT_FAMILY, NONE, config_of

    assert len(MUTANTS) >= 40
    assert len({(mutant.kernel, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)
    tried = 0
    for mutant in MUTANTS:
        problem = MUTANT_FAMILY.problem(**PROBLEMS[mutant.problem])
        spec = MUTANT_FAMILY.kernel(mutant.kernel)
        if traits.dialect not in spec.dialects:
            continue
        config = {AXIS: NONE} | config_of(mutant, problem, traits)
        if spec.space.refusal(config, problem, traits) is None:
            sound = render(spec, problem, config, traits)
            own = render(MMSB.kernel(mutant.kernel), problem, config_of(mutant, problem, traits), traits)
            assert sound.digest == own.digest, "without a fault the kernel is the package's"
            assert render(spec, problem, config | {AXIS: mutant.name}, traits).digest != sound.digest
            tried += 1
    assert tried >= 0.8 * len(MUTANTS)


@pytest.mark.slow
def test_the_check_tells_what_became_of_each(processor: Device) -> None:
    command = [sys.executable, "-m", "tests.mutants.check_mutants", "--device", processor.info.spec]
    command += ["--kernel", "theta_end"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 faults, 2 refused" in done.stdout
    assert done.stdout.count("wrong_result") == 2
