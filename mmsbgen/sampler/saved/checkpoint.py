"""Checkpoints: one archive with everything needed to resume a run.

Rows are written in the order of vertices, not of slots, a part at a time.  On the same device, with the same
configurations, templates, compiler and libraries, a resumed run gives the same bits as an uninterrupted one.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.backends.base import Buffer, Device, DeviceInfo
from mmsbgen.base.atomic_files import array_header, published_archive, readable_archive, stored_arrays
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.libraries import versions
from mmsbgen.base.version import __version__
from mmsbgen.graph import Graph
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.chain.chain_problem import as_drawn
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.phases import Phases
from mmsbgen.sampler.saved.checkpoint_checks import (
    COUNTERS,
    check_entries,
    check_meta,
    check_rows,
    checked,
    probabilities,
)
from mmsbgen.sampler.state.chain_state import ChainState
from mmsbgen.sampler.state.sparse_state import SparseState

FORMAT = 3
#: Arrays of sparse rows: communities and values of the entries.
ENTRIES = ("entry_communities", "entry_values")
_LOOP = "loop over iterations"
_HEADER = re.compile(r"\A\s*/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Checkpoint:
    """Metadata of a checkpoint; the arrays are read from the file when the chain is restored."""

    path: Path
    meta: dict[str, Any]

    @property
    def options(self) -> Options:
        """The options of the run."""
        return Options.from_dict(self.meta["options"])

    @property
    def fused(self) -> bool:
        """Whether the run used fused iterations."""
        return _LOOP in self.meta["fingerprint"]

    @property
    def configs(self) -> dict[str, dict[str, Any]]:
        """The configuration of every kernel."""
        return {name: choice["config"] for name, choice in self.meta["kernels"].items()}

    @property
    def trace(self) -> Trace:
        """The evaluations so far."""
        return list(self.meta["trace"])

    def as_drawn(self, options: Options, n_links: int) -> Options:
        """The options with the shares of ``n_links`` links that the run held out."""
        return as_drawn(options, self.meta["held_out"], n_links)


def device_name(info: DeviceInfo) -> str:
    """Name of a device in checkpoints; on devices of the same name, the same configurations give the same bits."""
    return f"{info.backend} {info.platform} {info.name} {info.architecture}"


def fingerprint(sampler: Sampler) -> dict[str, str]:
    """All that affects the bits besides options and graph: device, driver, compiler, versions and kernel sources."""
    info = sampler.device.info
    found = {
        "device": device_name(info),
        "driver": info.driver,
        "compiler": info.compiler,
        "compiler options": " ".join(compiler_options(traits_of(info))),
        "platform version": info.platform_version,
        "numpy": np.__version__,
        "mmsbgen": __version__,
    }
    if sampler.options.refines:
        # Refinements run Leiden's algorithm.  The start may use it too, but a checkpoint is written after the start.
        found |= versions("networkit")
    for name, bound in sampler.kernels.items():
        found[f"{name} configuration"] = json.dumps(dict(bound.config), sort_keys=True)
        found[f"{name} source"] = bound.source.digest
    if sampler.loop is not None:
        found[_LOOP] = sampler.loop.rendered.source.digest
    return found


def save(path: Path, sampler: Sampler, trace: Trace, seconds: float, kept: bool = False) -> None:
    """Write a checkpoint atomically.

    ``kept``: whether the checkpoint is to stay after the run has finished.
    """
    sampler.settle()
    sampler.clipped()
    device, shape, chain = sampler.device, sampler.shape, sampler.chain
    meta = {
        "format": FORMAT,
        "version": __version__,
        "kept": kept,
        "graph": sampler.split.graph.digest,
        "graph_name": sampler.split.graph.name,
        "held_out": {"validation": sampler.split.validation.n_links, "test": sampler.split.test.n_links},
        "options": asdict(sampler.options),
        "fingerprint": fingerprint(sampler),
        "kernels": {name: choice.as_dict() for name, choice in sampler.runtime.choices.items()},
        **{name: getattr(chain, name) for name in COUNTERS},
        "course": chain.course.as_dict(),
        "stage_seconds": sampler.stages.seconds(),
        "seconds": seconds,
        "trace": trace,
    }

    def rows() -> Iterator[Array]:
        for first, stop in sampler.state_chunks():
            yield shape.stored.nearest(sampler.rows(first, stop)[0])  # exact: rows are already in the storage type

    n, k = shape.n_vertices, shape.k
    with published_archive(path) as archive:
        archive.add_json("meta", meta)
        archive.add("theta", device.download(sampler.values["theta"])[:, :k])
        archive.add("beta", device.download(sampler.values["beta"])[:k])
        archive.add("row_sums", sampler.row_sums().astype(shape.real))
        archive.add("sums", device.download(sampler.held_values["sums"]))
        archive.add("published_sum", chain.published_sum)
        archive.add("beta_sum", chain.beta_sum)
        archive.add("beta_squares", chain.beta_squares)
        for name, array in ({} if sampler.draws is None else sampler.draws.saved()).items():
            archive.add(name, array)
        if isinstance(sampler.state, SparseState):
            for name, array in zip(ENTRIES, sampler.state.entries(), strict=True):
                archive.add(name, array)
            archive.add("totals", device.download(sampler.values["totals"])[:k])
        else:
            archive.add_parts("pi", (n, k), shape.stored.dtype, rows())
        for name in _moments(sampler):
            sums = sampler.values[name]
            parts = (device.download_range(sums, a, b)[:, :k] for a, b in sampler.state_chunks())
            archive.add_parts(name, (n, k), shape.real, parts)


def _moments(sampler: Sampler) -> list[str]:
    """Names of the arrays with sums over samples of pi."""
    return [name for name in ("mean", "squares") if name in sampler.values]


def _readable(path: Path) -> AbstractContextManager[None]:
    name, again = "the checkpoint.npz of a run; ended runs keep it with --checkpoint", "resume from another one"
    return readable_archive(path, "checkpoint", name=name, again=again, missing="checkpoint")


def load(path: Path) -> Checkpoint:
    """Read a checkpoint's metadata; raises :class:`InputError` for another file or an unsupported version."""
    with _readable(path), open(path, "rb") as file, stored_arrays(file) as archive:
        meta = json.loads(archive["meta"].tobytes())
        version, writer = int(meta["format"]), f"mmsbgen {plain(meta.get('version'))}"
        if version != FORMAT:
            raise InputError(
                f"{path} was written by {writer}, whose checkpoints have another form than those of {__version__}: "
                "resume with that version"
            )
        check_meta(meta)
        if unknown := sorted(meta["options"].keys() - Options.__dataclass_fields__.keys()):
            raise InputError(
                f"{path} was written by {writer}, with the options {plain(', '.join(unknown), 200)}, and this is "
                f"{__version__}: resume with that version"
            )
        Options.from_dict(meta["options"])
        Phases(**meta["course"])
    return Checkpoint(path, meta)


