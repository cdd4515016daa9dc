"""Files of every format with bytes that are cut, exchanged or repeated: read, or refused in one sentence."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.graph import ReadingOptions, load_graph
from mmsbgen.scores import read_cover
from tests import records

GRAPH = nx.Graph([(1, 2), (2, 3), (3, 4), (4, 10), (2, 10), (1, 10)])
TRIES = 60
ODD = [b"\0", b"\xff\xfe", b"\n", b'"', b"<", b"[" * 2000, b"9" * 5000, b"-1", b"1e999", "²".encode(), b"\x1b[2J"]


def written(write: Callable[[Any], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


MATRIX = sparse.coo_array(nx.to_scipy_sparse_array(GRAPH))
FILES: dict[str, bytes] = {
    "g.txt": "".join(f"{u}\t{v}\n" for u, v in GRAPH.edges).encode(),
    "g.txt.gz": gzip.compress("".join(f"{u} {v}\n" for u, v in GRAPH.edges).encode(), mtime=0),
    "g.csv": b"source,target,weight\n" + b"".join(b'"%d",%d,1\n' % pair for pair in GRAPH.edges),
    "g.graphml": written(lambda file: nx.write_graphml(GRAPH, file)),
    "g.gexf": written(lambda file: nx.write_gexf(GRAPH, file)),
    "g.gml": written(lambda file: nx.write_gml(GRAPH, file)),
    "g.net": written(lambda file: nx.write_pajek(nx.relabel_nodes(GRAPH, str), file)),
    "g.mtx": written(lambda file: scipy_io.mmwrite(file, MATRIX.astype(int), field="pattern")),
    "g.npz": written(lambda file: sparse.save_npz(file, MATRIX)),
    "g.npy": written(lambda file: np.save(file, np.array(GRAPH.edges))),
    "g.parquet": written(nx.to_pandas_edgelist(GRAPH).to_parquet),
    "g.adjlist": written(lambda file: nx.write_adjlist(GRAPH, file)),
    "g.metis": b"4 3\n2\n1 3\n2 4\n3\n",
    "g.dimacs": b"p edge 4 3\ne 1 2\ne 2 3\ne 3 4\n",
}


def changed(content: bytes, rng: random.Random) -> bytes:
    """``content`` after some of: a cut, other bits, other bytes, a part that is gone or comes again."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        at, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : min(stop, at + 8)]
            case 2:
                data[at:at] = data[at:stop]
            case 3:
                data[at:at] = rng.choice(
                    [b"\0", b"\xff\xfe", b"\n", b'"', b"<", b"[" * 2000, b"9" * 5000, b"-1", b"1e999"]
                )
            case 4:
                data[at : at + 4] = rng.randbytes(4)
            case _ if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.mark.parametrize("name", FILES)
def test_damaged_graphs(tmp_path: Path, name: str) -> None:
    rng, told = random.Random(0), list[str]()
    kind = Path(name).suffix[1:]
    reading = ReadingOptions(format=kind if kind in ("adjlist", "metis") else "auto", weights="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(TRIES):
            (tmp_path / name).write_bytes(changed(FILES[name], rng))
            try:
                graph = load_graph(tmp_path / name, reading)
            except MmsbgenError as error:
                told.append(str(error))
            else:
                assert graph.n_links > 0
    assert len(told) > TRIES / 10
    assert max(map(len, told)) < 1500


def test_a_matrix_whose_last_line_is_damaged(tmp_path: Path) -> None:
    """SciPy's reader crashes the process at a sign behind the last number, where no line end follows."""
    head = b"%%MatrixMarket matrix coordinate pattern symmetric\n%\n5 5 6\n2 1\n3 2\n4 3\n5 1\n5 2\n5 4"
    for end in (b"\x02", b"\x8a", b"x", b"", b"\n"):
        (tmp_path / "g.mtx").write_bytes(head + end)
        with contextlib.suppress(MmsbgenError):
            assert load_graph(tmp_path / "g.mtx").n_links == 6


def test_damaged_covers(tmp_path: Path) -> None:
    rng = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(300):
            (tmp_path / "cover").write_bytes(changed(b"1\t2\t3\n# c\n3 4 5\n\n6,7\n", rng))
            with contextlib.suppress(MmsbgenError):
                assert read_cover(tmp_path / "cover")


def test_damaged_records(tmp_path: Path) -> None:
    jsonl.write(Bundle([records.RUN], [], [records.trial(1e-3)]), tmp_path / "records")
    content = (tmp_path / "records").read_bytes()
    rng = random.Random(0)
    for _ in range(300):
        (tmp_path / "records").write_bytes(changed(content, rng))
        with contextlib.suppress(MmsbgenError):
            jsonl.read(tmp_path / "records")
