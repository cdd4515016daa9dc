"""Files that unpack to more than the memory holds, and fields that take more than they look."""

from __future__ import annotations

import gzip
import os
import re
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import scipy.sparse as sparse
from click.testing import CliRunner

from mmsbgen.base import host_memory
from mmsbgen.base.errors import InputError
from mmsbgen.base.user_files import most_fields, read_unpacked
from mmsbgen.cli import main
from mmsbgen.db.exchange import jsonl
from mmsbgen.graph import ReadingOptions, as_arcs, load_graph
from mmsbgen.scores import read_cover

LEFT = 16_000_000
"""Bytes of memory in these tests."""


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available_host_memory", lambda: (LEFT, "the limit of this test"))


def bomb(path: Path, text: bytes, times: int) -> Path:
    """A gzip file of ``text``, ``times`` times."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(times):
            file.write(text)
    return path


READERS = {"graph": load_graph, "cover": read_cover, "records": jsonl.read}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("text", [b"\0", b"\n", b"1 2\n", b"[[]," * 64], ids=repr)
def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, kind: str, text: bytes) -> None:
    part = text * (1_000_000 // len(text))
    file = bomb(tmp_path / "bomb.gz", part, 20)
    assert file.stat().st_size < 400_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"bomb\.gz .*the limit of this test leaves 16 MB"):
            READERS[kind](file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LEFT


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        (b"1 2\n", {}),
        (b"a b\n", {}),
        (b"a,b\n", {}),
        (b"1 2" + b"\n" * 300_000, {"format": "adjlist"}),
        (b"1 2\n", {"format": "metis"}),
        (b"e 1 2\n", {"format": "dimacs"}),
        (b"%%MatrixMarket matrix coordinate pattern general\n" + b"1 2\n" * 700_000, {}),
        (b"<graphml>" + b"<node id='1'/>" * 200_000, {}),
        (b"graph [ " + b"node [ id 1 ]\n" * 100_000, {}),
        (b"*vertices 2\n" + b"1 2\n" * 300_000, {}),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_many_short_fields_are_counted_before_they_become_objects(tmp_path: Path, text: bytes, reading: dict) -> None:
    """They fit into the limit on bytes, and take many times as much once they are read."""
    file = tmp_path / "fields.txt"
    file.write_bytes(text if len(text) > 100 else text * (2_000_000 // len(text)))
    assert file.stat().st_size < LEFT / 4
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"fields\.txt takes about .* to read, and the limit of this test leaves"):
            load_graph(file, ReadingOptions(**reading))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LEFT


def test_covers_vertices_and_arcs_of_many_short_fields_too(tmp_path: Path) -> None:
    file, graph = tmp_path / "fields.txt", tmp_path / "graph.txt"
    file.write_bytes(b"1\n" * 1_000_000)
    graph.write_text("1 2\n")
    with pytest.raises(InputError, match=r"fields\.txt takes about .* to read"):
        read_cover(file)
    with pytest.raises(InputError, match=r"fields\.txt takes about .* to read"):
        load_graph(graph, ReadingOptions(vertices=file))
    with pytest.raises(InputError, match=r"^[^:]*fields\.txt takes about .* to read"):
        as_arcs(file)


@pytest.mark.parametrize(
    "words",
    [
        ["detect", "BOMB"],
        ["detect", "GRAPH", "--vertices", "BOMB"],
        ["evaluate", "BOMB", "GRAPH"],
        ["evaluate", "GRAPH", "GRAPH", "--graph", "BOMB"],
        ["db", "--database", "DATABASE", "import", "BOMB"],
    ],
    ids=" ".join,
)
def test_commands_tell_of_a_bomb_in_one_line(tmp_path: Path, words: list[str]) -> None:
    bomb(tmp_path / "BOMB", b"\0" * 1_000_000, 20)
    (tmp_path / "GRAPH").write_text("1 2\n2 3\n")
    result = CliRunner().invoke(main, [str(tmp_path / word) if word.isupper() else word for word in words])
    assert result.exit_code == 2, result.output
    assert re.fullmatch(r"Error: .*BOMB unpacks to more than .* limit of this test leaves 16 MB.*\n", result.stderr)
    assert not (tmp_path / "DATABASE").exists()


def test_arrays_and_tables_that_unpack_to_more_than_fits(tmp_path: Path) -> None:
    n = 1_000_000
    sparse.save_npz(
        tmp_path / "m.npz", sparse.coo_array((np.ones(n, np.int8), np.zeros((2, n), np.int32)), shape=(2, 2))
    )
    parquet.write_table(pyarrow.table({"source": np.zeros(n, np.int8), "target": np.ones(n, np.int8)}), tmp_path / "t")
    np.save(tmp_path / "a.npy", np.zeros((100_000, 2), np.int64))
    for name in ("m.npz", "t", "a.npy"):
        assert (tmp_path / name).stat().st_size < LEFT / 8
        with pytest.raises(InputError, match=f"{name} takes about .* to read"):
            load_graph(tmp_path / name)


def test_the_limit_holds_for_plain_files_and_for_what_never_ends(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"1 2\n" * 2_000_000)
    with pytest.raises(InputError, match=r"plain has more than 4 MB"):
        read_unpacked(tmp_path / "plain")
    with pytest.raises(InputError, match=r"/dev/zero has more than 4 MB"):
        read_unpacked(Path("/dev/zero"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_to_its_end(tmp_path: Path, packed: bool) -> None:
    content = b"1 2\n2 3\n" * 50_000
    stored = gzip.compress(content) if packed else content
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with open(tmp_path / "pipe", "wb", buffering=0) as file:
            for first, stop in ((0, 1), (1, 3), (3, None)):
                file.write(stored[first:stop])

    writer = threading.Thread(target=write)
    writer.start()
    assert read_unpacked(tmp_path / "pipe") == content
    writer.join()


def test_what_gzip_allows_is_read(tmp_path: Path) -> None:
    """Several members, zeros behind them, and an empty file."""
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"1 2\n") + gzip.compress(b"2 3\n") + b"\0" * 100)
    assert read_unpacked(tmp_path / "two.gz") == b"1 2\n2 3\n"
    (tmp_path / "none.gz").write_bytes(gzip.compress(b""))
    assert read_unpacked(tmp_path / "none.gz") == b""
    for name, content in (("more", gzip.compress(b"1 2\n") + b"rubbish"), ("cut", gzip.compress(b"1 2\n" * 99)[:-4])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="damaged or cut-off gzip"):
            read_unpacked(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "fields"),
    [(b"", 0), (b"1 2", 2), (b"  1\t2 \r\n3,4;5|6", 6), (b"\n\n\n", 3), (b"ab\n" * 3_000_000, 3_000_000)],
)
def test_fields_are_counted(text: bytes, fields: int) -> None:
    assert most_fields(text) == fields
