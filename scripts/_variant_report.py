"""The page about variants that were checked."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from _variants import Variant

from mmsbgen.base.version import __version__


class Row(NamedTuple):
    """What was checked of a kernel and placement."""

    group: str
    configurations: int
    asked: int
    checked: int
    seconds: float
    failures: list[dict[str, Any]]

    @classmethod
    def of(cls, group: str, variants: Sequence[Variant], results: Sequence[dict[str, Any]]) -> Row:
        """The row of the variants asked for and the results that there are."""
        return cls(
            group,
            len({variant.configuration for variant in variants}),
            len(variants),
            len(results),
            sum(result["seconds"] for result in results),
            [result for result in results if result["status"] != "ok"],
        )


def write_report(path: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write the page."""
    head = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "mmsbgen": __version__, **about}
    head["host"] = f"{platform.system()} {platform.machine()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(as_markdown(head, rows)) + "\n")


def as_markdown(about: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """The lines of the page."""
    seconds, done = sum(row.seconds for row in rows), sum(row.checked for row in rows)
    failures = [failure for row in rows for failure in row.failures]
    once = "once" if about["rounds"] == 1 else f"in {about['rounds']} rounds"
    names = {"Intel(R)": "intel", "Portable": "pocl", "CUDA": "cuda:0"}
    device = names.get(about["platform"].split()[0], about["device"])
    lines = [
        f"# Variants checked on {about['platform']}",
        "",
        "Every configuration is compiled, run on a small problem and compared with the NumPy reference, within the",
        "derived tolerance. Each round takes another of the K and types that it is valid for. Order, step, noise,",
        "partners and n are drawn at random. A result counts as long as program, device, driver and compiler are the",
        f"same. Made by `scripts/check_variants.py --device {device}`.",
        "",
        *(f"- {name}: {value}" for name, value in about.items() if value),
        "",
        f"**{done} of {sum(row.asked for row in rows)} variants checked, every configuration {once}, with the sources "
        f"of {about['date']}, {len(failures)} failures;** {seconds / 3600:.1f} hours of checks altogether"
        + (f", {seconds / done:.2f} s each." if done else "."),
    ]
    short = [row for row in rows if row.checked < row.asked or row.failures]
    if len(short) < len(rows):
        lines += ["", f"Of {len(rows) - len(short)} of {len(rows)} kernels and placements all are checked and right."]
    if short:
        lines += ["", "| kernel, placement | configurations | to check | checked | failures | hours |"]
        lines.append("|---|--:|--:|--:|--:|--:|")
    for row in short:
        cells = [row.group, row.configurations, row.asked, row.checked, len(row.failures), f"{row.seconds / 3600:.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    if failures:
        lines += ["", "## Failures", ""]
        lines += [f"- {f['status']}: `{Variant(*json.loads(f['key']))}`: {_first_line(f['message'])}" for f in failures]
    return lines


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
