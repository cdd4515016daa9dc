"""File format of a fitted estimator: an uncompressed archive of arrays and JSON, no pickle.

``meta`` (JSON): format, version, parameters, seed, run record, load report of the graph.  Arrays: ``ids`` (or
``ids_json`` if they are neither all integers nor all strings), ``links``, the largest entries of pi and beta, the
cover, and optionally ``chain``, the bytes of a checkpoint.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.atomic_files import array_header, published_archive, readable_archive, stored_arrays
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.version import __version__
from mmsbgen.detection.request import Detection
from mmsbgen.estimator.fitted import FittedChain
from mmsbgen.graph import Graph, LoadReport
from mmsbgen.graph.ids import add_ids, ids_in
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.options.schedule import Schedule
from mmsbgen.sampler.saved.membership_arrays import named_arrays, of_arrays
from mmsbgen.sampler.saved.saved_chain import SavedChain

FORMAT = 2
KIND = "mmsbgen model"
#: Entries of the run record that the estimator reads.
_RECORD = ("iterations", "options", "rule", "held_out", "samples_averaged")
_PART = 1 << 24


def write(path: Path, params: Mapping[str, Any], fit: FittedChain, chain: bool) -> None:
    """Write a fit and the parameters of its estimator; raises InputError if that is not possible.

    A generator as ``random_state`` is replaced by the seed that it drew.
    """
    found, graph = fit.found, fit.graph
    m, cover = found.memberships, found.cover
    meta = {
        "kind": KIND,
        "format": FORMAT,
        "version": __version__,
        "params": _plain(params, fit.seed),
        "fitted_params": _plain(fit.params, fit.seed),
        "seed": fit.seed,
        "record": found.record,
        "trace": found.trace,
        "interrupted": found.interrupted,
        "graph": {"name": graph.name, "digest": graph.digest, "report": asdict(graph.report)},
        "delta": m.delta,
    }
    sizes = [len(members) for members in cover.members]
    with published_archive(path) as archive:
        archive.add_json("meta", meta)
        add_ids(archive, "ids", graph.ids)
        archive.add("links", graph.links)
        for name, array in named_arrays(m).items():
            archive.add(name, array)
        archive.add("cover_members", np.concatenate([np.zeros(0, np.int64), *cover.members]))
        archive.add("cover_sizes", np.array(sizes, np.int64))
        archive.add("cover_background", np.array(cover.background, np.int64))
        if chain and fit.chain is not None:
            archive.add_parts("chain", (fit.chain.bytes,), np.uint8, _parts(fit.chain.path))


def read(path: Path, defaults: Mapping[str, Any]) -> tuple[dict[str, Any], FittedChain]:
    """Read the parameters and the fit written by :func:`write`; raises InputError for any other file.

    ``defaults`` are the estimator's current parameters.  Parameters missing from the file get their defaults; a file
    with unknown parameters is refused.
    """
    readable = readable_archive(
        path, "model", name="a file that MMSB.save wrote", again="name another file that MMSB.save wrote"
    )
    with readable, open(path, "rb") as file, stored_arrays(file) as archive:
        meta = json.loads(archive["meta"].tobytes())
        if meta["kind"] != KIND:
            raise ValueError(f"it is a {meta['kind']}")
        if meta["format"] != FORMAT:
            raise _of_another_version(path, meta["version"], "whose models have another form")
        params, fitted = (_params(meta[name], defaults) for name in ("params", "fitted_params"))
        if unknown := sorted((params | fitted).keys() - defaults.keys()):
            raise _of_another_version(path, meta["version"], f"with the parameters {', '.join(unknown)}")
        graph = _graph(archive, meta["graph"])
        found = _detection(archive, meta, graph)
        chain = _chain(path) if "chain" in archive else None
        return params, FittedChain(found, graph, int(meta["seed"]), fitted, chain)


def _of_another_version(path: Path, version: Any, what: str) -> InputError:
    return InputError(
        f"{path} was written by mmsbgen {plain(version)}, {plain(what, 200)}, and this is {__version__}: load it with "
        "that version, or fit the model again"
    )


def _graph(archive: Mapping[str, Any], told: Mapping[str, Any]) -> Graph:
    ids = ids_in(archive, "ids")
    graph = Graph(len(ids), ids, archive["links"], LoadReport(**told["report"]), told["name"])
    if graph.digest != told["digest"]:
        raise ValueError("its graph is not the one that it names")
    return graph


def _detection(archive: Mapping[str, Any], meta: Mapping[str, Any], graph: Graph) -> Detection:
    n, found = graph.n_vertices, of_arrays(graph.ids, archive, float(meta["delta"]))
    members, sizes, background = (archive[f"cover_{name}"] for name in ("members", "sizes", "background"))
    if sizes.sum() != members.size or not (_within(members, n) and _within(background, sizes.size)):
        raise ValueError("its communities do not fit together")
    sets = np.split(members, np.cumsum(sizes)[:-1]) if sizes.size else []
    cover = Cover(tuple(sets), n, tuple(background.tolist()))
    if (absent := next((name for name in _RECORD if name not in meta["record"]), None)) is not None:
        raise ValueError(f"its run record has no {absent}")
    return Detection(found, cover, meta["trace"], meta["record"], bool(meta["interrupted"]), None, graph)


def _within(numbers: npt.NDArray[Any], stop: int) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < stop)


def _chain(path: Path) -> SavedChain:
    with zipfile.ZipFile(path) as archive, archive.open("chain.npy") as member:
        array_header(member)
        return SavedChain.of_file(member)


def _parts(path: Path) -> Iterator[npt.NDArray[np.uint8]]:
    with open(path, "rb") as file:
        while part := file.read(_PART):
            yield np.frombuffer(part, np.uint8)


def _plain(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Parameters as JSON values."""
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in params.items()}
    if not isinstance(params["random_state"], int | None):
        plain["random_state"] = seed
    if params["schedule"] is not None:
        plain["schedule"] = asdict(params["schedule"])
    return plain


def _params(plain: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    params = {**defaults, **plain}
    params["eta"] = tuple(params["eta"])
    if params["schedule"] is not None:
        params["schedule"] = Schedule(**params["schedule"])
    return params
