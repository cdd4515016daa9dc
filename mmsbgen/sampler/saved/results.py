"""Results of a run: communities, memberships and the run record, as values and as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.atomic_files import FileTransaction, published_archive, write_text
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import available_host_memory, readable
from mmsbgen.base.id_text import plain
from mmsbgen.base.libraries import versions
from mmsbgen.base.processes import side_by_side
from mmsbgen.base.version import __version__
from mmsbgen.db.records.canonical_json import plain_json
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE, filled
from mmsbgen.graph import Graph, Split
from mmsbgen.graph.files.graph_archive import write_graph
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.communities import Cover, Tell
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.diagnostics.memberships import Memberships, by_column, encoded, largest_of_parts
from mmsbgen.sampler.posterior.moments import Posterior
from mmsbgen.sampler.saved.membership_arrays import named_arrays
from mmsbgen.sampler.saved.result_folder import GRAPH_FILE
from mmsbgen.sampler.state.memory_needs import MOST_CODES
from mmsbgen.sampler.state.sparse_state import SparseState
from mmsbgen.scores.cover import cover_text, words_of

#: Arrays of a file that all of pi replaces, with its means and deviations.
_OF_PI = ("communities", "shares", "rest", "spread", "codes", "mean", "sd", "mean_codes", "sd_codes")
#: Sparse rows read at a time.
_ROWS = 1 << 15
#: Python library of each backend.
_LIBRARIES = {"opencl": ("pyopencl",), "cuda": ("pycuda",)}


def words_for_files(ids: npt.NDArray[Any]) -> list[str]:
    """Text forms of the ids ``[N]`` for the files of a result.

    Raises InputError for ids that cannot be written (:func:`mmsbgen.scores.cover.words_of`), and if the archive would
    exceed the memory because it stores all ids with the width of the longest.
    """
    words = words_of(ids)
    if ids.dtype == object:
        longest = max(words, key=len)
        needed, (left, source) = 4 * len(longest) * len(words), available_host_memory()
        if needed > left:
            raise InputError(
                f"id {plain(longest, 24)!r} has {len(longest)} characters: {len(words)} ids of that width take "
                f"{readable(needed)}, and {source} leaves {readable(left)}; give the vertex a shorter id"
            )
    return words


def memberships(sampler: Sampler, r: int, tell: Tell = lambda share: None) -> Memberships:
    """The ``r`` largest entries of every row of pi (of its posterior mean if there are samples), read in parts.

    Vertices that the sweeps leave out have the mean of the prior, 1/K; ``spread`` is without them.  ``tell`` is called
    with the share of rows read.
    """
    shape = sampler.shape
    if isinstance(sampler.state, SparseState):
        indices, values, rest, spread = _entries(sampler.state, r)
    else:
        size = (shape.n_vertices, shape.k)
        indices, values, rest, spread = largest_of_parts(_rows(sampler, tell), r, size, shape.real)
    values[sampler.left_out], rest[sampler.left_out] = 1.0 / shape.k, 1.0 - values.shape[1] / shape.k
    ids, split = np.asarray(sampler.split.graph.ids), sampler.split
    return Memberships(ids, indices, values, sampler.beta(), sampler.options.crossing, split.unlinked, rest, spread)


def _entries(state: SparseState, r: int) -> tuple[Array, Array, Array, Array]:
    """As :func:`mmsbgen.sampler.diagnostics.memberships.largest_of_parts`, from sparse rows: at most R entries."""
    k, floor, n, known = state.shape.k, state.shape.floor, state.shape.n_vertices, 0
    most = min(state.shape.entries, k)
    indices = np.empty((n, min(r, most)), np.int32)
    values, rest = np.empty(indices.shape, state.shape.real), np.empty(n)
    counts, spread = np.zeros(k, np.int64), np.zeros(k)

    def fill(given: tuple[int, Array, Array]) -> tuple[int, Array, Array, Array]:
        """Fills in a part of the rows.

        Returns how many of them have entries, how often these keep each community, and what is cut off.
        """
        kept, sizes = filled(*given[1:], k, floor)
        part, cut = slice(given[0], given[0] + len(kept)), sizes[:, r:].astype(np.float64)
        indices[part], values[part], rest[part] = kept[:, :r], sizes[:, :r], cut.sum(axis=1) + (k - most) * floor
        used = given[1][:, 0] != NONE
        kept, cut = (kept, cut) if used.all() else (kept[used], cut[used])
        return len(kept), np.bincount(kept.ravel(), minlength=k), kept[:, r:].ravel(), cut.ravel()

    parts = ((first, *state.entries(first, min(first + _ROWS, n))) for first in range(0, n, _ROWS))
    for size, found, communities, cut in side_by_side(fill, parts):
        known += size
        counts += found
        np.add.at(spread, communities, cut)
    return indices, values, rest, np.full(k, known * floor) - counts * floor + spread


def with_codes(found: Memberships, sampler: Sampler) -> Memberships:
    """``found`` with all of pi in one byte an entry.

    Without, if all entries are stored already, or if they are more than 2^27.
    """
    whole = sampler.options.sparse and found.indices.shape[1] >= sampler.shape.entries
    if whole or not _may_be_coded(found):
        return found
    codes, first = np.empty((len(found.indices), found.width), np.uint8), 0
    for rows in _by_column(_whole_rows(sampler), found.columns):
        codes[first : first + len(rows)] = encoded(rows)
        first += len(rows)
    return replace(found, codes=codes)


def _may_be_coded(found: Memberships) -> bool:
    """Whether entries are left out, and all of pi is at most 2^27 entries."""
    return found.indices.shape[1] < found.k and len(found.indices) * found.width <= MOST_CODES


def with_samples(found: Memberships, sampler: Sampler) -> Memberships:
    """``found`` with what the chain's samples tell: posterior means and deviations, and the draws it has kept."""
    draws = sampler.draws.draws() if sampler.draws is not None else None
    found = replace(found, draws=draws if draws is not None and len(draws) else None)
    if not sampler.options.keeps_spread or sampler.chain.averaged < 2:
        return found
    beta_mean, beta_sd = (by_column(one[None], found.columns)[0] for one in sampler.beta_moments())
    coded = _may_be_coded(found)
    at: list[list[Array]] = [[], []]
    codes: list[list[Array]] = [[], []]
    for (first, stop), both in zip(sampler.state_chunks(), _moments(sampler), strict=True):
        for which, rows in enumerate(both):
            own = by_column(rows, found.columns)
            at[which].append(np.take_along_axis(own, found.indices[first:stop].astype(np.int64), axis=1))
            codes[which].append(encoded(own) if coded else np.zeros((0, 0), np.uint8))
    (mean, sd), (mean_codes, sd_codes) = (list(map(np.concatenate, parts)) for parts in (at, codes))
    prior_sum = sampler.options.prior * sampler.options.n_communities
    return replace(found, posterior=Posterior(mean, sd, beta_mean, beta_sd, mean_codes, sd_codes, prior_sum))


