"""Compile ``baseline.c`` once for a type and its flags, and keep the library in the user's cache folder."""

from __future__ import annotations

import ctypes
import functools
import hashlib
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


def _key(command: list[str]) -> str:
    """Digest of source, command and the compiler's predefined macros, which tell its version and its target."""
    macros = subprocess.run([*command, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=False)
    digest = hashlib.sha256(SOURCE.read_bytes())
    for part in ("\0".join(command).encode(), macros.stdout, compiler_version().encode()):
        digest.update(b"\0" + part)
    return digest.hexdigest()[:32]


@functools.cache
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    """Where libraries go when the cache folder cannot be written: gone with this process."""
    return tempfile.TemporaryDirectory(prefix="mmsbgen-baseline-")


def cache_folder() -> Path:
    """The folder of compiled libraries, made when missing; a private one when the user's cannot be written."""
    import platformdirs

    folder = platformdirs.user_cache_path("mmsbgen") / "baseline"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(_private_folder().name)


@functools.cache
def load(dtype: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """The library for ``dtype`` (float32 or float64) and ``flags``, compiled when it is not in the cache.

    A library appears in the cache by a rename, so that processes which start together never load half of one.
    Raises :class:`CompileError` with the compiler's log, and :class:`MissingDependencyError`.
    """
    command = [compiler(), *_ALWAYS, *flags, *_definitions(dtype)]
    target = cache_folder() / f"{_key(command)}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            fresh = Path(work) / "baseline.so"
            done = subprocess.run(
                [*command, str(SOURCE), "-o", str(fresh), "-lm"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise CompileError(f"the C baseline does not compile with {' '.join(command)}:\n{done.stderr.strip()}")
            fresh.replace(target)
    return ctypes.CDLL(str(target))
