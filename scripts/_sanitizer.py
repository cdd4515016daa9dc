"""NVIDIA's compute-sanitizer over a small program, and what it said in one word."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TOOLS = ("memcheck", "racecheck")
_PROGRAM = Path(__file__).with_name("_sanitized.py")
_FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (.*)")
_COUNTS = re.compile(r"(\d+) errors?\b(?:, (\d+) warnings?)?")
_SHOWN = 60


class Verdict(NamedTuple):
    """``verdict`` is clean, errors, "wrong answers", "not finished" or "did not run"; only the first is a success."""

    tool: str
    verdict: str
    summary: str
    launches: int
    lines: list[str]

    @property
    def failed(self) -> bool:
        return self.verdict != "clean"


def find_sanitizer() -> str | None:
    """The path of compute-sanitizer, from the PATH or where the CUDA toolkit usually is."""
    homes = [os.path.join(os.environ[name], "bin") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = os.pathsep.join([*homes, *_FOLDERS])
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=folders)


def sanitize(path: str, tool: str, device: str, seconds: float, ks: tuple[int, ...] = ()) -> Verdict:
    """Run the program under one tool, for at most ``seconds``."""
    program = [sys.executable, "-u", str(_PROGRAM), device, *map(str, ks)]
    command = [path, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20", *program]
    try:
        # A session of its own: the program is the tool's child, and has to end with it.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
    except OSError as error:
        return Verdict(tool, "did not run", str(error), 0, [])
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return verdict_of(tool, said, None, seconds)
    return verdict_of(tool, said, process.returncode, seconds)


def verdict_of(tool: str, said: str, status: int | None, seconds: float) -> Verdict:
    """What the output of a run means; ``status`` None is a run that was cut off after ``seconds``."""
    lines = said.splitlines()
    launches = sum(line.startswith(("ok ", "wrong ")) for line in lines)
    found = _SUMMARY.findall(said)
    told = [line for line in lines if line.startswith(("=====", "wrong "))][:_SHOWN]
    if status is None:
        return Verdict(tool, "not finished", f"cut off after {seconds:g} s", launches, told)
    if not found or not launches:
        return Verdict(tool, "did not run", f"status {status}", launches, lines[-_SHOWN:])
    counts = _COUNTS.search(found[-1])
    if counts is None or int(counts[1]) > 0 or status == 9:
        return Verdict(tool, "errors", found[-1], launches, told)
    if status != 0:
        return Verdict(tool, "wrong answers", f"{found[-1]}, status {status}", launches, told)
    return Verdict(tool, "clean", found[-1], launches, [])
