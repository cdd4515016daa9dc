"""Compile ``baseline.c`` for a type and its flags."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from mmsbgen.base.errors import CompileError, MissingDependencyError
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR, FLOOR, Z_FLOOR, Purpose

SOURCE = Path(__file__).parent / "baseline.c"
#: What every speed-up's denominator is compiled with: no instructions beyond the platform's own, strict arithmetic.
FLAGS = ("-O3",)
_ALWAYS = ("-std=c11", "-shared", "-fPIC")
_C_TYPES = {"float32": "float", "float64": "double"}


def compiler() -> str:
    """The C compiler: what ``CC`` names, else the system's ``cc``.

    Raises :class:`MissingDependencyError` when there is none.
    """
    wanted = os.environ.get("CC") or "cc"
    found = shutil.which(wanted)
    if found is None:
        raise MissingDependencyError(
            f"the C baseline needs a C compiler, and {wanted!r} is not there; install one (Debian: apt install gcc) "
            "or name it by the environment variable CC"
        )
    return found


@functools.cache
def compiler_version() -> str:
    """The first line that the compiler says of itself."""
    done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).partition("\n")[0].strip()


def _definitions(dtype: str) -> list[str]:
    values: dict[str, object] = {
        "REAL": _C_TYPES[dtype],
        "FLOOR": repr(FLOOR),
        "Z_FLOOR": repr(Z_FLOOR),
        "BETA_FLOOR": repr(BETA_FLOOR),
    }
    values |= {
        f"PURPOSE_{name.upper()}": f"{int(Purpose[name])}u" for name in ("partner", "phi_uniform", "theta_normal")
    }
    return [f"-D{name}={value}" for name, value in values.items()]


@functools.cache
def load(dtype: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """The library for ``dtype`` (float32 or float64) and ``flags``, compiled once a process.

    Raises :class:`CompileError` with the compiler's log, and :class:`MissingDependencyError`.
    """
    command = [compiler(), *_ALWAYS, *flags, *_definitions(dtype)]
    with tempfile.TemporaryDirectory(prefix="mmsbgen-baseline-") as folder:
        library = f"{folder}/baseline.so"
        done = subprocess.run(
            [*command, str(SOURCE), "-o", library, "-lm"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CompileError(f"the C baseline does not compile with {' '.join(command)}:\n{done.stderr.strip()}")
        return ctypes.CDLL(library)
