"""Two runs at once measure in turns."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import Timeout

from mmsbgen.backends import Device
from mmsbgen.backends.device_lock import device_lock, file_name, having_device
from mmsbgen.base.errors import InputError
from mmsbgen.db.store.tuning_store import open_store

_HOLD = """
import sys, time
from mmsbgen.backends.device_lock import device_lock
with device_lock("a device"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_device_has_one_owner_and_a_dead_one_is_none() -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLD], stdout=subprocess.PIPE, text=True, env=_here())
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Timeout):
            device_lock("a device").acquire(timeout=0.2)
        with device_lock("another device").acquire(timeout=5):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with device_lock("a device").acquire(timeout=5):
        pass


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of a user whose cache folder cannot be made."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_without_a_cache_folder_the_lock_is_a_temporary_file_of_this_user(
    no_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, node = "pci 0000:3b:00.0", file_name(platform.node())
    mine = no_cache / f"mmsbgen-{os.getuid()}-{node}-pci-0000-3b-00.0.lock"
    with device_lock(device):
        assert mine.exists()
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        with device_lock(device).acquire(timeout=5):  # another user's is another file, which he may write
            assert (no_cache / mine.name.replace(f"-{os.stat(mine).st_uid}-", "-12345-")).exists()


def test_a_lock_that_cannot_be_written_is_an_input_error(no_cache: Path) -> None:
    name = f"mmsbgen-{os.getuid()}-{file_name(platform.node())}-processor.lock"
    (no_cache / name).mkdir()
    with pytest.raises(InputError, match=r"can be written \(Is a directory\).*XDG_CACHE_HOME or TMPDIR"):
        device_lock("processor")


def test_machines_that_share_a_home_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with device_lock("processor"):
        monkeypatch.setattr(platform, "node", lambda: "another")
        with device_lock("processor").acquire(timeout=5), pytest.raises(Timeout):
            device_lock("processor").acquire(timeout=0.2)


@pytest.mark.slow
@pytest.mark.opencl
def test_who_waits_for_a_device_says_so(processor: Device, tmp_path: Path) -> None:
    words = ["tune", "--device", processor.info.spec, "--kernel", "update_beta", "--budget-trials", "3"]
    words += ["-p", "K=20", "-p", "N=500", "-p", "m=64", "-p", "n=4", "--roof-mib", "1", "--compilers", "0"]
    command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", *words]
    run = subprocess.Popen(
        [*command, "--database", str(tmp_path / "tuning.sqlite3")],
        env=_here(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    with device_lock(processor.hardware):
        told = ""
        while "waiting" not in told:
            told = run.stderr.readline()
            assert told, "it ended without waiting"
    assert told == f"waiting for another measurement on {processor.info.name} ...\n"
    _, rest = run.communicate(timeout=300)
    assert run.returncode == 0, rest


@pytest.mark.slow
def test_who_compiles_ahead_on_the_processor_waits_for_it_too() -> None:
    told = []
    with device_lock("a device") as held:

        def waiting() -> None:
            told.append("waiting")
            held.release()

        with having_device("a device", waiting), pytest.raises(Timeout):
            device_lock("a device").acquire(timeout=0.2)
    assert told == ["waiting"]
    with device_lock("a device").acquire(timeout=5):
        pass


def test_platforms_of_one_processor_are_one_device(opencl_device: Device) -> None:
    assert opencl_device.hardware == "processor"


_LOGGED = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from mmsbgen.tuner.measure import timing, trial_process

log, name = Path(sys.argv.pop()), sys.argv.pop()
real = timing.time_launches

def logged(*args, **kwargs):
    with log.open("a") as file:
        file.write(f"{name} begin {time.monotonic()}\\n")
    found = real(*args, **kwargs)
    with log.open("a") as file:
        file.write(f"{name} end {time.monotonic()}\\n")
    return found

trial_process.time_launches = logged
trial_process.main()
"""

_TUNE = """
import sys, time
from pathlib import Path
from mmsbgen.families import family
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.base import processes
from mmsbgen.tuner.run.tuning_report import Progress
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune

device, database, name, log, logged = sys.argv[1:]
real = processes.subprocess.Popen

class Together(Progress):  # each goes on after its first trial when the other has one too

    def trial(self, report, trial):
        Path(log + name).touch()
        while not all(Path(log + one).exists() for one in ("a", "b")):
            time.sleep(0.01)

def with_log(command, **options):
    place = command.index("-m")
    return real([*command[:place], logged, *command[place + 2 :], name, log], **options)

processes.subprocess.Popen = with_log
with open_store(database) as store:
    report = tune(
        device, "mmsb", ["update_phi"], family().problem(K=64, m=512, n=16, N=2000), store=store, budget_trials=8,
        fixed={"team": "item", "placement": ("THREAD", "GLOBAL")}, patience=Patience(repetitions=9, enough_s=0.15),
        roof_bytes=1 << 20, compilers=0, progress=Together(),
    )
assert report.status == "finished"
"""


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.timeout(1100)
def test_two_tunes_at_once_never_time_at_the_same_time(processor: Device, tmp_path: Path) -> None:
    """The times at which each child began and ended to time a candidate, written by the children themselves."""
    logged, log = tmp_path / "logged_worker.py", tmp_path / "log"
    logged.write_text(_LOGGED)
    log.touch()
    runs = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                _TUNE,
                processor.info.spec,
                str(tmp_path / f"{name}.sqlite3"),
                name,
                str(log),
                str(logged),
            ],
            env=_here(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    try:
        for run in runs:
            _, said = run.communicate(timeout=500)
            assert run.returncode == 0, said
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    entries = [line.split() for line in log.read_text().splitlines()]
    spans = {name: _spans(entries, name) for name in ("a", "b")}
    for name, found in spans.items():
        with open_store(tmp_path / f"{name}.sqlite3") as store:
            assert len(found) >= len([trial for trial in store.trials() if trial.round == 0]) == 8
    first, last = zip(*[(found[0][0], found[-1][1]) for found in spans.values()], strict=True)
    assert max(first) < min(last), "they ran at the same time"
    for begin, end in spans["a"]:
        assert all(end <= other or begin >= until for other, until in spans["b"])


def _spans(entries: list[list[str]], name: str) -> list[tuple[float, float]]:
    moments = [(kind, float(moment)) for who, kind, moment in entries if who == name]
    begins = [moment for kind, moment in moments if kind == "begin"]
    ends = [moment for kind, moment in moments if kind == "end"]
    return list(zip(begins, ends, strict=True))


def _here() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
