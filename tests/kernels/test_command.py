"""``mmsbgen render``: what it prints, fills in and refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from mmsbgen.cli import main

ISSUE = "render update_phi --backend cuda --placement RRS --vector-width 4 --block-size 64 -k 1024"


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


def test_the_command_of_the_readme() -> None:
    result = run(ISSUE)
    assert result.exit_code == 0, result.output
    assert "__launch_bounds__(64)" in result.stdout
    for line in ("#define LOCAL __shared__", "#define ROW_VECTORS 256u", "    LOCAL realv w_shared[ROW_VECTORS];"):
        assert line in result.stdout.splitlines()
    assert "probs0_3" in result.stdout
    assert result.stderr.startswith("filled in from the default on CUDA: ")
    for word in ("team=block", "reduction=shuffle"):
        assert word in result.stderr


@pytest.mark.slow
def test_needs_no_gpu_library() -> None:
    script = (
        "import sys\n"
        "for name in ('pyopencl', 'pycuda', 'cuda', 'cupy'): sys.modules[name] = None\n"
        f"sys.argv = ['mmsbgen', *{ISSUE.split()!r}]\n"
        "from mmsbgen.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "update_phi(" in done.stdout


@pytest.mark.parametrize(
    ("options", "adjusted"),
    [
        ("--backend cuda --block-size 48", "reduction=local"),
        ("--backend cuda --placement THREAD", "team=item"),
        ("--block-size 64 --team block", "placement="),
    ],
)
def test_what_does_not_go_with_the_default_is_adjusted(options: str, adjusted: str) -> None:
    result = run(f"render update_phi {options} -k 1024")
    assert result.exit_code == 0, result.output
    assert "does not go with what was asked" in result.stderr
    assert adjusted in result.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("render update_phi --backend cuda --vector-width 16", "vectors of up to 4 elements, not 16"),
        ("render update_phi --backend cuda --team block --placement THREAD", "THREAD is one work-item a vertex"),
        ("render update_phi --placement RRX", "placement=RRX is not one of THREAD"),
        ("render update_phi --set nothing=1", "no axis 'nothing'; it has placement"),
        ("render draws --team item", "draws has no axis 'team'; it has block_size"),
        ("render update_ph", "did you mean update_phi or update_pi? --list has them all"),
        ("render", "name a kernel: draw_stars, sample_partners, update_phi"),
        ("render update_phi -k 0", "K=0 is outside 1 to"),
        ("render update_phi -p K", "write it as NAME=VALUE"),
        ("render update_phi -p K=8 -p K=9", "-p K=8 and K=9: give K one value"),
        ("render update_phi -p dtype=float16", "dtype='float16' is not one of float32, float64"),
        ("render update_phi --backend cuda --kind cpu", "CUDA devices are GPUs"),
        ("render update_phi -k 5 -p K=6", "K=5 and K=6: give K one value"),
        ("render update_beta --kind gpu --set block_size=33", "block_size=33 is not one of"),
        ("render update_beta --block-size 32 --set block-size=64", "block_size=32 and block_size=64: give block_size"),
        ("render update_phi --backend cuda --local-memory 0 --placement SSS", "bytes of local memory"),
        (
            "render update_pi --backend cuda --team item --vector-width 4 --block-size 64 --reduction local",
            "configuration block_size=64 reduction=local team=item vector_width=4 is refused: reduction: a single",
        ),
    ],
)
def test_refusals_say_why(command: str, message: str) -> None:
    result = run(command)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""


def test_problem_parameters_and_axes_by_name() -> None:
    result = run("render update_pi --backend opencl --kind gpu -p K=20 -p dtype=float64 --set vector_width=2")
    assert result.exit_code == 0, result.output
    assert "K=20" in result.stdout
    assert "typedef double2 realv;" in result.stdout


def test_list() -> None:
    everything = run("render --list").stdout
    assert "update_phi: gather the partners' rows" in everything
    assert "RRR, RRS, RSR" in everything
    one = run("render draws --list").stdout
    assert "block_size" in one
    assert "placement" not in one


def test_a_configuration_that_was_given_whole_fills_nothing_in() -> None:
    result = run("render update_beta --backend cuda --block-size 64")
    assert result.exit_code == 0
    assert result.stderr == ""
