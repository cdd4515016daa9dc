"""The folder of a run's results, before the run: what is there of others, and what would be lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import InputError

#: What a run leaves in its folder.
FILES = ("run.json", "memberships.npz", "communities.txt")


def record_in(folder: Path) -> dict[str, Any] | None:
    """The run record in ``folder``; None where there is none, or a ``run.json`` of something else."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(record, dict) and "mmsbgen" in record and isinstance(record.get("graph"), dict)
    return record if ours else None


def keep_foreign(folder: Path) -> None:
    """Raise :class:`InputError` when results would replace files that no run has left there."""
    if record_in(folder) is not None:
        return
    for path in (folder / name for name in reversed(FILES)):
        if path.exists():
            raise InputError(
                f"{path} is not of a run of mmsbgen, whose run.json would be beside it, and would be lost: name "
                "another folder, or give it up by --overwrite"
            )


def replaced(folder: Path, resumed: str | None) -> list[str]:
    """What to say of results in ``folder`` that the run will replace.

    Those of the run that is resumed, on the graph with the digest ``resumed``, are no others; a report is out of date
    in any case.
    """
    record, said = record_in(folder), []
    if record is not None and record["graph"].get("digest") != resumed:
        when = str(record.get("finished", "an unknown date"))[:16].replace("T", " ")
        said.append(
            f"The results in {folder}, of {record['graph'].get('name') or 'a graph'} from {when} UTC, will be replaced."
        )
    if (folder / "report" / "report.html").exists():
        said.append(f"{folder / 'report'} shows the results before: make it anew by `mmsbgen report {folder}`.")
    return said
