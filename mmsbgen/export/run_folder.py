"""Read the result folder of a detection."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.atomic_files import DAMAGED, FOREIGN, stored_arrays
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.export.found import Clustering
from mmsbgen.graph import Graph, GraphWarning, ReadingOptions, load_graph
from mmsbgen.graph.files.tokens import parse_integers, split_fields
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.diagnostics.memberships import Memberships, encoded, largest, outside
from mmsbgen.sampler.saved.membership_arrays import of_arrays
from mmsbgen.sampler.saved.result_folder import FILES
from mmsbgen.scores.cover import words_of


def refuse_file_of_run(path: Path) -> None:
    """Raise :class:`InputError` for one of the files of results, where their folder is meant."""
    if path.name in FILES and (path.parent / "run.json").is_file():
        raise InputError(f"{path} is one of the files of a run: name their folder, {path.parent}")


def need_results(folder: Path) -> None:
    """Raise :class:`InputError` for a folder without results."""
    refuse_file_of_run(folder)
    if absent := [name for name in FILES if not (folder / name).is_file()]:
        raise InputError(f"{folder} has no {absent[0]}: name the folder that `mmsbgen detect -o` wrote")


def read_run(folder: Path, graph: Graph | None = None, top: int = 16) -> tuple[Clustering, dict[str, Any]]:
    """Read the results that ``mmsbgen detect -o`` or ``mmsbgen.detect(out=...)`` wrote, and the run record.

    Args:
        folder: the folder of results.
        graph: the graph of the run.
        top: number of largest shares of a vertex to read if the file holds all of pi.

    Raises:
        InputError: for a folder without results, files that do not belong together, or another graph.
    """
    if top < 1:
        raise InputError(f"top={top}: at least one share of a vertex is read")
    need_results(folder)
    with _readable(folder / "run.json"):
        record = _record(folder)
        rule, delta = dict(record["rule"]), float(record["options"]["delta"])
        vertices, digest, name = (record["graph"][key] for key in ("vertices", "digest", "name"))
        background, sizes = (list(map(int, record["communities"][key])) for key in ("background", "sizes"))
    if graph is not None and graph.digest != digest:
        raise InputError(
            f"{graph.name} is another graph than {plain(name)}, whose communities are in {folder}: give that one"
        )
    with _readable(folder / "memberships.npz"):
        with open(folder / "memberships.npz", "rb") as file:
            m = read_memberships(file, delta, top)
        if len(m.ids) != vertices:
            raise ValueError(f"it has {len(m.ids)} vertices, run.json {vertices}")
    with _readable(folder / "communities.txt"):
        members = read_members((folder / "communities.txt").read_bytes(), m.ids)
        if [len(one) for one in members] != sizes or not set(background) <= set(range(len(sizes))):
            raise ValueError("its communities are not those of run.json")
    names = tuple(record["labels"]) if "labels" in record else None
    return Clustering(m, Cover(tuple(members), len(m.ids), tuple(background)), graph, rule, names), record


def _record(folder: Path) -> dict[str, Any]:
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"it holds a {type(record).__name__}")
    return record


def graph_of_run(folder: Path, given: Path | None = None) -> tuple[Graph | None, str]:
    """The graph of the run in ``folder`` and "", or None and the reason why it is not available.

    It is read from ``given``, or else from the file named in the run record.  Raises InputError if ``given``
    cannot be read or is another graph, and for a folder without a record.
    """
    with _readable(folder / "run.json"):
        record = _record(folder)
        recorded = record["graph"]
        source, digest = recorded.get("file"), recorded["digest"]
        reading = ReadingOptions.recorded(recorded.get("reading"))
        size = f"{recorded['vertices']} and {recorded['links']}"
    if given is None and source is None:
        return None, "its record does not name the graph's file"
    places = [given or Path(source)]
    if given is None and (beside := (folder / places[0].name).absolute()) != places[0] and beside.is_file():
        places.append(beside)  # the folder of an update may have been moved, or the files of a job were downloaded
    why = ""
    for place in places:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GraphWarning)  # these were shown during the run
                graph = load_graph(place, reading)
        except InputError as error:
            if given is not None:
                raise
            why = str(error)
            continue
        if graph.digest == digest:
            return graph, ""
        if given is not None:
            raise InputError(
                f"{given} is not the graph of the run in {folder}: it has {graph.n_vertices} vertices and "
                f"{graph.n_links} links, the run's {size}, or others; give the file that the run was made on"
            )
        why = f"{plain(place, 200)} is no longer the graph that the run was made on"
    return None, why


def holds_whole_rows(folder: Path) -> bool:
    """Whether ``memberships.npz`` in ``folder`` holds all of pi."""
    path = folder / "memberships.npz"
    try:
        with zipfile.ZipFile(path) as archive:
            return "pi.npy" in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False  # reading it says why


def reading_of_run(folder: Path) -> ReadingOptions:
    """How the run in ``folder`` read its graph; raises InputError for a folder without a record."""
    with _readable(folder / "run.json"):
        return ReadingOptions.recorded(_record(folder)["graph"].get("reading"))


def read_memberships(file: IO[bytes], delta: float, top: int = 16) -> Memberships:
    """The memberships in a ``memberships.npz``, with the ``top`` largest entries of a row if the file holds all of pi.

    Raises ValueError, KeyError and BadZipFile for a damaged or foreign file.
    """
    with stored_arrays(file) as archive:
        arrays = {name: archive[name] for name in archive}
    if "pi" in arrays:
        pi = arrays.pop("pi")
        arrays["communities"], arrays["shares"] = largest(pi, min(top, pi.shape[1]))
        arrays["rest"], arrays["spread"] = outside(pi, arrays["communities"], arrays["shares"])
        arrays["codes"] = encoded(pi)
        for name in ("mean", "sd"):
            if f"pi_{name}" in arrays:
                whole = arrays.pop(f"pi_{name}")
                arrays[name] = np.take_along_axis(whole, arrays["communities"].astype(np.int64), axis=1)
                arrays[f"{name}_codes"] = encoded(whole)
    return of_arrays(arrays["ids"], arrays, delta)


def read_members(text: bytes, ids: npt.NDArray[Any]) -> list[npt.NDArray[np.int64]]:
    """The vertex numbers of every community of a ``communities.txt``; raises ValueError for an unknown id."""
    if ids.dtype.kind == "i" and (members := _of_integers(text, ids)) is not None:
        return members
    place = {word: vertex for vertex, word in enumerate(words_of(ids))}
    # Not splitlines(): an id may contain characters such as U+2028.
    lines = [line.split("\t") for line in text.decode("utf-8").split("\n")[:-1]]
    odd = next((word for line in lines for word in line if word not in place), None)
    if odd is not None:
        raise ValueError(f"{odd!r} is no vertex of memberships.npz")
    return [np.array([place[word] for word in line], dtype=np.int64) for line in lines]


def _of_integers(text: bytes, ids: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]] | None:
    """The same for ids that are integers, ascending; None for what only reading word by word can name."""
    if not text.endswith(b"\n"):
        return None
    fields = split_fields(text)
    numbers, separators = parse_integers(fields), text.count(b"\t") + text.count(b"\n")
    whole = int((fields.ends - fields.starts).sum()) + separators == len(text) and fields.starts.size == separators
    if numbers is None or not whole or not numbers.size or (np.diff(ids) <= 0).any():
        return None
    members = np.searchsorted(ids, numbers)
    if (ids[np.minimum(members, ids.size - 1)] != numbers).any():
        return None
    return np.split(members, np.flatnonzero(np.diff(fields.lines)) + 1)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        what = plain(f"it has no {error}" if isinstance(error, KeyError) else error, 200)
        raise InputError(
            f"{path} is damaged, or not what this version of mmsbgen writes ({what}): run `mmsbgen detect -o` again"
        ) from None
    except DAMAGED as error:
        raise InputError(f"{path} is damaged ({error}): run `mmsbgen detect -o` again") from None
