"""The report of variants checked: Markdown for readers, JSON from which a later run goes on."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _checked import NO_ANSWER, Checked, pack
from _plan import Row, forms
from _variants import Variant

from mmsbgen import __version__


def write_report(path: Path, about: Mapping[str, Any], rows: Mapping[str, Row], checked: Checked) -> None:
    """Write ``path`` (JSON) and the Markdown beside it; an interrupted run leaves the earlier ones."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    host = f"{platform.system()} {platform.machine()}"
    failures = sorted(checked.failures.values(), key=lambda record: str(record["key"]))
    failed = Counter(record["group"] for record in failures if record["status"] not in NO_ANSWER)
    alike = {group: forms(row, checked.known[group]) for group, row in rows.items()}
    counted = [
        {
            "group": group,
            "configurations": row.configurations,
            "variants": row.variants,
            "asked": len(row.asked),
            "checked": len(checked.known[group]),
            "forms": alike[group][0],
            "forms_checked": alike[group][1],
            "failed": failed[group],
            "seconds": round(checked.seconds[group], 1),
            "known": pack(checked.known[group]),
        }
        for group, row in sorted(rows.items())
    ]
    content = {
        "about": {"date": today, "mmsbgen": __version__, **about, "host": host},
        "rows": counted,
        "failures": failures,
    }
    _replace(path, json.dumps(content, indent=1) + "\n")
    _replace(path.with_suffix(".md"), "\n".join(as_markdown(content)) + "\n")


def as_markdown(report: Mapping[str, Any]) -> list[str]:
    """The lines of the report for readers."""
    about, rows, failures = report["about"], report["rows"], report["failures"]
    seconds = sum(row["seconds"] for row in rows)
    done, asked = sum(row["checked"] for row in rows), sum(row["asked"] for row in rows)
    alike, met = sum(row["forms"] for row in rows), sum(row["forms_checked"] for row in rows)
    once = "once" if about["rounds"] == 1 else f"in {about['rounds']} rounds"
    names = {"Intel(R)": "intel", "Portable": "pocl", "CUDA": "cuda:0"}
    device = names.get(about["platform"].split()[0], about["device"])
    lines = [
        f"# Variants checked on {about['platform']}",
        "",
        "Every configuration is compiled, run on a small problem and held against the NumPy reference with the derived",
        "tolerance, in each round at another of the K and types that it is valid for; step, noise, partners and n are",
        "drawn at random. So is which K comes first, but where loops are unrolled a source of c turns has 1/c of the",
        "chance. A result counts as long as the check would do the same today: source, launch, inputs, reference and",
        "tolerance, on this device with this driver and compiler. Made by",
        f"`scripts/check_variants.py --device {device}`, which goes on from this report.",
        "",
        *(f"- {name}: {value}" for name, value in about.items() if value),
        "",
        f"**{done} of {asked} configurations checked {once} with the sources of {about['date']}, "
        f"{len(failures)} failures;** {seconds / 3600:.1f} hours of checks altogether"
        + (f", {seconds / done:.2f} s each." if done else "."),
        f"**{met} of {alike} forms checked:** configurations that differ in their number of groups alone, among which",
        "the vertices are dealt out, are one form; it counts as checked, before any other, with the fewest groups: the",
        "small problem then has several vertices for each of them, and with more groups than vertices one at most.",
        "",
        "| kernel, placement | configurations | to check | checked | forms | checked | failures | hours "
        "| variants at all K and types |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [row["group"], row["configurations"], row["asked"], row["checked"]]
        cells += [row["forms"], row["forms_checked"], row["failed"]]
        lines.append(f"| {' | '.join(map(str, cells))} | {row['seconds'] / 3600:.2f} | {row['variants']} |")
    if failures:
        lines += ["", "## Failures", ""]
        lines += [f"- {f['status']}: `{Variant(*json.loads(f['key']))}`: {_first_line(f['message'])}" for f in failures]
    return lines


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
