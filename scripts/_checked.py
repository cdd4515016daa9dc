"""What has been checked: a fingerprint for each check, and reports from which a later run goes on."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
from _closure import digest
from _variant_worker import Result
from _variants import Variant

from mmsbgen.kernels.build import check_built, compiler_options
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits

#: Of a fingerprint: in a row of 3000, one check in a million that was not made is taken for one that was.
BYTES = 4
#: A machine may have had no time, and a device that others use too no memory left.
NO_ANSWER = frozenset(["timeout", "launch_error", "no_memory"])
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


class Fingerprints:
    """Numbers that stay the same as long as a check would do the same: source, launch, inputs, reference, tolerance.

    Of the source comments do not count, and of the code around the kernel neither comments nor docstrings.  Device,
    driver and compiler are not in them: a report has those of one.
    """

    def __init__(self, kernels: KernelFamily, traits: Traits) -> None:
        self.kernels = kernels
        self.traits = traits
        self._judge = cache(self._judged)

    def of(self, variant: Variant) -> int:
        """The fingerprint of the check of a valid variant, an integer of :data:`BYTES` bytes."""
        spec = self.kernels.kernel(variant.kernel)
        problem = spec.check_problem(self.kernels.problem(**variant.problem))
        text = render(spec, problem, variant.config, self.traits).text
        launches = [repr(spec.launch(problem, variant.config, count, self.traits)) for count in (1, 1000)]
        parts = [variant.key, bare(text), *launches, *compiler_options(self.traits), self._judge(variant.kernel)]
        return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:BYTES], "big")

    def _judged(self, kernel: str) -> str:
        spec = self.kernels.kernel(kernel)
        return digest([spec.workload, spec.check_problem, check_built], "mmsbgen")


def bare(source: str) -> str:
    """A kernel's source without comments, indentation and blank lines; unchanged if it has a string."""
    if '"' in source:
        return source
    lines = (" ".join(line.split()) for line in _COMMENT.sub(" ", source).splitlines())
    return "\n".join(line for line in lines if line)


def pack(values: Collection[int]) -> str:
    """A set of fingerprints as text: sorted, as differences, byte by byte, compressed."""
    ordered = np.array(sorted(values), dtype="<u8")
    differences = np.diff(ordered, prepend=np.uint64(0)).astype("<u8")
    columns = differences.view(np.uint8).reshape(-1, 8)[:, :BYTES].T
    return base64.b85encode(zlib.compress(columns.tobytes(), 9)).decode()


def unpack(text: str) -> set[int]:
    """What :func:`pack` took; raises ValueError for what is no such text."""
    try:
        columns = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.uint8).reshape(BYTES, -1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    padded = np.zeros((columns.shape[1], 8), np.uint8)
    padded[:, :BYTES] = columns.T
    return {int(value) for value in np.cumsum(padded.view("<u8").ravel(), dtype=np.uint64)}


class Checked:
    """Fingerprints of what was checked by row of the report, the time it took, and what failed.

    ``rounds`` is how many there were, which a later run does not undercut.
    """

    def __init__(self) -> None:
        self.known: dict[str, set[int]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failures: dict[int, dict[str, Any]] = {}
        self.rounds = 1

    @property
    def count(self) -> int:
        """How many checks were made."""
        return sum(map(len, self.known.values()))

    def add(self, record: Mapping[str, Any]) -> None:
        """One result, as a line of the journal has it.  What gave no answer is told and yet tried again."""
        group, fingerprint = record["group"], record["fingerprint"]
        if fingerprint in self.known[group]:
            return
        self.seconds[group] += record["seconds"]
        self.failures.pop(fingerprint, None)
        if record["status"] not in NO_ANSWER:
            self.known[group].add(fingerprint)
        if record["status"] != "ok":
            self.failures[fingerprint] = dict(record)

    def only(self, asked: Mapping[str, Collection[int]]) -> Checked:
        """What of it is among the fingerprints asked for; of the time in a row as large a part."""
        kept = Checked()
        for group, fingerprints in asked.items():
            kept.known[group] = self.known[group].intersection(fingerprints)
            share = len(kept.known[group]) / max(1, len(self.known[group]))
            kept.seconds[group] = self.seconds[group] * share
        among = {fingerprint for fingerprints in asked.values() for fingerprint in fingerprints}
        kept.failures = {number: record for number, record in self.failures.items() if number in among}
        return kept


def from_report(path: Path, toolchain: Mapping[str, str]) -> tuple[Checked, str]:
    """What a report has of this device, driver and compiler, and a sentence for the reader.

    Raises :class:`click.UsageError` for a file that is no such report.
    """
    checked = Checked()
    try:
        report = json.loads(path.read_text())
        theirs = {name: report["about"][name] for name in toolchain}
        if theirs != toolchain:
            other = ", ".join(f"{name} {theirs[name]!r}" for name in toolchain if theirs[name] != toolchain[name])
            return checked, f"{path.name} is of another {other}: nothing of it counts here"
        if not all("known" in row for row in report["rows"]):
            return checked, f"{path.name} does not say which configurations were checked: nothing of it counts"
        for row in report["rows"]:
            checked.known[row["group"]] = unpack(row["known"])
            checked.seconds[row["group"]] = float(row["seconds"])
        checked.rounds = int(report["about"]["rounds"])
        checked.failures = {record["fingerprint"]: record for record in report["failures"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f"{path} is no report of this script ({type(error).__name__}: {error}); "
            f"name another with --resume-from, or remove it to begin anew"
        ) from error
    return checked, f"{path.name}: {checked.count} results"


class Journal:
    """Results as they come, one JSON line each, of one device, driver and compiler."""

    def __init__(self, path: Path, toolchain: Mapping[str, str]) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        text = path.read_text() if path.exists() else ""
        head, *lines = map(_whole, text.splitlines() or [""])
        if head == toolchain:
            self.records = [record for record in lines if record is not None]
            if not text.endswith("\n"):
                path.write_text(text + "\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(toolchain) + "\n")

    def add(self, variant: Variant, fingerprint: int, result: Result) -> dict[str, Any]:
        """Keep one result on disk, and return its record."""
        record = {"key": variant.key, "group": variant.group, "fingerprint": fingerprint, **result._asdict()}
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")
        return record


def _whole(line: str) -> dict[str, Any] | None:
    """A line's record, or None for one that was cut off as it was written."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
