"""Cache folders that cannot be written: runs go on without them, warn once, and PoCL is still there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mmsbgen.backends.opencl.compiler_caches import POCL_VARIABLE, PYOPENCL_VARIABLE, why_unwritable

pytestmark = pytest.mark.opencl

DOUBLED = """
import os, sys
import numpy as np
from mmsbgen.backends import open_device
SOURCE = "__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2.0f; }"
with open_device(sys.argv[1]) as device:
    x = device.upload(np.arange(4, dtype=np.float32))
    BETWEEN
    device.compile(SOURCE, ["twice"]).kernel("twice").launch((1,), (4,), [x]).wait()
    print(*device.download(x), os.environ.get("POCL_CACHE_DIR"))
"""


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process in an environment without settings of caches but these, whatever the tests have."""
    left_out = ("XDG_CACHE_HOME", POCL_VARIABLE, PYOPENCL_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | variables
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("home", ["/dev/null", "/proc"])
@pytest.mark.parametrize("first", ["", "import pyopencl"], ids=["", "pyopencl loaded before"])
def test_a_home_that_cannot_be_written_costs_the_caches_alone(pocl_device: object, home: str, first: str) -> None:
    done = run(first + DOUBLED.replace("BETWEEN", ""), "pocl", HOME=home)
    assert done.returncode == 0, done.stderr
    *values, folder = done.stdout.split()
    assert values == ["0.0", "2.0", "4.0", "6.0"]
    assert done.stderr.count(f"cannot write the cache folder {home}/.cache") == 1
    assert "XDG_CACHE_HOME" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path(folder).exists(), "it ends with the process"


def test_a_cache_that_is_lost_after_the_start_is_done_without(pocl_device: object, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    lose = "os.rename(sys.argv[2], sys.argv[2] + '-gone'); open(sys.argv[2], 'w').close()"
    cache, pocls = str(tmp_path / "cache"), str(tmp_path / "pocl")
    done = run(DOUBLED.replace("BETWEEN", lose), "pocl", cache, XDG_CACHE_HOME=cache, **{POCL_VARIABLE: pocls})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:4] == ["0.0", "2.0", "4.0", "6.0"]
    assert done.stderr == ""


def test_what_the_user_has_set_is_left_and_told(pocl_device: object) -> None:
    code = "from mmsbgen.backends import discover; print([info.spec for info in discover()[0]], discover()[1])"
    done = run(code, HOME="/dev/null", **{POCL_VARIABLE: "/dev/null/kcache", PYOPENCL_VARIABLE: "true"})
    assert "PoCL has no device, as POCL_CACHE_DIR=/dev/null/kcache cannot be written" in done.stdout
    assert done.stderr == ""


def test_detect_gives_results_and_one_warning(pocl_device: object, tmp_path: Path) -> None:
    links = np.array([(a, (a + step) % 12) for a in range(12) for step in (1, 2)])
    np.savetxt(tmp_path / "ring.txt", links, fmt="%d")
    words = f"detect {tmp_path}/ring.txt -k 2 -n 3 --device pocl -o {tmp_path}/out".split()
    done = run("from mmsbgen.cli import main; main()", *words, HOME="/dev/null", XDG_DATA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "communities.txt").exists()
    assert done.stderr.count("WARNING") == 1
    assert "Traceback" not in done.stderr


def test_tune_warns_once_and_leaves_nothing_behind(pocl_device: object, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    words = ["tune", "--device", "pocl", "--kernel", "update_beta", "-p", "K=16", "--roof-mib", "1"]
    words += ["--budget-trials", "2"]
    folders = {"XDG_DATA_HOME": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
    done = run("from mmsbgen.cli import main; main()", *words, HOME="/dev/null", **folders)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot write the cache folder") == 1
    assert not list((tmp_path / "temporary").glob("mmsbgen-pocl-*"))


def test_folders_that_are_not_there_yet_and_full_disks(tmp_path: Path) -> None:
    assert why_unwritable(tmp_path / "not" / "yet") is None
    assert not (tmp_path / "not").exists()
    assert why_unwritable(Path("/dev/null/x")) == "Not a directory"
    code = """
import resource, sys
from pathlib import Path
from mmsbgen.backends.opencl.compiler_caches import why_unwritable
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(why_unwritable(Path(sys.argv[1])))
"""
    assert run(code, str(tmp_path)).stdout == "File too large\n"
