"""Registers the Intel CPU runtime for OpenCL from PyPI in addition to the system's platforms.

The wheel ``intel-opencl-rt`` registers itself with a path that does not exist, and lacks libraries that are in
``intel-cmplr-lib-rt``.  So this module finds its library and loads the missing libraries first.  It then points the
OpenCL loader to a vendor folder of our own, which lists the runtime and the platforms of the system.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from pathlib import Path

from mmsbgen.base.atomic_files import write_text
from mmsbgen.base.errors import InputError

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
LIBRARY = "libintelocl.so"
COMPANIONS = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so")
ADVICE = "pip install intel-opencl-rt intel-cmplr-lib-rt"


def prepare() -> list[str]:
    """Register the Intel CPU runtime with the OpenCL loader; call it before PyOpenCL is imported.

    Registers nothing if the user has set ``OCL_ICD_VENDORS`` or ``OCL_ICD_FILENAMES``, or if the system already lists
    this runtime.

    Returns:
        Hints if the runtime is installed but cannot be used.  Never raises.
    """
    library = find_library()
    if library is None or not sys.platform.startswith("linux"):
        return []
    if missing := [name for name in COMPANIONS if not _load_globally(library.parent / name)]:
        return [f"Intel's CPU runtime for OpenCL lacks {', '.join(missing)}: {ADVICE}"]
    if "OCL_ICD_VENDORS" in os.environ or "OCL_ICD_FILENAMES" in os.environ:
        return []
    system = read_vendors(SYSTEM_VENDORS)
    if any(LIBRARY in text for text in system.values()):
        return []
    try:
        folder = write_vendors({**system, "mmsbgen-intel-cpu.icd": f"{library}\n"})
    except OSError as error:
        return [f"Intel's CPU runtime for OpenCL could not be registered: {error}"]
    os.environ["OCL_ICD_VENDORS"] = f"{folder}{os.sep}"
    return []


def find_library() -> Path | None:
    """Return the runtime's library in this environment, or None."""
    candidates = [Path(sys.prefix, "lib", LIBRARY)]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.files("intel-opencl-rt") or []
        candidates += [Path(str(file.locate())) for file in files if file.name == LIBRARY]
    return next((path.resolve().parent / LIBRARY for path in candidates if path.exists()), None)


def read_vendors(folder: Path) -> dict[str, str]:
    """Return file name and text of every registered platform, except those whose library does not exist."""
    entries = {}
    for path in sorted(folder.glob("*.icd")) if folder.is_dir() else []:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = path.read_text()
            library = text.strip()
            if library and (not library.startswith("/") or Path(library).exists()):
                entries[path.name] = text
    return entries


def write_vendors(entries: dict[str, str]) -> Path:
    """Return a folder with these files: in the user's cache, else one that is deleted at exit.

    The folder in the cache is named by a digest of its content, so that all who write a file write the same.
    """
    import platformdirs

    digest = hashlib.sha256(repr(sorted(entries.items())).encode()).hexdigest()[:16]
    folder = platformdirs.user_cache_path("mmsbgen") / f"opencl-vendors-{digest}"
    try:
        for name, text in entries.items():
            if not (folder / name).is_file() or (folder / name).read_text() != text:
                write_text(folder / name, text)
    except (InputError, OSError, UnicodeDecodeError):
        folder = Path(tempfile.mkdtemp(prefix="mmsbgen-opencl-vendors-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, text in entries.items():
            (folder / name).write_text(text)
    return folder


def _load_globally(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True
