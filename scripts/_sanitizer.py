"""NVIDIA's compute-sanitizer over a small program: what it said in one word, and what it was run over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from _child import run_for

TOOLS = ("memcheck", "racecheck")
_PROGRAM = Path(__file__).with_name("_sanitized.py")
_FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (.*)")
_RUN = re.compile(r"(?:ok|wrong) ([^:]+): ")
_COUNTS = re.compile(r"(\d+) errors?\b(?:, (\d+) warnings?)?")
_SHOWN = 60


class Verdict(NamedTuple):
    """``verdict`` is clean, errors, "wrong answers", "not finished" or "did not run"; only the first is a success.

    ``counts`` are configurations and chains that were run, by group; ``skipped`` has what the device cannot run.
    """

    tool: str
    verdict: str
    summary: str
    counts: dict[str, int]
    skipped: list[str]
    lines: list[str]
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.verdict != "clean"


def find_sanitizer() -> str | None:
    """The path of compute-sanitizer, from the PATH or where the CUDA toolkit usually is."""
    homes = [os.path.join(os.environ[name], "bin") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = os.pathsep.join([*homes, *_FOLDERS])
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=folders)


def sanitize(path: str, tool: str, device: str, seconds: float, ks: tuple[int, ...] = ()) -> Verdict:
    """Run the program under one tool, for at most ``seconds``; :func:`compile_first` saves most of them."""
    command = [path, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20", *_program(device, ks)]
    begin = time.monotonic()
    try:
        # The program is the tool's child, and has to end with it.
        said, status = run_for(seconds, command, subprocess.STDOUT)
    except OSError as error:
        return Verdict(tool, "did not run", str(error), {}, [], [])
    found = verdict_of(tool, said, status, seconds)
    return found if status is None else found._replace(seconds=time.monotonic() - begin)


def compile_first(device: str, seconds: float, ks: tuple[int, ...] = ()) -> None:
    """Run the program by itself, for at most ``seconds``, so that its kernels are in the cache of binaries.

    The tools watch every process that is started under them, and compilers are hundreds.
    """
    run_for(seconds, _program(device, ks), subprocess.DEVNULL)


def _program(device: str, ks: tuple[int, ...]) -> list[str]:
    return [sys.executable, "-u", str(_PROGRAM), device, *map(str, ks)]


def verdict_of(tool: str, said: str, status: int | None, seconds: float) -> Verdict:
    """What the output of a run means; ``status`` None is a run that was cut off after ``seconds``."""
    lines = said.splitlines()
    counts = dict(Counter(match[1] for match in map(_RUN.match, lines) if match))
    skipped = [line.removeprefix("skipped ") for line in lines if line.startswith("skipped ")]
    found = _SUMMARY.findall(said)
    told = [line for line in lines if line.startswith(("=====", "wrong "))][:_SHOWN]

    def verdict(word: str, summary: str, shown: list[str]) -> Verdict:
        return Verdict(tool, word, summary, counts, skipped, shown, seconds)

    if status is None:
        return verdict("not finished", f"cut off after {seconds:g} s", told)
    if not found or not counts:
        return verdict("did not run", f"status {status}", lines[-_SHOWN:])
    errors = _COUNTS.search(found[-1])
    if errors is None or int(errors[1]) > 0 or status == 9:
        return verdict("errors", found[-1], told)
    if status != 0:
        return verdict("wrong answers", f"{found[-1]}, status {status}", told)
    return verdict("clean", found[-1], [])
