"""Tuning onto disks that are full or read-only: what was stored stays, and the same command goes on later."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import resolve_family
from mmsbgen.tuner.run.tune import tune
from tests.disks import MMSBGEN, in_a_file_system_of_its_own
from tests.tuner.tuning_process import TRIALS

TUNE = "tune --device fake --kernel update_phi --roof-mib 1 --quiet --budget-trials 3"
TUNE_FAKE = f"{sys.executable} {Path(__file__).with_name('tuning_process.py')}"


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


@pytest.mark.slow
def test_a_full_disk_keeps_what_it_has_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    database = "--database disk/tuning.sqlite3"
    done = in_a_file_system_of_its_own(
        f"""
        mount -t tmpfs -o size=400k none disk || exit 99
        {TUNE_FAKE} disk/tuning.sqlite3 > first.out 2> first.err; echo $? > first.code
        {MMSBGEN} db {database} trials --limit 1000 --json > first.json || exit 98
        mount -o remount,size=64m disk || exit 99
        {TUNE_FAKE} disk/tuning.sqlite3 > second.out 2> second.err; echo $? > second.code
        {MMSBGEN} db {database} trials --limit 1000 --json > second.json || exit 98
        """,
        tmp_path,
    )
    if done.returncode == 99:
        pytest.skip(f"this system lets no test mount a file system: {done.stderr}")
    assert done.returncode == 0, done.stderr
    stopped_and_went_on(tmp_path, "tuning.sqlite3 cannot grow because the disk is full; free some space")


def stopped_and_went_on(folder: Path, message: str) -> None:
    """The first run ended with the message, the second found all that was stored and measured the rest."""
    error = (folder / "first.err").read_text()
    assert (folder / "first.code").read_text() == "1\n"
    assert "Traceback" not in error
    assert f"{message} and repeat the command" in error
    assert (folder / "second.code").read_text() == "0\n", (folder / "second.err").read_text()
    first, second = rows(folder / "first.json"), rows(folder / "second.json")
    assert 0 < len(first) < TRIALS
    assert {row["trial"] for row in first} <= {row["trial"] for row in second}
    searched = [(json.dumps(row["config"], sort_keys=True), row) for row in second if row["round"] == 0]
    assert len({config for config, _ in searched}) == TRIALS
    assert set(Counter((config, row["run"]) for config, row in searched).values()) == {1}
    # What the first run gave up, as it seemed far behind the best, is the only thing that the second measured again.
    known = {config for config, row in searched if row["run"] == first[0]["run"] and not row["extra"].get("given_up")}
    assert not known & {config for config, row in searched if row["run"] != first[0]["run"]}


@pytest.mark.slow
@pytest.mark.postgres
def test_a_server_whose_disk_is_full_keeps_what_it_has_and_the_run_goes_on_when_there_is_room(
    postgres_programs: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system and give it to the server's user")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:  # the server's user cannot look into tmp_path
        script = f"{sys.executable} {Path(__file__).with_name('full_server.py')} {name} {postgres_programs}"
        done = in_a_file_system_of_its_own(script, Path(name))
        log = Path(name) / "log"
        assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
        stopped_and_went_on(Path(name), "/tuning cannot grow because its disk is full; free some space there")


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    """Needs no rights: the system refuses to let the file grow."""
    command = f"{TUNE_FAKE} {tmp_path}/tuning.sqlite3"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=200, preexec_fn=limited)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert f"the database {tmp_path}/tuning.sqlite3" in done.stderr
    listed = subprocess.run(
        ["sh", "-c", f"{MMSBGEN} db --database {tmp_path}/tuning.sqlite3 trials --limit 1000 --json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 < len(json.loads(listed.stdout)) < TRIALS


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_climb_ends_the_run_as_failed(tmp_path: Path) -> None:
    """The search ends after three quarters; had the failure been passed over, there would be room again."""
    command = f"{TUNE_FAKE} {tmp_path}/tuning.sqlite3 update_phi default {TRIALS * 4 // 5}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert f"the database {tmp_path}/tuning.sqlite3" in done.stderr
    with open_store(tmp_path / "tuning.sqlite3") as store:
        assert [run.status for run in store.runs()] != ["finished"]
        assert len([trial for trial in store.trials() if trial.round == 0]) == TRIALS * 4 // 5


@pytest.mark.slow
@pytest.mark.parametrize("existing", [True, False])
def test_a_read_only_disk_is_told(tmp_path: Path, existing: bool) -> None:
    (tmp_path / "disk").mkdir()
    with open_store(tmp_path / "tuning.sqlite3"):
        pass
    make = "cp tuning.sqlite3 disk" if existing else "true"
    done = in_a_file_system_of_its_own(
        f"""
        mount -t tmpfs -o size=4m none disk || exit 99
        {make}
        mount -o remount,ro disk || exit 99
        {MMSBGEN} {TUNE} --database disk/tuning.sqlite3; echo code $?
        """,
        tmp_path,
    )
    if done.returncode == 99:
        pytest.skip(f"this system lets no test mount a file system: {done.stderr}")
    assert "code 2\n" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    assert "tuning.sqlite3 cannot be written" in done.stderr
    assert "--database" in done.stderr


@pytest.mark.opencl
def test_a_space_without_a_valid_configuration_leaves_no_run(pocl_device: Device, store: Store, faulty: str) -> None:
    problem = resolve_family(faulty).problem(n=64)
    with pytest.raises(InputError, match="twice has no valid configuration for this problem on this device: checkable"):
        tune(pocl_device.info.spec, faulty, ["twice"], problem, store=store, fixed={"fault": "cannot be checked"})
    assert store.runs() == []


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_told() -> None:
    command = f"{MMSBGEN} {TUNE} --database postgresql://nobody@127.0.0.1:1/tuning"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "cannot connect to the database server 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
