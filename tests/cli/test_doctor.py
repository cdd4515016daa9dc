"""What the doctor finds on this machine, and on this machine with something broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mmsbgen.backends import Device
from mmsbgen.backends.device_lock import device_lock
from mmsbgen.cli import main
from mmsbgen.cli.shared.machine_checks import Finding, examine, self_test
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.store.schema import REVISION
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.record_key import key_of
from tests.records import program


def doctor(*words: object, code: int = 0, **env: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ["doctor", "--json", *map(str, words)], env=env)
    assert result.exit_code == code, result.output
    findings: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return findings


def about(findings: list[dict[str, Any]], topic: str, status: str) -> str:
    return "\n".join(
        f"{one['what']} -> {one['remedy']}" for one in findings if (one["topic"], one["status"]) == (topic, status)
    )


def test_a_device_compiles_anew_checks_and_times_a_kernel(opencl_device: Device, private_cache: Path) -> None:
    found = self_test(opencl_device.info.spec)
    assert (found.topic, found.status) == ("devices", "ok"), found
    assert found.details["compile_s"] > 0
    assert found.details["kernel"] == "block_shared", "a default run makes blocks"
    assert 0 < found.details["seconds"] < 1
    assert not list(private_cache.rglob("*.bin")), "the user's caches are left alone"
    assert os.environ["XDG_CACHE_HOME"] == str(private_cache)


@pytest.mark.opencl
def test_a_device_on_which_another_measures_is_not_waited_for(pocl_device: Device) -> None:
    with device_lock(pocl_device.hardware):
        found = self_test(pocl_device.info.spec)
    assert found.status == "note"
    assert "another process measures" in found.what


@pytest.mark.opencl
def test_all_is_told_in_words_with_what_to_do(pocl_device: Device, tmp_path: Path) -> None:
    words = ["doctor", "--device", pocl_device.info.spec, "--database", str(tmp_path / "none.sqlite3")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    for text in ("Python", "of memory free", "can be written", "Portable Computing Language, driver", "checked,"):
        assert text in result.stdout
    assert "there is no tuning database at" in result.stdout
    assert f"-> mmsbgen tune --device {pocl_device.info.spec}" in result.stdout
    assert "problem" not in result.stdout


@pytest.mark.opencl
def test_a_device_that_is_not_there_is_bad_input_when_typed_and_a_finding_when_set(pocl_device: Device) -> None:
    result = CliRunner().invoke(main, ["doctor", "--device", "9"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: no device matches '9'; there are:")
    assert "no device matches '9'" in about(doctor("--no-self-test", code=1, MMSBGEN_DEVICE="9"), "devices", "problem")


@pytest.mark.opencl
def test_records_of_this_device_are_counted_and_stale_ones_told(pocl_device: Device, tmp_path: Path) -> None:
    import dataclasses

    spec = family().kernel("update_phi")
    with open_store(tmp_path / "tuning.sqlite3") as store:
        run = RunRecord(strategy="exhaustive")
        store.begin_run(run)
        for info in (pocl_device.info, dataclasses.replace(pocl_device.info, driver="older")):
            key = key_of(info, spec, family().problem())
            config = spec.default(family().problem(), traits_of(info))
            extra = program(key, config)
            store.add_trial(TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=(1e-3,), extra=extra))
    words = ("--no-self-test", "--database", tmp_path / "tuning.sqlite3", "--device", pocl_device.info.spec)
    told = about(doctor(*words), "database", "ok")
    assert f"schema {REVISION}: 1 runs, 0 configurations in quarantine" in told
    assert "1 ok, 1 stale" in told or "1 stale, 1 ok" in told
    assert "block_shared of a default run has tier default" in told, "whatever other kernels have records"


@pytest.mark.slow
def test_what_is_broken_is_a_problem_with_a_remedy_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "damaged.sqlite3").write_text("no database at all")
    (tmp_path / "config.toml").write_text("[tune]\nbudjet-trials = 3\n")
    (tmp_path / "file").touch()
    line = ["--config", str(tmp_path / "config.toml"), "doctor", "--no-self-test", "--json"]
    env = os.environ | {
        "MMSBGEN_DATABASE_URL": str(tmp_path / "damaged.sqlite3"),
        "XDG_DATA_HOME": str(tmp_path / "file"),
        "MMSBGEN_TUN_SEED": "3",
    }
    code = "from mmsbgen.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *line], env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert "is not an SQLite database" in about(findings, "database", "problem")
    assert "budjet-trials is not known; did you mean budget-trials?" in about(findings, "settings", "problem")
    assert "MMSBGEN_TUN_SEED sets nothing; did you mean MMSBGEN_TUNE_SEED?" in about(findings, "settings", "problem")
    assert "cannot be written: Not a directory" in about(findings, "disk", "problem")
    assert all(one["remedy"] for one in findings if one["status"] == "problem")


@pytest.mark.opencl
def test_a_damaged_database_is_found(pocl_device: Device, tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite3"
    with open_store(path) as store:
        for _ in range(200):
            store.begin_run(RunRecord(strategy="x" * 200))
    raw = bytearray(path.read_bytes())
    raw[8192 : len(raw) - 4096] = os.urandom(len(raw) - 12288)
    path.write_bytes(raw)
    told = about(doctor("--no-self-test", "--database", path, code=1), "database", "problem")
    assert "damaged" in told or "malformed" in told


@pytest.mark.slow
def test_without_any_device_it_says_how_to_get_one(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyopencl'] = None; from mmsbgen.cli import main; main(['doctor', '--json'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stderr
    told = about(json.loads(done.stdout)["findings"], "devices", "problem")
    assert "there is no device" in told
    assert "pip install" in told


def test_a_check_that_fails_itself_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmsbgen.cli.shared import machine_checks as module

    def broken() -> Any:
        raise ZeroDivisionError("a driver's surprise")

    monkeypatch.setattr(module, "_memory", broken)
    findings: list[Finding] = list(examine(self_tests=False))
    (failed,) = [one for one in findings if one.topic == "memory"]
    assert failed.status == "problem"
    assert "ZeroDivisionError: a driver's surprise" in failed.what
    assert {"Python", "disk", "devices", "database"} <= {one.topic for one in findings}
