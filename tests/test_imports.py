"""What importing costs: no GPU library, and little else, before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
def test_the_command_line_does_not_wait_for_what_igraph_could_draw_with() -> None:
    loaded = loaded_by(
        "from mmsbgen.sampler.starts.igraph_import import import_without_pictures as do; do(); import igraph"
    )
    assert "igraph" in loaded
    assert "matplotlib" not in loaded
    loaded = loaded_by(
        "import matplotlib; from mmsbgen.sampler.starts.igraph_import import import_without_pictures as do; do()"
    )
    assert "matplotlib" in loaded
    assert "igraph" not in loaded
    assert "igraph" not in loaded_by(
        "import mmsbgen.detection.detect, mmsbgen.sampler.starts.start_methods, mmsbgen.sampler.run.refine"
    )


def test_public_names_stay_what_they_are_whatever_is_imported() -> None:
    """A module of a public function's name would take its place in the package once it is imported."""
    import pkgutil

    import mmsbgen

    modules = {module.name for module in pkgutil.iter_modules(mmsbgen.__path__)}
    assert not modules & set(mmsbgen.__all__)
