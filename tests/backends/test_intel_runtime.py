"""Registering the CPU runtime of the package index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmsbgen.backends.opencl import intel_runtime


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> Path:
    """A library that seems to be there, companions that load, and one platform of the system."""
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "pocl.icd").write_text("libpocl.so.2\n")
    (vendors / "broken.icd").write_text("/nowhere/lib.so\n")
    monkeypatch.setattr(intel_runtime, "SYSTEM_VENDORS", vendors)
    library = tmp_path / "lib" / intel_runtime.LIBRARY
    monkeypatch.setattr(intel_runtime, "find_library", lambda: library)
    monkeypatch.setattr(intel_runtime, "_load_globally", lambda path: True)
    monkeypatch.setattr("sys.platform", "linux")
    # Set and deleted, so that what prepare() sets is undone afterwards.
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return library


def test_lists_the_runtime_beside_the_platforms_of_the_system(runtime: Path, private_cache: Path) -> None:
    assert intel_runtime.prepare() == []
    folder = Path(os.environ["OCL_ICD_VENDORS"])
    assert folder.is_relative_to(private_cache)
    assert {path.name: path.read_text().strip() for path in folder.iterdir()} == {
        "mmsbgen-intel-cpu.icd": str(runtime),
        "pocl.icd": "libpocl.so.2",
    }
    assert [path.name for path in (private_cache / "mmsbgen").iterdir()] == [folder.name]


def test_is_the_same_folder_the_next_time(runtime: Path) -> None:
    intel_runtime.prepare()
    first = os.environ.pop("OCL_ICD_VENDORS")
    intel_runtime.prepare()
    assert os.environ["OCL_ICD_VENDORS"] == first


@pytest.mark.parametrize("name", ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"])
def test_respects_what_the_user_set(runtime: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/mine")
    assert intel_runtime.prepare() == []
    assert os.environ[name] == "/mine"
    assert ("OCL_ICD_VENDORS" in os.environ) == (name == "OCL_ICD_VENDORS")


def test_adds_nothing_where_the_system_lists_it(runtime: Path) -> None:
    runtime.parent.mkdir()
    runtime.touch()
    (intel_runtime.SYSTEM_VENDORS / "intel.icd").write_text(str(runtime))
    assert intel_runtime.prepare() == []
    assert "OCL_ICD_VENDORS" not in os.environ


def test_says_which_libraries_are_missing(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intel_runtime, "_load_globally", lambda path: path.name != "libsvml.so")
    (hint,) = intel_runtime.prepare()
    assert "libsvml.so" in hint
    assert "pip install intel-opencl-rt intel-cmplr-lib-rt" in hint


def test_does_nothing_without_the_runtime(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intel_runtime, "find_library", lambda: None)
    assert intel_runtime.prepare() == []
    assert "OCL_ICD_VENDORS" not in os.environ


def test_a_cache_that_cannot_be_written(runtime: Path, private_cache: Path) -> None:
    private_cache.write_text("a file, not a folder")
    assert intel_runtime.prepare() == []
    assert (Path(os.environ["OCL_ICD_VENDORS"]) / "pocl.icd").exists()
