"""Reading edge lists: what is accepted, what is counted, and what the refusals say."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.graph import Graph, GraphWarning, load_edge_list
from mmsbgen.graph.files import tokens
from mmsbgen.graph.files.tokens import parse_integers, split_fields

DATA = Path(__file__).parents[1] / "data"


def load(folder: Path, text: str | bytes, name: str = "g.txt") -> Graph:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_edge_list(file)


def named_links(graph: Graph) -> list[tuple[object, object]]:
    return [tuple(graph.ids[row].tolist()) for row in graph.links]


@pytest.mark.parametrize(
    ("name", "n_vertices", "n_links", "n_lines", "n_loops", "max_degree", "n_isolated"),
    [
        # One vertex of CA-GrQc has nothing but a line to itself.
        ("CA-GrQc", 5242, 14484, 28980, 12, 81, 1),
        ("netscience", 1461, 2742, 2742, 0, 34, 0),
        ("fb_348", 227, 3192, 3192, 0, 99, 3),
        ("fb_3980", 59, 146, 146, 0, 18, 7),
        ("lfr-n1000-k28", 1000, 29871, 59742, 0, 61, 0),
    ],
)
def test_real_files(
    name: str, n_vertices: int, n_links: int, n_lines: int, n_loops: int, max_degree: int, n_isolated: int
) -> None:
    graph = load_edge_list(DATA / f"{name}.txt.gz")
    assert (graph.name, graph.n_vertices, graph.n_links) == (name, n_vertices, n_links)
    assert graph.degrees().max() == max_degree
    report = graph.report
    assert (report.n_lines, report.n_self_loops, report.n_isolated) == (n_lines, n_loops, n_isolated)
    assert report.n_duplicates == n_lines - n_loops - n_links
    assert not report.directed
    assert np.count_nonzero(graph.degrees() == 0) == n_isolated


def test_directed_file_is_folded_with_a_warning() -> None:
    with pytest.warns(
        GraphWarning, match="8865 of its 16064 links are listed in both directions.*if this is a directed graph"
    ):
        graph = load_edge_list(DATA / "email-Eu-core.txt.gz")
    assert (graph.n_vertices, graph.n_links, graph.degrees().max()) == (1005, 16064, 345)
    assert graph.report.directed
    assert graph.report.n_self_loops == 642
    assert graph.report.n_duplicates == graph.report.n_both_ways == 25571 - 642 - 16064


def test_real_file_against_a_plain_reader() -> None:
    links = set()
    for line in gzip.decompress((DATA / "CA-GrQc.txt.gz").read_bytes()).decode().splitlines():
        if not line.startswith("#"):
            u, v = map(int, line.split())
            if u != v:
                links.add((min(u, v), max(u, v)))
    assert named_links(load_edge_list(DATA / "CA-GrQc.txt.gz")) == sorted(links)


def test_isolated_vertices_keep_their_ids() -> None:
    graph = load_edge_list(DATA / "fb_3980.txt.gz")
    assert graph.ids[graph.degrees() == 0].tolist() == [3, 28, 30, 35, 42, 44, 55]


@pytest.mark.parametrize(
    "text",
    [
        "1 2\n2\t3\n",
        "2 3\r\n1 2\r\n",
        "1 2\r2 3\r",
        "1 2\n2 3",
        "\ufeff1 2\n2 3\n",
        "# head\n\n1   2  \n   % aside: 7 8 9\n \t 2 3\n\n#tail without end",
        "1 2 # remark # 1 %2 3\n#5 6\n2 3 #",
        "2 1\n3 2\n",
        "1 2\n1 2\n3 3\n2 3\n",
    ],
)
def test_spellings_of_one_graph(tmp_path: Path, text: str) -> None:
    graph = load(tmp_path, text)
    assert graph.ids.tolist() == [1, 2, 3]
    assert graph.ids.dtype == np.int64
    assert graph.links.tolist() == [[0, 1], [1, 2]]
    packed = load(tmp_path, gzip.compress(text.encode()), "name_says_nothing.txt")
    assert packed.digest == graph.digest


def test_counts(tmp_path: Path) -> None:
    report = load(tmp_path, "# 9 9\n1 2\n2 1\n1 2\n4 4\n3 2\n2 3\n\n").report
    assert (report.n_lines, report.n_self_loops, report.n_duplicates, report.n_both_ways) == (6, 1, 3, 2)
    assert (report.directed, report.n_isolated) == (False, 1)


@pytest.mark.filterwarnings("error")
def test_every_link_in_both_directions_is_no_directed_graph(tmp_path: Path) -> None:
    assert load(tmp_path, "1 2\n2 3\n2 1\n3 2\n").report.n_duplicates == 2


def test_some_links_in_both_directions_warn(tmp_path: Path) -> None:
    with pytest.warns(GraphWarning, match=r"g: 1 of its 2 links .* direction is dropped"):
        load(tmp_path, "1 2\n2 3\n2 1\n")


def test_integer_ids_are_sorted_as_numbers(tmp_path: Path) -> None:
    graph = load(tmp_path, "10 9\n-3 10\n9223372036854775807 -9223372036854775808\n0 9\n")
    assert graph.ids.tolist() == [-(2**63), -3, 0, 9, 10, 2**63 - 1]
    assert set(named_links(graph)) == {(9, 10), (-3, 10), (-(2**63), 2**63 - 1), (0, 9)}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("b a\nC# b\nä b\n", ["C#", "a", "b", "ä"]),
        ("007 7\n7 10\n", ["007", "10", "7"]),
        ("+5 5\n", ["+5", "5"]),
        ("-0 0\n", ["-0", "0"]),
        ("- 1\n", ["-", "1"]),
        ("9223372036854775808 1\n", ["1", "9223372036854775808"]),
        ("-9223372036854775809 1\n", ["-9223372036854775809", "1"]),
        ("123456789012345678901234567890 1\n", ["1", "123456789012345678901234567890"]),
        ("1 2\n3 x4\n# isolated nodes: n1, n2 \n", ["1", "2", "3", "n1", "n2", "x4"]),
        ("1 2\n# isolated nodes: n1\n", ["1", "2", "n1"]),
        ("1:2 1/2\n", ["1/2", "1:2"]),
        ("a %b\n", ["%b", "a"]),
    ],
)
def test_ids_that_are_no_plain_integers_stay_as_written(tmp_path: Path, text: str, ids: list[str]) -> None:
    graph = load(tmp_path, text)
    assert graph.ids.tolist() == ids
    assert graph.ids.dtype.kind == "U"


def test_isolated_comment(tmp_path: Path) -> None:
    graph = load(
        tmp_path, "1 2\n  # Isolated vertices (no line): 7,-5 , 1\n# not isolated nodes: 99\nisolated 2\n# x: 3"
    )
    assert graph.ids.tolist() == ["-5", "1", "2", "7", "isolated"]
    assert load(tmp_path, "# isolated nodes:\n1 2\n").n_vertices == 2


def test_very_long_ids_do_not_blow_up_memory(tmp_path: Path) -> None:
    graph = load(tmp_path, f"a {'x' * 5000}\na b\n")
    assert graph.ids.dtype == object
    assert graph.ids.tolist() == ["a", "b", "x" * 5000]


@given(
    pairs=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-12, 120)), min_size=1, max_size=40),
    block=st.integers(1, 60),
)
@pytest.mark.filterwarnings("ignore::mmsbgen.graph.GraphWarning")
def test_any_integers_in_blocks_of_any_size(
    pairs: list[tuple[int, int]], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.txt"
    file.write_text("0 1\n" + "".join(f"{u}\t{v}\n" for u, v in pairs))
    pairs = [(0, 1), *pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "BLOCK_BYTES", block)
        graph = load_edge_list(file)
    assert graph.ids.tolist() == sorted({vertex for pair in pairs for vertex in pair})
    assert named_links(graph) == sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    assert graph.report.n_self_loops == sum(u == v for u, v in pairs)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["is empty", "two ids"]),
        (b" \n\t\r\n", ["is empty"]),
        (b"# isolated nodes: a b\n", ["no link"]),
        (b"# nothing\n", ["no link", "at least one pair"]),
        (b"1 1\n2 2\n", ["no link", "2 self-loops were dropped"]),
        (b"1 2\n\n3\n", ["line 3: '3' has one field", "mend the line"]),
        (b"# c\n1 2 0.7\n", ["line 2: '1 2 0.7' has 3 fields", "'0.7', may be a weight", "--columns A,B"]),
        (b"1 2 {}\n", ["line 1: '1 2 {}' ends in a dictionary", "--columns 1,2"]),
        (b"1 2\n3 4 5 6\n", ["line 2", "has 4 fields", "'5'"]),
        (b"1 2 3\n4\n5 6\n", ["line 1", "3 fields"]),
        (b"import os\n\nprint('one two three')\nreturn\nx = 1\n", ["is no edge list: of its first 4 lines 1 are"]),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ["is not a graph file"]),
        (b"1 2\n3,4\n", ["line 2: '3,4' has one field", "mend the line"]),
        (b"1 2\n1, 2\n", ["'1,' has a separator at its end"]),
        (b"\xff\xfe1", ["begins as UTF-16 text"]),
        (b"\xa4\x00\xff\x10\n", ["line 1: byte 0x00, which no text has", "give an edge list"]),
        ("1 2\n".encode("utf-16-le"), ["line 1: byte 0x00"]),
        (gzip.compress(b"1 2\n" * 1000, mtime=0)[:-12], ["cut-off gzip", "fetch it again"]),
        (gzip.compress(b"1 2\n", mtime=0)[:-8] + b"\0" * 8, ["damaged", "fetch it again"]),
        (b"\x1f\x8b\x07", ["gzip"]),
        (b"BZh91AY", ["bzip2 archive; unpack it"]),
        (b"PK\x03\x04xx", ["zip archive; unpack it"]),
        (b"%%MatrixMarket matrix coordinate\n3 3 1\n1 2\n", ["has the format mtx", "no edge list"]),
    ],
)
def test_refusals_name_file_value_and_remedy(tmp_path: Path, content: bytes, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, content)
    message = str(caught.value)
    assert "g.txt" in message or message.startswith("g:")
    for part in parts:
        assert part in message


def test_line_number_counts_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BLOCK_BYTES", 16)
    with pytest.raises(InputError, match=r"line 78: '1 2 0\.5'"):
        load(tmp_path, "# c\n1 2\n\n" * 25 + "3 4\n# d\n1 2 0.5\n")


def test_long_values_are_cut(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.\.\.' has one field") as caught:
        load(tmp_path, "x" * 100_000 + "\n")
    assert len(str(caught.value)) < 500


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.txt: no such file; check the path"):
        load_edge_list(tmp_path / "none.txt")
    with pytest.raises(InputError, match="is a directory; give the file of the graph inside it"):
        load_edge_list(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        load_edge_list(tmp_path / ("x" * 300))


def test_one_long_id_among_short_ones_takes_little_memory() -> None:
    """Blocks are read in threads: each of them takes what one takes."""
    fields = split_fields(b"1 -2\n" * 50_000 + b"-9223372036854775808 9223372036854775807\n")
    tracemalloc.start()
    try:
        found = parse_integers(fields)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    np.testing.assert_array_equal(found[:-2].reshape(-1, 2), np.broadcast_to([1, -2], (50_000, 2)))
    assert found[-2:].tolist() == [-(2**63), 2**63 - 1]
    assert peak < 80 * found.size