def belongs(checkpoint: Checkpoint, graph: Graph) -> None:
    """Raise :class:`InputError` if the checkpoint belongs to another graph."""
    if checkpoint.meta["graph"] != graph.digest:
        other = plain(checkpoint.meta["graph_name"])
        raise InputError(
            f"{checkpoint.path} belongs to another graph ({other}) than {graph.name}; resume with the graph that it "
            "was started on"
        )


def differences(checkpoint: Checkpoint, sampler: Sampler) -> list[str]:
    """Names of the differences that prevent a bitwise equal resumed run; empty if there are none."""
    before, now = checkpoint.meta["fingerprint"], fingerprint(sampler)
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    # A changed configuration implies a changed source, which is not named then.
    told = {f"{name} source" for name in sampler.kernels if f"{name} configuration" in changed}
    return sorted(changed - told)


def restore(checkpoint: Checkpoint, sampler: Sampler) -> None:
    """Restore a chain from a checkpoint.

    Raises :class:`InputError` if the checkpoint is damaged, or belongs to another graph or shape.
    """
    belongs(checkpoint, sampler.split.graph)
    with _readable(checkpoint.path):
        _restore(checkpoint, sampler)


def _restore(checkpoint: Checkpoint, sampler: Sampler) -> None:
    meta, shape, device = checkpoint.meta, sampler.shape, sampler.device
    n, k, real, double = shape.n_vertices, shape.k, shape.real, np.dtype(np.float64)
    held_out, sums = (len(sampler.split.validation.pairs),), sampler.held_values["sums"]
    averaged = meta["averaged"]
    with open(checkpoint.path, "rb") as file, stored_arrays(file) as archive:
        sampler.state.reset_slots()
        row_sums = checked(archive, "row_sums", (n,), real, is_positive=True)
        if isinstance(sampler.state, SparseState):
            entries = (n, shape.entries)
            communities = archive[ENTRIES[0]]
            values = checked(archive, ENTRIES[1], entries, real, most=1.0)
            check_entries(communities, values, k, shape.floor, sampler.left_out)
            totals = checked(archive, "totals", (k,), real)
            sampler.state.restore_entries(communities, values, row_sums, totals)
        else:
            _restore_rows(
                checkpoint.path,
                "pi",
                shape.stored.dtype,
                sampler,
                lambda rows: check_rows(shape.stored.values(rows), "pi", 1.0),
                lambda first, rows: sampler.state.restore_rows(first, rows, row_sums[first : first + len(rows)]),
            )
            sampler.state.leave_out(sampler.left_out)
        for name in _moments(sampler):
            _restore_rows(
                checkpoint.path,
                name,
                real,
                sampler,
                partial(_check_moments, name, averaged),
                partial(_write, device, sampler.values[name]),
            )
        # A draw may round one of the two to 0.
        theta = checked(archive, "theta", (2, k), real)
        if not theta.sum(axis=0).all():
            raise ValueError("its theta has numbers that no chain has")
        sampler.state.set_theta(theta)
        beta = np.full(shape.row, 0.5, real)
        beta[:k] = checked(archive, "beta", (k,), real, most=1.0)
        device.write(sampler.values["beta"], beta)
        # An evaluation before the means begin leaves its own sample.
        most = probabilities(max(1, meta["samples"]))
        device.write(sums, checked(archive, "sums", sums.shape, double, most=most))
        most = probabilities(meta["published_evaluations"])
        published_sum = checked(archive, "published_sum", held_out, double, most=most)
        beta_sum, beta_squares = (
            checked(archive, name, (k,), double, most=probabilities(averaged)) for name in ("beta_sum", "beta_squares")
        )
        if sampler.draws is not None:
            sampler.draws.restore(archive)
    counters = {name: meta[name] for name in COUNTERS}
    chain = ChainState(published_sum, beta_sum, beta_squares, course=Phases(**meta["course"]), **counters)
    if sampler.options.iterations is not None and checkpoint.options.iterations is None:
        chain = chain.to_given_length()
        sampler.clear_samples()
    sampler.chain = chain
    sampler.stages.add(meta["stage_seconds"])


