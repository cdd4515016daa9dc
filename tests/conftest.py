"""What all tests share: devices, databases, a private data folder, golden files, and who runs beside whom."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import InputError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}

# One state of the code gets one verdict in CI; locally the examples are new each time, so that they find more.
settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None)
settings.register_profile("local", settings.get_profile("default"), deadline=None)  # other tests have the cores too
settings.load_profile("ci" if IN_CI else "local")

MOST_PROCESSES = 4
"""That run tests at once, one more than cores, as tests also wait: each may hold a gigabyte."""

MARKED_BY_FIXTURE = {
    "opencl_device": "opencl",
    "pocl_device": "opencl",
    "processor": "opencl",
    "cuda_device": "cuda",
    "postgres_programs": "postgres",
}
"""Markers that a test gets for a fixture, whether it asks for it itself or through another fixture."""

NOT_QUICK = {"opencl", "cuda", "postgres", "browser", "slow", "alone"}
"""A test with one of these markers is left out of the quick part, unless it is marked smoke."""

MOST_QUICK_S = 1.5
"""Processor seconds of a test in the quick part: three times what makes it slow, for slower and for busy machines."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the rendered kernels under tests/golden")
    parser.addoption(
        "--part",
        choices=("quick", "together", "alone"),
        help="only quick tests that need no device, server or browser, only the tests that may run beside others, "
        "or only those marked alone (default: all)",
    )


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A process takes the tests of one file on one device, so that what they share is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFileAndDevice(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False
    return ByFileAndDevice(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from looking at what importing all tests makes, millions of objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which nothing runs alone are not imported for that part, which takes longer than many of its tests."""
    if config.getoption("--part") != "alone" or collection_path.suffix != ".py":
        return None
    return True if b"mark.alone" not in collection_path.read_bytes() else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the fixtures that it uses."""
    for name in getattr(item, "fixturenames", ()):
        if name in MARKED_BY_FIXTURE:
            item.add_marker(MARKED_BY_FIXTURE[name])


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Keep the part that is asked for; where several processes take tests, begin with files of many slow tests."""
    if part := config.getoption("--part"):
        others = [item for item in items if not _belongs(item, part)]
        items[:] = [item for item in items if _belongs(item, part)]
        config.hook.pytest_deselected(items=others)
    yield
    if hasattr(config, "workerinput"):
        slow = Counter(_group(item.nodeid) for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: (-slow[_group(item.nodeid)], _group(item.nodeid).partition(" ")[2]))


def _belongs(item: pytest.Item, part: str) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    if part == "quick":
        return "smoke" in marks or not marks & NOT_QUICK
    return ("alone" in marks) == (part == "alone")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Reports go between processes as UTF-8, and logs of names of files may be no such text."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of the quick part that takes long.

    The processor time of this process and of its children is measured, not the time on the clock, which depends on
    what else the machine does.
    """
    begin = sum(os.times()[:4])
    yield
    spent = sum(os.times()[:4]) - begin
    quick = item.config.getoption("--part") == "quick" and not item.get_closest_marker("smoke")
    if quick and spent > MOST_QUICK_S:
        pytest.fail(f"took {spent:.1f} s of processor time: mark it slow, or make it take under 0.5 s")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have told, whichever process ran them."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, text in report.user_properties:
                    if name == "told":
                        terminalreporter.write_line(text)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Put a line under the run's summary, whatever becomes of the test."""
    return lambda text: record_property("told", text)


def _group(nodeid: str) -> str:
    """The file of a test, and the platform that it runs on where it is one of several."""
    file, _, rest = nodeid.partition("::")
    platforms = re.search(r"(?:\[|-)(pocl|intel|cuda:0)(?:-|\])", rest)
    return f"{file} {platforms[1] if platforms else ''}"


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
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in [name for name in os.environ if name.startswith("MMSBGEN_")]:
            patch.delenv(name)
        # xdist and terminals set it; tables without a terminal have a width of their own.
        patch.delenv("COLUMNS", raising=False)
        yield


def _cache_with_locks_of_its_own(cache: Path) -> Path:
    """A cache folder that shares with the user's what was compiled, but not the locks of devices."""
    import platformdirs

    users = platformdirs.user_cache_path()
    with contextlib.suppress(OSError):
        for name in ("pocl", "mmsbgen/kernels", "mmsbgen/templates"):
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
    """PoCL alone."""
    with open_or_skip("pocl") as device:
        yield device


@pytest.fixture(scope="session")
def processor() -> Iterator[Device]:
    """One OpenCL platform, for checks of Python code: Intel's, which compiles in half the time, else PoCL."""
    try:
        opened = open_device("intel")
    except InputError:
        opened = open_or_skip("pocl")
    with opened as device:
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


@pytest.fixture(scope="session")
def postgres_programs() -> Path:
    """The folder of PostgreSQL's server programs."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) or [Path(shutil.which("pg_ctl") or "missing")]
    program = programs[-1]
    if not program.exists():
        message = "PostgreSQL server programs (initdb, pg_ctl) are missing: apt-get install postgresql"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)
    return program.parent


@pytest.fixture(scope="session")
def nginx_program() -> str:
    """The path of nginx."""
    from tests.service.proxy import nginx  # imports what few tests need

    found = nginx()
    if found is None:
        message = "nginx is missing: apt-get install nginx-light"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def postgres_server(postgres_programs: Path) -> Iterator[str]:
    """The URL of a PostgreSQL server of our own, without a database name."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    prefix: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        prefix = ["runuser", "-u", "postgres", "--"]
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(name: str, *arguments: str) -> None:
        command = [*prefix, str(postgres_programs / name), "-D", str(folder / "data"), *arguments]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode:
            log = folder / "log"
            pytest.fail(f"{name} failed: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}")

    options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off -c full_page_writes=off"
    try:
        call("initdb", "-U", "tester", "--auth=trust", "--encoding=UTF8", "--no-sync")
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}"
        finally:
            call("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a new, empty database."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"{postgres_server}/{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a new database, on each kind of server."""
    if request.param == "sqlite":
        return str(tmp_path / "tuning.sqlite3")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of a file; while it is open, ``asyncio.run`` fails on this thread."""
    from playwright.sync_api import expect, sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        message = "no Chromium here: apt install chromium"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=30_000)  # milliseconds; five seconds are short where other tests have the cores
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()