def graph_entry(graph: Graph) -> dict[str, Any]:
    """What the record of any command says of its graph."""
    return {
        "name": graph.name,
        "file": graph.file,
        "reading": dict(graph.reading),
        "vertices": graph.n_vertices,
        "links": graph.n_links,
        "digest": graph.digest,
    }


def record(
    sampler: Sampler,
    cover: Cover,
    rule: dict[str, Any],
    trace: Trace,
    seconds: float,
    notes: dict[str, Any],
) -> dict[str, Any]:
    """The run record as JSON values, with None for numbers that are not finite; ``notes`` are further entries."""
    graph = sampler.split.graph
    found: dict[str, Any] = {
        "mmsbgen": __version__,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "graph": graph_entry(graph)
        | {
            "lines": graph.report.n_lines,
            "self_loops": graph.report.n_self_loops,
            "duplicates": graph.report.n_duplicates,
            "both_ways": graph.report.n_both_ways,
            "directed": graph.report.directed,
            "training_links": sampler.split.n_training_links,
            "held_out_pairs": len(sampler.split.held_out_pairs),
        },
        "problem": dict(sampler.problem),
        "options": asdict(sampler.options),
        "seed": sampler.options.seed,
        "device": {k: v for k, v in sampler.device.info.as_dict().items() if k != "extensions"},
        "fused": sampler.loop is not None,
        "kernels": [choice.as_dict() for choice in sampler.runtime.choices.values()],
        "iterations": sampler.iteration,
        "updates_per_vertex": sampler.chain.vertex_updates / graph.n_vertices,
        "samples_averaged": sampler.averaged,
        "course": sampler.course.as_dict(),
        "seconds": seconds,
        "stage_seconds": sampler.stages.seconds(),
        "memory": {"device": dict(sampler.needs.device), "host": dict(sampler.needs.host)},
        "rule": rule,
        "communities": {
            "count": len(cover.members),
            "coverage": cover.coverage,
            "overlap": cover.overlap,
            "sizes": [len(members) for members in cover.members],
            "background": list(cover.background),
        },
        **notes,
        "trace": trace,
        "versions": versions("numpy", "networkit", *_LIBRARIES.get(sampler.device.info.backend, ())),
    }
    plain: dict[str, Any] = plain_json(found)
    return plain


