"""Checkpoints: one archive with everything needed to resume a run.

Rows are written in the order of vertices, not of slots, a part at a time.  On the same device, with the same
configurations, templates, compiler and libraries, a resumed run gives the same bits as an uninterrupted one.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mmsbgen._version import __version__
from mmsbgen.backends.base import Buffer, Device, DeviceInfo
from mmsbgen.base.atomic_files import published_archive
from mmsbgen.base.errors import InputError
from mmsbgen.base.versions import versions
from mmsbgen.graph import Graph
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.phases import Phases
from mmsbgen.sampler.state.chain_state import ChainState
from mmsbgen.sampler.state.sparse_state import SparseState

FORMAT = 3
_META = (
    ("graph", str),
    ("graph_name", str),
    ("options", dict),
    ("course", dict),
    ("fingerprint", dict),
    ("kernels", dict),
    ("stage_seconds", dict),
    ("seconds", float),
    ("trace", list),
)
#: Arrays of sparse rows: communities and values of the entries.
ENTRIES = ("entry_communities", "entry_values")
_LOOP = "loop over iterations"
_HEADER = re.compile(r"\A\s*/\*.*?\*/", re.DOTALL)
_COUNTERS = ("iteration", "samples", "averaged", "vertex_updates", "clips", "published_evaluations")


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
        # Refinements run Leiden's algorithm of igraph with Python's random generator.  The start may use it too, but a
        # checkpoint is written after the start.
        found |= versions("igraph")
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
    sampler.device.synchronize()
    sampler.clipped()
    device, shape, chain = sampler.device, sampler.shape, sampler.chain
    meta = {
        "format": FORMAT,
        "version": __version__,
        "kept": kept,
        "graph": sampler.split.graph.digest,
        "graph_name": sampler.split.graph.name,
        "options": sampler.options.as_dict(),
        "fingerprint": fingerprint(sampler),
        "kernels": {name: choice.as_dict() for name, choice in sampler.runtime.choices.items()},
        **{name: getattr(chain, name) for name in _COUNTERS},
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
        archive.add("meta", np.frombuffer(json.dumps(meta).encode(), np.uint8))
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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors of NumPy and zipfile on a damaged or foreign file into an :class:`InputError`."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError) as error:
        raise InputError(f"{path} is no checkpoint of mmsbgen ({error}); name the checkpoint.npz of a run") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged or no checkpoint of mmsbgen ({error}); resume from another one") from None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint's metadata; raises :class:`InputError` for another file or an unsupported version."""
    with _readable(path), open(path, "rb") as file, np.load(_archive(file)) as archive:
        meta = json.loads(archive["meta"].tobytes())
        version = int(meta["format"])
        if version == FORMAT:
            for name, kind in _META:
                if not isinstance(meta[name], kind):
                    raise ValueError(f"its {name} is a {type(meta[name]).__name__}")
            for name in _COUNTERS:
                meta[name] = int(meta[name])
            unknown = sorted(meta["options"].keys() - Options.__dataclass_fields__.keys())
            if unknown:
                raise InputError(
                    f"{path} was written by mmsbgen {meta.get('version')}, with the options {', '.join(unknown)}, and "
                    f"this is {__version__}: resume with that version"
                )
            Options.from_dict(meta["options"])
            Phases(**meta["course"])
    if version > FORMAT:
        raise InputError(
            f"{path} was written by mmsbgen {meta.get('version')}, this is {__version__}: resume with that version "
            "or a newer one"
        )
    if version < FORMAT:
        raise InputError(
            f"{path} was written by mmsbgen {meta.get('version')}, whose checkpoints have another form: "
            "resume with that version"
        )
    return Checkpoint(path, meta)


def _archive(file: BinaryIO) -> BinaryIO:
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile("not a whole archive")
    file.seek(0)
    return file


def belongs(checkpoint: Checkpoint, graph: Graph) -> None:
    """Raise :class:`InputError` if the checkpoint belongs to another graph."""
    if checkpoint.meta["graph"] != graph.digest:
        raise InputError(
            f"{checkpoint.path} belongs to another graph ({checkpoint.meta['graph_name']}) than {graph.name}; resume "
            "with the graph that it was started on"
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
    with np.load(checkpoint.path) as archive:
        sampler.state.reset_slots()
        n, k = shape.n_vertices, shape.k
        row_sums = _shaped(archive, "row_sums", (n,))
        if isinstance(sampler.state, SparseState):
            communities, values = (_shaped(archive, name, (n, shape.entries)) for name in ENTRIES)
            sampler.state.restore_entries(communities, values, row_sums, _shaped(archive, "totals", (k,)))
        else:
            _restore_rows(
                checkpoint.path,
                "pi",
                shape.stored.dtype,
                sampler,
                lambda first, rows: sampler.state.restore_rows(first, rows, row_sums[first : first + len(rows)]),
            )
        for name in _moments(sampler):
            write = partial(_write, device, sampler.values[name])
            _restore_rows(checkpoint.path, name, shape.real, sampler, write)
        sampler.state.set_theta(_shaped(archive, "theta", (2, k)).astype(shape.real))
        beta = np.full(shape.row, 0.5, shape.real)
        beta[:k] = _shaped(archive, "beta", (k,))
        device.write(sampler.values["beta"], beta)
        device.write(sampler.held_values["sums"], _shaped(archive, "sums", sampler.held_values["sums"].shape))
        published_sum = _shaped(archive, "published_sum", (len(sampler.split.validation.pairs),))
        beta_sum, beta_squares = (_shaped(archive, name, (k,)) for name in ("beta_sum", "beta_squares"))
        if sampler.draws is not None:
            sampler.draws.restore(archive)
    counters = {name: meta[name] for name in _COUNTERS}
    chain = ChainState(published_sum, beta_sum, beta_squares, course=Phases(**meta["course"]), **counters)
    if sampler.options.iterations is not None and checkpoint.options.iterations is None:
        chain = chain.to_given_length()
        sampler.clear_samples()
    sampler.restore(chain)
    sampler.stages.add(meta["stage_seconds"])


def _write(device: Device, buffer: Buffer, first: int, rows: Array) -> None:
    device.write(buffer, rows, first)


def _shaped(archive: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    found = archive[name]
    if found.shape != shape:
        raise ValueError(f"its {name} has shape {found.shape}, this run needs {shape}")
    return found


def _restore_rows(path: Path, name: str, wanted: np.dtype[Any], sampler: Sampler, write: Any) -> None:
    """Stream ``name.npy`` from the archive and pass padded rows to ``write``."""
    shape = sampler.shape
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_2_0 if version >= (2, 0) else np.lib.format.read_array_header_1_0
        found, _, dtype = read(member)
        if found != (shape.n_vertices, shape.k) or dtype != wanted:
            raise ValueError(f"its {name} is {found} {dtype}, this run needs {(shape.n_vertices, shape.k)} {wanted}")
        for first, stop in sampler.state_chunks():
            data = member.read((stop - first) * shape.k * wanted.itemsize)
            rows = np.zeros((stop - first, shape.row), wanted)
            rows[:, : shape.k] = np.frombuffer(data, wanted).reshape(stop - first, shape.k)
            write(first, rows)
        member.read(1)  # zipfile verifies the checksum at the end of the member
