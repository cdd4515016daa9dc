"""Checks of a result folder before a run: existing results, and files that would be replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain

#: Files that a run writes into its folder.
FILES = ("run.json", "memberships.npz", "communities.txt")
#: The graph of an update with its held-out pairs, beside them.
GRAPH_FILE = "graph.npz"


def record_in(folder: Path) -> dict[str, Any] | None:
    """The run record in ``folder``; None if it has none or its ``run.json`` is not a run record."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    ours = isinstance(record, dict) and "mmsbgen" in record and isinstance(record.get("graph"), dict)
    ours = ours and isinstance(record.get("chains", []), list)
    return record if ours else None


def keep_foreign(folder: Path, remedy: str = "name another folder, or give it up by --overwrite") -> None:
    """Raise :class:`InputError`, with a ``remedy``, if results would replace files that no run has written."""
    if record_in(folder) is not None:
        return
    try:
        lost = next((path for name in reversed(FILES) if (path := folder / name).exists()), None)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}. Name a folder that you may write to.") from error
    if lost is not None:
        raise InputError(
            f"{lost} is not of a run of mmsbgen, whose run.json would be beside it, and would be lost: {remedy}"
        )


def keep_others(
    folder: Path, *digests: str, remedy: str = "name another folder with -o, or give them up by --overwrite"
) -> None:
    """Raise :class:`InputError` if there are results of a graph with a digest that is not among ``digests``."""
    record = record_in(folder)
    if record is not None and record["graph"].get("digest") not in digests:
        raise InputError(f"{folder} has results of another graph, {_named(record)}, which would be lost: {remedy}")


def replaced(folder: Path, resumed: str | None) -> list[str]:
    """Messages on results in ``folder`` that the run will replace, and on an outdated report.

    Results on the graph with the digest ``resumed`` belong to the resumed run and need no message.
    """
    record, said = record_in(folder), []
    if record is not None and record["graph"].get("digest") != resumed:
        said.append(f"The results in {folder}, of {_named(record)}, will be replaced.")
    if os.path.exists(folder / "report" / "report.html"):
        said.append(f"{folder / 'report'} shows the results before: make it anew by `mmsbgen report {folder}`.")
    return said


def _named(record: dict[str, Any]) -> str:
    """The graph of results, and when they were made."""
    when = plain(record.get("finished", "an unknown date"))[:16].replace("T", " ")
    return f"{plain(record['graph'].get('name') or 'a graph')} from {when} UTC"
