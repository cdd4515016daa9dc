"""Child processes: what they find, how they end, and that files of the current folder are not run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mmsbgen.backends import Device
from mmsbgen.base import processes
from mmsbgen.base.processes import ChildProcess, python_command, python_environment

CHILD = """
import random, select, struct, sys
from mmsbgen.base.processes import parent_connection

connection = parent_connection()
while True:
    try:
        connection.send(eval(connection.recv()))
    except MemoryError:
        connection.send("no memory")
"""
OWNER = """
from mmsbgen.base.processes import ChildProcess
child = ChildProcess("a_child", "an argument")
child.connection.send("sys.argv[1:]")
print(child.connection.recv(), child.pid, flush=True)
__import__("time").sleep(60)
"""


@pytest.fixture
def spoiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose files have names of the standard library's modules and tell when they are run."""
    folder = tmp_path / "spoiled"
    folder.mkdir()
    for name in ("select", "random", "struct", "signal", "tempfile"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'a').write({name + ' '!r})\n")
    monkeypatch.chdir(folder)
    return tmp_path / "run"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ChildProcess]]:
    """Starts children that answer what expressions are."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "a_child.py").write_text(CHILD)
    monkeypatch.syspath_prepend(str(folder))
    started: list[ChildProcess] = []

    def child(*arguments: object, **options: int) -> ChildProcess:
        started.append(ChildProcess("a_child", *arguments, **options))
        return started[-1]

    yield child
    for one in started:
        one.close()


def test_a_child_answers_and_is_killed_with_what_it_started(start: Callable[..., ChildProcess]) -> None:
    child = start(1, "two")
    child.connection.send("sys.argv[1:]")
    assert child.connection.recv() == ["1", "two"]
    child.connection.send("print('last words', flush=True) or __import__('subprocess').Popen(['sleep', '60']).pid")
    grandchild = psutil.Process(child.connection.recv())
    assert child.exit_code() is None
    child.kill()
    assert child.exit_code() == -9
    assert child.ending() == "the process died: SIGKILL"
    assert child.printed() == "last words"
    psutil.wait_procs([grandchild], 10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no other process")
def test_a_limit_of_memory(start: Callable[..., ChildProcess]) -> None:
    child = start(address_space=1 << 30)
    child.connection.send("len(bytes(2 << 30))")
    assert child.connection.recv() == "no memory"
    child.connection.send("open('/proc/self/oom_score_adj').read()")
    assert child.connection.recv() == "1000\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no other process")
def test_a_limit_is_no_higher_than_the_hard_limit(
    start: Callable[..., ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    real, hard, given = resource.prlimit, 1 << 40, []

    def prlimit(pid: int, which: int, limits: tuple[int, int] | None = None) -> tuple[int, int]:
        if which != resource.RLIMIT_AS:
            return real(pid, which) if limits is None else real(pid, which, limits)
        given.extend([] if limits is None else [limits])
        return hard, hard

    monkeypatch.setattr(resource, "prlimit", prlimit)
    start(address_space=hard + 1)
    start(address_space=hard - 1)
    assert given == [(hard, hard), (hard - 1, hard - 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no other process")
def test_a_child_that_cannot_be_limited_is_ended(
    start: Callable[..., ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def refuse(pid: int, address_space: int) -> None:
        seen.append(psutil.Process(pid))
        raise PermissionError("not allowed to raise maximum limit")

    monkeypatch.setattr(processes, "_limit", refuse)
    with pytest.raises(PermissionError):
        start(address_space=1 << 30)
    assert not seen[0].is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child of its parent's end")
def test_a_child_ends_with_its_parent(start: Callable[..., ChildProcess]) -> None:
    command = [sys.executable, "-P", "-c", OWNER]
    environment = os.environ | python_environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        said = owner.stdout.readline()
        assert said.startswith("['an argument'] ")
        child = psutil.Process(int(said.split()[-1]))
        owner.kill()
    psutil.wait_procs([child], 10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_files_of_the_current_folder_are_not_run(
    spoiled: Path, start: Callable[..., ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the parent has this folder first on its path, as an interactive Python has."""
    monkeypatch.syspath_prepend("")
    child = start()
    child.connection.send("random.__file__")
    assert child.connection.recv() == sys.modules["random"].__file__
    child.connection.send("__import__('subprocess').call([sys.executable, '-c', 'import random, select'])")
    assert child.connection.recv() == 0
    assert not spoiled.exists()


TUNE = "tune --device pocl --kernel theta_end -p N=500 -p K=20 -p m=64 -p n=4 --budget-trials 2 --roof-mib 1"


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.parametrize("command", [TUNE, "worker --device pocl --drain", "doctor"])
def test_commands_run_no_file_of_the_current_folder(
    spoiled: Path, tmp_path: Path, pocl_device: Device, command: str
) -> None:
    environment = os.environ | {"MMSBGEN_DATABASE_URL": str(tmp_path / "t.sqlite3"), "XDG_DATA_HOME": str(tmp_path)}
    words = python_command("mmsbgen", *command.split())
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not spoiled.exists()


def test_parts_are_computed_side_by_side_in_order(monkeypatch):
    """With any number of cores; what fails is raised in its turn, and what a caller does not take is left."""
    for number in (1, 3):
        monkeypatch.setattr(processes, "cores", lambda number=number: number)
        assert list(processes.side_by_side(lambda part: part * part, range(50))) == [part * part for part in range(50)]
        assert list(processes.side_by_side(str, [])) == []
        found = processes.side_by_side(lambda part: 1 // (3 - part), range(50))
        assert [next(found) for _ in range(3)] == [0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(found)


def test_parts_that_are_made_one_by_one_are_given_back(monkeypatch):
    made: list[weakref.ref[Any]] = []

    def parts():
        for _ in range(30):
            part = {1}
            made.append(weakref.ref(part))
            yield part
            del part

    for number in (1, 2):
        monkeypatch.setattr(processes, "cores", lambda number=number: number)
        made.clear()
        found, end = processes.side_by_side(len, parts()), time.monotonic() + 10
        assert [next(found) for _ in range(20)] == [1] * 20
        while any(part() for part in made[:20]) and time.monotonic() < end and number > 1:
            time.sleep(0.001)  # a thread gives its part back after its result
        assert not any(part() for part in made[:19])
