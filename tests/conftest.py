"""What all tests share: devices, a private data folder, and the flag that renews golden files."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from mmsbgen.backends import Device, open_device
from mmsbgen.errors import InputError

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}

# One state of the code gets one verdict in CI; locally the examples are new each time, so that they find more.
settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None)
settings.load_profile("ci" if IN_CI else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the rendered kernels under tests/golden")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session", autouse=True)
def _private_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests, and processes that they start, away from the user's tuning database and runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CACHE_HOME", str(_cache_with_locks_of_its_own(tmp_path_factory.mktemp("cache"))))
        patch.delenv("MMSBGEN_DATABASE_URL", raising=False)
        yield


def _cache_with_locks_of_its_own(cache: Path) -> Path:
    """A cache folder that shares with the user's what was compiled, but not the locks of devices."""
    import platformdirs

    users = platformdirs.user_cache_path()
    with contextlib.suppress(OSError):
        for name in ("pocl", "mmsbgen/kernels"):
            (users / name).mkdir(parents=True, exist_ok=True)
        (cache / "mmsbgen").mkdir()
        for entry in (*users.iterdir(), *(users / "mmsbgen").iterdir()):
            if entry not in (users / "mmsbgen", users / "mmsbgen" / "locks"):
                (cache / entry.relative_to(users)).symlink_to(entry)
    return cache


def open_or_skip(name: str) -> Device:
    """Open a device; where it is missing, skip the test, or fail it in CI."""
    try:
        return open_device(name)
    except InputError as error:
        expected_here = name == "pocl" or platform.machine() == "x86_64"
        if IN_CI and expected_here:
            pytest.fail(f"CI needs the OpenCL platform {name!r}: {error}")
        pytest.skip(f"no OpenCL platform {name!r} here")


@pytest.fixture(scope="session", params=[pytest.param(name, marks=pytest.mark.opencl) for name in ("pocl", "intel")])
def opencl_device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each OpenCL platform for processors in turn, opened once."""
    with open_or_skip(request.param) as device:
        yield device


@pytest.fixture(scope="session")
def pocl_device() -> Iterator[Device]:
    """PoCL alone; mark the test with ``opencl``."""
    with open_or_skip("pocl") as device:
        yield device


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for this test and the processes that it starts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def cuda_device() -> Iterator[Device]:
    """The first CUDA device, on machines that have one."""
    try:
        opened = open_device("cuda:0")
    except InputError as error:
        pytest.skip(f"no CUDA device here: {error}")
    with opened as device:
        yield device