def _write(device: Device, buffer: Buffer, first: int, rows: Array) -> None:
    device.write(buffer, rows, first)


def _check_moments(name: str, averaged: int, rows: Array) -> None:
    """Check sums of pi over samples, or sums of squared deviations, which have no given sum."""
    if name == "mean":
        check_rows(rows, name, float(averaged))
    elif not (np.isfinite(rows).all() and rows.min(initial=0) >= 0):
        raise ValueError(f"its {name} has numbers that no chain has")


def _restore_rows(
    path: Path,
    name: str,
    wanted: np.dtype[Any],
    sampler: Sampler,
    check: Callable[[Array], None],
    write: Callable[[int, Array], None],
) -> None:
    """Stream ``name.npy`` from the archive, ``check`` rows of swept vertices and pass all, padded, to ``write``."""
    shape = sampler.shape
    swept = np.ones(shape.n_vertices, bool)
    swept[sampler.left_out] = False
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        found, _, dtype = array_header(member)
        if found != (shape.n_vertices, shape.k) or dtype != wanted:
            raise ValueError(f"its {name} is {found} {dtype}, this run needs {(shape.n_vertices, shape.k)} {wanted}")
        for first, stop in sampler.state_chunks():
            data = member.read((stop - first) * shape.k * wanted.itemsize)
            rows = np.zeros((stop - first, shape.row), wanted)
            rows[:, : shape.k] = np.frombuffer(data, wanted).reshape(stop - first, shape.k)
            check(rows[swept[first:stop], : shape.k])
            write(first, rows)
        member.read(1)  # zipfile verifies the checksum at the end of the member
