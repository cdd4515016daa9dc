"""What importing costs: no GPU library, and little else, before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices import PROCESSOR

GPU = {"pyopencl", "pycuda", "cuda", "cupy"}
HEAVY = {
    "numpy",
    "scipy",
    "pandas",
    "sqlalchemy",
    "alembic",
    "jinja2",
    "rich",
    "kernel_tuner",
    "matplotlib",
    "networkx",
}


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running code that may print and exit."""
    script = (
        "import contextlib, io, sys\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    exec({code!r})\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import mmsbgen",
        "import mmsbgen.backends",
        "import mmsbgen.backends.nvidia.cuda_device, mmsbgen.backends.nvidia.cuda_compile",
        "import mmsbgen.backends.fake, mmsbgen.backends.opencl.opencl_device",
        "import mmsbgen.cli",
    ],
)
def test_importing_loads_no_gpu_library(code: str) -> None:
    assert not loaded_by(code) & GPU


@pytest.mark.parametrize(
    "code",
    [
        "import mmsbgen",
        "from mmsbgen.cli import main; main(['--help'])",
        "from mmsbgen.cli import main; main(['--version'])",
    ],
)
def test_help_is_light(code: str) -> None:
    assert not loaded_by(code) & (HEAVY | GPU)


@pytest.mark.slow
def test_the_command_line_does_not_wait_for_optional_libraries_of_networkit() -> None:
    unused = {"matplotlib", "networkx", "pandas", "sklearn"}
    importing = "from mmsbgen.base import libraries; libraries.import_lightly(); libraries.networkit()"
    loaded = loaded_by(importing)
    assert "networkit" in loaded
    assert not loaded & unused
    loaded = loaded_by(f"import pandas; {importing}; import networkx")
    assert {"networkit", "networkx", "pandas"} <= loaded
    assert "networkit" not in loaded_by(
        "import mmsbgen.detection.detect, mmsbgen.sampler.starts.start_methods, mmsbgen.sampler.run.refine"
    )


@pytest.mark.slow
def test_a_run_without_a_tuning_database_does_not_wait_for_sqlalchemy(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MMSBGEN_DATABASE_URL", raising=False)
    graph = Path(__file__).parent / "data" / "netscience.txt.gz"
    command = ["detect", str(graph), "-k", "5", "-n", "2", "--device", PROCESSOR]
    assert "sqlalchemy" not in loaded_by(f"from mmsbgen.cli import main; main({[*command, '-o', str(tmp_path / 'a')]})")
    tuned = [*command, "--database", f"{tmp_path}/tuned.sqlite3", "-o", str(tmp_path / "b")]
    assert "sqlalchemy" in loaded_by(f"from mmsbgen.cli import main; main({tuned})")
    # Nor does a worker's child before it has a job.
    assert "sqlalchemy" not in loaded_by("import mmsbgen.jobs.worker.job_process")
    assert (tmp_path / "a" / "communities.txt").read_text() == (tmp_path / "b" / "communities.txt").read_text()


@pytest.mark.slow
def test_the_engine_needs_no_library_under_the_gpl() -> None:
    """GML, Pajek and conversions need igraph; a run does not."""
    ring = "[(i, (i + j) % 30) for i in range(30) for j in (1, 2)]"
    loaded = loaded_by(
        "import sys; sys.modules['igraph'] = None; import mmsbgen\n"
        f"found = mmsbgen.detect({ring}, device={PROCESSOR!r}, random_state=1, iterations=20)\n"
        "sys.modules['found'] = found; del sys.modules['igraph']"
    )
    assert {"found", "networkit"} <= loaded
    assert "igraph" not in loaded


def test_public_names_stay_what_they_are_whatever_is_imported() -> None:
    """A module of a public function's name would take its place in the package once it is imported."""
    import pkgutil

    import mmsbgen

    modules = {module.name for module in pkgutil.iter_modules(mmsbgen.__path__)}
    assert not modules & set(mmsbgen.__all__)
