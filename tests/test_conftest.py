"""What the tests themselves are run with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_print(number):
    print("example", number)
"""


def examples(folder: Path, ci: str | None) -> tuple[list[str], list[str]]:
    """The examples of a property that is tested twice in a process of its own, with ``CI`` set to ``ci``."""
    environment = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
    environment |= {} if ci is None else {"CI": ci}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=120)
    found = [line for line in done.stdout.splitlines() if line.startswith(("example", ".example"))]
    again = next(at for at, line in enumerate(found) if line.startswith(".example") and at > 0)
    return found[:again], [line.removeprefix(".") for line in found[again:]]


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "same"), [("true", True), ("false", False), (None, False)])
def test_examples_are_the_same_each_time_in_ci_alone(tmp_path: Path, ci: str | None, same: bool) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    for name in ("test_first.py", "test_second.py"):
        (tmp_path / name).write_text(PROPERTY)
    first, second = examples(tmp_path, ci)
    assert len(first) > 10
    assert (first == second) is same


SHARED = """
import os
from pathlib import Path
import pytest

def ran(what):
    with Path("ran").open("a") as file:
        file.write(f"{Path(__file__).name} {what} {os.getpid()}\\n")

@pytest.mark.alone
def test_alone():
    ran("alone")

@pytest.mark.parametrize("device", ["pocl", "intel"])
@pytest.mark.parametrize("number", range(4))
def test_on(number, device, tell):
    ran(device)
    tell(f"number {number} on {device}")
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Two files of tests on two devices, each with one test that runs alone."""
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(SHARED)
    return tmp_path


QUICK = """
import time
import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture
def device(pocl_device):
    raise AssertionError("not in the quick part")

def test_device(device):
    pass

@pytest.mark.slow
def test_marked():
    work(1.6)

@pytest.mark.slow
@pytest.mark.smoke
def test_smoke():
    work(1.6)

def test_waits():
    time.sleep(1.6)

def test_works():
    work(1.6)
"""


@pytest.mark.slow
def test_the_quick_part_has_no_device_and_no_slow_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_quick.py").write_text(QUICK)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--part", "quick"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "1 failed, 2 passed, 2 deselected" in done.stdout
    assert "FAILED test_quick.py::test_works - Failed: took 1." in done.stdout


def parts_of(folder: Path, *options: str) -> tuple[list[list[str]], str]:
    """File, device and process of each test that ran, and what was said."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in (folder / "ran").read_text().splitlines()], done.stdout


@pytest.mark.slow
def test_processes_share_the_tests_by_file_and_device(shared: Path) -> None:
    ran, said = parts_of(shared, "--part", "together", "-n", "2")
    assert sorted(line[:2] for line in ran) == sorted(
        [f"test_{f}.py", d] for f in "ab" for d in ("intel", "pocl") for _ in range(4)
    )
    assert len({process for *_, process in ran}) == 2
    assert len({tuple(line) for line in ran}) == 4, "those of one file on one device stay together"
    assert said.count("number 3 on intel\n") == 2


@pytest.mark.slow
def test_those_marked_alone_are_the_other_part(shared: Path) -> None:
    ran, _ = parts_of(shared, "--part", "alone")
    assert [line[:2] for line in ran] == [["test_a.py", "alone"], ["test_b.py", "alone"]]
