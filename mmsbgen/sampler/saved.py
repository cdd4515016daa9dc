"""Read what a run left in its folder (:func:`mmsbgen.sampler.results.write`)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.errors import InputError
from mmsbgen.family import Array
from mmsbgen.sampler.communities import Cover, Memberships, largest
from mmsbgen.sampler.explain import Ints

#: Entries of a row that are kept where the archive has all of pi, and elements of pi that are read at a time.
_KEPT, _ELEMENTS = 16, 1 << 22


@dataclass(frozen=True)
class Saved:
    """A run's folder: its record, the largest entries of every row of pi, and its communities.

    ``cover.labels`` are numbers of the model's communities, or -1 in results of versions that did not record them.
    """

    folder: Path
    record: dict[str, Any]
    memberships: Memberships
    cover: Cover

    @property
    def strengths(self) -> npt.NDArray[np.float64]:
        """beta of each community of the cover, float64 ``[C]``; NaN where it is not known which one it is."""
        at = np.array(self.cover.labels, np.int64)
        found = np.full(at.shape, np.nan)
        found[at >= 0] = self.memberships.beta[at[at >= 0]]
        return found


def load(folder: Path) -> Saved:
    """The results in a folder that ``detect`` wrote.

    Raises :class:`InputError` where there are none, or where they are damaged or do not belong together.
    """
    record = _record(folder)
    archive = folder / "memberships.npz"
    try:
        memberships = _memberships(archive)
        lines = (folder / "communities.txt").read_bytes().decode("utf-8").split("\n")[:-1]
        return Saved(folder, record, memberships, _cover(folder, lines, memberships, record))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise InputError(f"the results in {folder} cannot be read ({reason}); run mmsbgen detect again") from error


def _record(folder: Path) -> dict[str, Any]:
    file = folder / "run.json"
    try:
        record = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder} has no run.json: name the folder of a finished run, which mmsbgen detect GRAPH -o FOLDER writes"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({error}); run mmsbgen detect again") from error
    if not isinstance(record, dict) or not {"graph", "communities", "trace", "options"} <= record.keys():
        raise InputError(f"{file} is no record of mmsbgen detect; name the folder that its option -o named")
    return record


def _memberships(file: Path) -> Memberships:
    # Opened here, as NumPy leaves a file open that is no archive.
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        ids, beta = archive["ids"], archive["beta"].astype(np.float64)
        if "pi" in archive.files:
            indices, values = _largest_of_all(file)
        else:
            indices, values = archive["communities"], archive["shares"]
    if beta.ndim != 1 or indices.shape != values.shape or indices.ndim != 2 or len(indices) != len(ids):
        raise ValueError(f"arrays of shapes {ids.shape}, {beta.shape}, {indices.shape} and {values.shape}")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < beta.size:
        raise ValueError(f"communities beyond the {beta.size} of the model")
    return Memberships(ids, indices, values, beta)


def _largest_of_all(file: Path) -> tuple[npt.NDArray[np.int32], Array]:
    parts = [largest(rows, min(_KEPT, rows.shape[1])) for rows in _rows_of_pi(file)]
    return np.concatenate([at for at, _ in parts]), np.concatenate([best for _, best in parts])


def _rows_of_pi(file: Path) -> Iterator[Array]:
    """pi ``[N, K]`` a part at a time: all of it may be larger than memory."""
    with zipfile.ZipFile(file) as archive, archive.open("pi.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        if len(shape) != 2:
            raise ValueError(f"pi of shape {shape}")
        step = max(1, _ELEMENTS // shape[1])
        for first in range(0, shape[0], step):
            count = min(step, shape[0] - first)
            data = member.read(count * shape[1] * dtype.itemsize)
            yield np.frombuffer(data, dtype).reshape(count, shape[1])


def _cover(folder: Path, lines: list[str], found: Memberships, record: dict[str, Any]) -> Cover:
    number = {str(name): vertex for vertex, name in enumerate(found.ids.tolist())}
    members: list[Ints] = []
    for place, line in enumerate(lines, start=1):
        try:
            members.append(np.sort(np.array([number[name] for name in line.split("\t")], np.int64)))
        except KeyError as error:
            raise ValueError(f"line {place} of communities.txt has {error.args[0]!r}, which is no vertex") from None
    sizes = [len(one) for one in members]
    if sizes != record["communities"]["sizes"]:
        raise ValueError("communities.txt has other communities than run.json tells of")
    labels = record["communities"].get("labels", [-1] * len(members))
    if len(labels) != len(members) or not all(-1 <= label < found.k for label in labels):
        raise ValueError("run.json names other communities than the model has")
    return Cover(tuple(members), tuple(labels), len(found.ids))
