"""Records that come with the package: they hold for every database, and nothing a user does changes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.nearness import parts
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.explain_selection import nearest
from mmsbgen.db.selection.index import SHIPPED, Index, Selection
from mmsbgen.db.store.tuning_store import open_store

PACKAGE = Path(__file__).parents[2] / "mmsbgen"
CPU = {"backend": "opencl", "platform": "PoCL", "vendor": "AMD", "name": "EPYC", "architecture": "zen5", "kind": "cpu"}


def choose(index: Index, key: Key) -> Selection:
    return index.select(key, valid=lambda config: True, default={"from": "default"})


@pytest.fixture
def shipped(tmp_path: Path, make: Any) -> Path:
    """A folder as the package has one, with one record of an H200."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    jsonl.write(Bundle(runs=[make.run], trials=[make.trial(config={"from": "package"})]), folder / "h200.jsonl")
    return folder


def test_they_answer_for_a_database_that_was_there_before(url: str, make: Any, shipped: Path) -> None:
    with open_store(url) as store:
        store.begin_run(make.run)
        store.add_trial(make.trial(make.key(kernel="other")))
    with open_store(url, read_only=True) as store:
        chosen = choose(Index(store, shipped=shipped), make.key())
        assert (chosen.config, chosen.tier) == ({"from": "package"}, "exact")
        assert chosen.reason.endswith("(shipped in h200.jsonl)")
        assert [trial.key.kernel.name for trial in store.trials()] == ["other"], "nothing was written"


def test_without_any_database(tmp_path: Path, make: Any, shipped: Path) -> None:
    with open_store(tmp_path / "none.sqlite3", read_only=True) as store:
        assert choose(Index(store, shipped=shipped), make.key()).config == {"from": "package"}
    assert not (tmp_path / "none.sqlite3").exists()


def test_importing_the_shipped_file_does_not_double_it(url: str, make: Any, shipped: Path) -> None:
    with open_store(url) as store:
        assert [store.import_jsonl(shipped / "h200.jsonl") for _ in range(2)] == [1, 0]
        index = Index(store, shipped=shipped)
        assert [(group.source, len(group.candidates)) for group in index.groups(make.key())] == [("", 1)]
        assert "shipped" not in choose(index, make.key()).reason


def test_they_are_no_part_of_an_export(tmp_path: Path, make: Any, shipped: Path) -> None:
    with open_store("sqlite://") as store:
        assert choose(Index(store, shipped=shipped), make.key()).config == {"from": "package"}
        assert store.export_jsonl(tmp_path / "out.jsonl") == 0


@pytest.mark.slow
def test_a_newer_version_of_the_package_replaces_them(make: Any, tmp_path: Path, shipped: Path) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(shipped, newer)
    jsonl.write(Bundle(runs=[make.run], trials=[make.trial(config={"from": "newer"})]), newer / "h200.jsonl")
    with open_store("sqlite://") as store:
        assert choose(Index(store, shipped=shipped), make.key()).config == {"from": "package"}
        assert choose(Index(store, shipped=newer), make.key()).config == {"from": "newer"}


def test_other_devices_get_them_only_by_architecture_and_vendor(make: Any, shipped: Path) -> None:
    index = Index(shipped=shipped)
    h100, b200 = make.key(name="H100"), make.key(name="B200", architecture="sm_100")
    assert [choose(index, key).tier for key in (h100, b200)] == ["architecture", "vendor"]
    for device in (CPU, {**CPU, "vendor": "NVIDIA"}, {"backend": "opencl"}, {"vendor": "AMD", "architecture": "gfx"}):
        assert choose(index, make.key(**device)).config == {"from": "default"}


def test_explain_names_the_file(make: Any, shipped: Path) -> None:
    wanted = make.key(driver="590")
    with open_store("sqlite://") as store:
        (near,) = nearest(parts(wanted), Index(store, shipped=shipped).groups(wanted))
    assert (near.group.source, near.configurations) == ("h200.jsonl", 1)


def test_the_packages_own_files_can_be_read_and_hold_no_processor() -> None:
    """Processors differ too much under one name for another machine's records to be a help."""
    for path in [*SHIPPED.glob("*.jsonl"), *SHIPPED.glob("*.jsonl.gz")]:
        bundle = jsonl.read(path)
        assert bundle.trials, path.name
        assert {trial.key.device.kind for trial in bundle.trials} == {"gpu"}, path.name


@pytest.mark.parametrize("name", ["nvidia-h200.jsonl", "nvidia-h200.jsonl.gz"])
def test_they_go_into_the_wheel(name: str) -> None:
    """The build takes every file of the package that git does not ignore."""
    if not (PACKAGE.parent / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    asked = subprocess.run(["git", "check-ignore", "-q", f"mmsbgen/db/shipped/{name}"], cwd=PACKAGE.parent, check=False)
    assert asked.returncode == 1
