"""Results of a run, read from its folder for a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.export.found import Clustering
from mmsbgen.export.run_folder import read_run
from mmsbgen.sampler.diagnostics.communities import Cover


@dataclass(frozen=True)
class SavedRun:
    """A run's record and its result."""

    folder: Path
    record: dict[str, Any]
    result: Clustering

    @property
    def cover(self) -> Cover:
        """The communities."""
        return self.result.cover


def load(folder: Path) -> SavedRun:
    """The results in a folder that ``detect`` wrote.

    Raises :class:`InputError` if there are none, or if they are damaged or do not belong together.
    """
    found, record = read_run(folder)
    if record.get("command") == "propagate":
        raise InputError(f"{folder} is of `mmsbgen propagate`: reports are of results of detect and update")
    if absent := {"trace", "seconds", "iterations", "options"} - record.keys():
        raise InputError(f"{folder / 'run.json'} has no {min(absent)}: run `mmsbgen detect -o` again")
    return SavedRun(folder, record, found)
