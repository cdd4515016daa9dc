"""Reports of benchmarks in markdown and JSON, with the facts of the machine."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.version import __version__

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "docs" / "reports"


class Report:
    """A report under construction: markdown for readers, and the same numbers as JSON.

    ``behind`` says what the numbers behind ± are, and is empty where there are none.
    """

    def __init__(self, title: str, intro: str, behind: str = "distances between quartiles") -> None:
        self.behind = behind
        self.lines = [f"# {title}", "", intro, ""]
        self.data: dict[str, Any] = {"title": title, "environment": environment()}
        self.devices: list[DeviceInfo] = []

    def text(self, *lines: str) -> None:
        """A paragraph or a heading."""
        self.lines += [*lines, ""]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; the first column is text, the others numbers."""
        self.lines += markdown_table(head, rows)
        self.lines.append("")

    def write(self, name: str, folder: Path = REPORTS) -> None:
        """Write ``name``.md and ``name``.json into ``folder`` and print the markdown."""
        facts = self.data["environment"]
        facts["load_end"] = [round(x, 2) for x in os.getloadavg()]
        facts["devices"] = [info.as_dict() | {"extensions": []} for info in self.devices]
        about = [
            "## How it was measured",
            "",
            f"- command: `{facts['command']}`",
            f"- date: {facts['date']}, revision {facts['revision']}, mmsbgen {__version__}",
            f"- machine: {facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
            f"- load: {facts['load_begin'][0]} to {facts['load_end'][0]}",
            *(
                f"- device: {i.name} ({i.platform}), driver {i.driver}, compiler {i.compiler}, {i.compute_units} units"
                for i in self.devices
            ),
            f"- Python {facts['python']}, NumPy {facts['numpy']}",
            *([f"- ±: {self.behind}"] if self.behind else []),
        ]
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join([*self.lines, *about, ""])
        (folder / f"{name}.md").write_text(text)
        data = json.dumps(finite(self.data), indent=1, default=str, allow_nan=False)
        (folder / f"{name}.json").write_text(data + "\n")
        print(text)


def finite(value: Any) -> Any:
    """Data as JSON has it, which knows no infinity and no NaN: None in their place, at any depth."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a markdown table, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def save_svg(figure: Any, path: Path) -> None:
    """Write a figure that was drawn within :func:`mmsbgen.report.style.drawing`; the same one gives the same bytes."""
    import matplotlib

    from mmsbgen.report.style import drawing

    with drawing(), matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})


def environment() -> dict[str, Any]:
    """The machine, the versions and the command of this process."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    script = Path(sys.argv[0]).resolve()
    shown = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script
    return {
        "command": shlex.join(["python", str(shown), *(Path(a).name if "/" in a else a for a in sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": git.stdout.strip() or "unknown",
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_begin": [round(x, 2) for x in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def processor() -> str:
    """The processor's name, as the kernel tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