def as_json(value: dict[str, Any]) -> str:
    """A run record as text."""
    return json.dumps(value, indent=2, allow_nan=False)


def write(
    out: Path,
    found: Memberships,
    cover: Cover,
    run_record: dict[str, Any],
    whole: Sampler | None,
    graph: Split | None = None,
) -> None:
    """Write ``communities.txt``, ``memberships.npz`` and ``run.json`` into the folder ``out``.

    Updates give ``graph``, which is written too.

    A community is a line of tab-separated ids, SNAP's format. The archive holds ``ids``, ``beta``, ``unlinked``,
    ``columns``, and either ``communities`` and ``shares`` ``[N, r]``, ``rest`` ``[N]``, ``spread`` ``[W]`` and
    ``codes`` (:class:`Memberships`) or, streamed from the sampler ``whole``, ``pi`` ``[N, W]``. Column c belongs to
    line c of the communities. Runs that sample add :data:`mmsbgen.sampler.posterior.moments.ARRAYS`, whole ones
    ``pi_mean`` and ``pi_sd`` ``[N, W]``, and arrays that begin with ``draws_``
    (:class:`mmsbgen.sampler.posterior.draws.Draws`). Arrays of further chains have the prefix ``chain1_`` and so on.
    The files are replaced in one transaction, the record last, so that they never mix with files of another run. After
    a kill in between there is no record.
    """
    ids = found.ids if found.ids.dtype != object else np.array(words_for_files(found.ids))
    with ThreadPoolExecutor(1) as beside, FileTransaction() as together:
        text = beside.submit(cover_text, found.ids, cover.members)
        with published_archive(out / "memberships.npz", together) as archive:
            archive.add("ids", ids)
            for name, array in named_arrays(found).items():
                if whole is None or name not in _OF_PI:
                    archive.add(name, array)
            if whole is not None:
                shape = (whole.shape.n_vertices, found.width)
                archive.add_parts("pi", shape, whole.shape.real, _by_column(_whole_rows(whole), found.columns))
                for which, name in enumerate(("pi_mean", "pi_sd") if found.posterior is not None else ()):
                    parts = (both[which] for both in _moments(whole))
                    archive.add_parts(name, shape, whole.shape.real, _by_column(parts, found.columns))
        write_text(out / "communities.txt", text.result(), together)
        if graph is not None:
            write_graph(out / GRAPH_FILE, graph, together)
        write_text(out / "run.json", as_json(run_record) + "\n", together)


def _rows(sampler: Sampler, tell: Tell = lambda share: None) -> Iterator[Array]:
    """pi, or its posterior mean if there are samples, in parts of the vertices."""
    for first, stop in sampler.state_chunks():
        yield sampler.rows(first, stop, mean=True)[0]
        tell(stop / sampler.shape.n_vertices)


def _whole_rows(sampler: Sampler) -> Iterator[Array]:
    """As :func:`_rows`, with 1/K for the vertices that the sweeps leave out."""
    for chunk, rows in zip(sampler.state_chunks(), _rows(sampler), strict=True):
        rows[_left_out(sampler, *chunk)] = 1.0 / sampler.shape.k
        yield rows


def _moments(sampler: Sampler) -> Iterator[tuple[Array, Array]]:
    """Posterior means and standard deviations of pi, in parts of the vertices; the prior's where no sweep has been."""
    mean = 1.0 / sampler.shape.k
    variance = mean * (1.0 - mean) / (sampler.options.prior * sampler.shape.k + 1.0)
    for chunk in sampler.state_chunks():
        means, deviations = sampler.moments(*chunk)
        at = _left_out(sampler, *chunk)
        means[at], deviations[at] = mean, np.sqrt(variance)
        yield means, deviations


def _left_out(sampler: Sampler, first: int, stop: int) -> Array:
    """Places in a range of the vertices that the sweeps leave out."""
    found: Array = sampler.left_out[slice(*np.searchsorted(sampler.left_out, [first, stop]))] - first
    return found


def _by_column(parts: Iterator[Array], columns: npt.NDArray[np.int64]) -> Iterator[Array]:
    for rows in parts:
        yield by_column(rows, columns)
