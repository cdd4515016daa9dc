"""SIGINT, SIGTERM and SIGHUP in the middle of a real process: exit code 130, a valid checkpoint, the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.devices import PROCESSOR

pytestmark = [pytest.mark.slow, pytest.mark.opencl]

ITERATIONS = 2500
DATA = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
OPTIONS = [
    "-k",
    "6",
    "--device",
    PROCESSOR,
    "--mini-batch",
    "random-node",
    "--evaluate-every",
    "150",
    "--average",
    "-n",
    str(ITERATIONS),
]
COMMAND = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "detect", str(DATA)]


def finish(*args: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


def interrupt(number: int, *args: object) -> tuple[int, str]:
    """Send a signal well after the first iterations; return exit code and standard error."""
    process = subprocess.Popen(
        [*COMMAND, "-v", *map(str, args)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "Configurations, " in line:
            break
    time.sleep(0.25)
    process.send_signal(number)
    rest = process.communicate(timeout=60)[1]
    return process.returncode, "".join(lines) + rest


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path):
    """By each signal in turn, from where the one before stopped it."""
    there, straight = tmp_path / "there", tmp_path / "straight"
    options, before = [*OPTIONS, "-o", there], 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        code, said = interrupt(number, *options)
        assert code == 130, said
        stopped = json.loads((there / "run.json").read_text())
        assert stopped["interrupted"] is True
        assert before < stopped["iterations"] < ITERATIONS
        assert (
            f"Interrupted after iteration {stopped['iterations']}. Go on with: mmsbgen detect {DATA} --resume" in said
        )
        assert sorted(os.listdir(there)) == ["checkpoint.npz", "communities.txt", "memberships.npz", "run.json"]
        assert before == 0 or f"Resumed after iteration {before}, bit for bit" in said
        options, before = (
            ["--resume", there / "checkpoint.npz", "-o", there, "--device", PROCESSOR],
            stopped["iterations"],
        )

    assert f"Resumed after iteration {before}, bit for bit" in finish(*options).stderr
    finish(*OPTIONS, "-o", straight)
    with np.load(there / "memberships.npz") as found, np.load(straight / "memberships.npz") as right:
        for name in right:
            assert np.array_equal(found[name], right[name]), name
    assert (there / "communities.txt").read_bytes() == (straight / "communities.txt").read_bytes()
    found, right = (json.loads((folder / "run.json").read_text()) for folder in (there, straight))
    for row in (*found["trace"], *right["trace"]):
        del row["seconds"]
    assert found["trace"] == right["trace"]
    assert found["interrupted"] is False


@pytest.mark.parametrize("loaded", ["click", "numpy"], ids=["the program", "the command"])
def test_interrupted_while_it_is_loaded_it_says_so_in_one_line(tmp_path, loaded):
    """Signalled once a library is loaded on the way to the command line, and one on the way to the run."""
    command = [sys.executable, "-X", "importtime", "-m", "mmsbgen", *COMMAND[-2:], *OPTIONS, "-o", tmp_path / "out"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # A job in the background of a shell ignores the key that interrupts, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.rpartition("|")[2].strip() == loaded:
            process.send_signal(signal.SIGINT)
            break
    rest = process.communicate(timeout=60)[1].splitlines()
    assert [line for line in rest if not line.startswith("import time:")] == ["Interrupted."]
    # Python ends itself by the signal where that came amid code made of text; shells give that as 130 too.
    assert process.returncode in (130, -signal.SIGINT)
    assert not (tmp_path / "out").exists()


def test_without_a_folder_there_is_no_checkpoint_and_that_is_said(tmp_path):
    code, said = interrupt(signal.SIGINT, *OPTIONS)
    assert code == 130, said
    assert "There is no checkpoint, as no folder was given with -o." in said
