"""Files as programs and people write them: each gives exactly its links, or is refused with the reason."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import igraph
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io
from scipy import sparse

from mmsbgen.base import libraries
from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.graph import Graph, GraphWarning, ReadingOptions, as_graph, load_edge_list, load_graph

PEOPLE = nx.Graph([("Ann Lee", "bob"), ("bob", "cid"), ("cid", "Zoë")])
NUMBERS = nx.Graph([(10, 7), (7, 8), (8, 10), (8, 9)])
HEAVY = nx.Graph()
HEAVY.add_weighted_edges_from([(1, 2, 0.5), (2, 3, 2.0), (3, 4, 1.0)])
TABLE = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cid"], "weight": [0.5, 2.0]})
MTX = "%%MatrixMarket matrix coordinate "
GEXF = '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2"><graph defaultedgetype="undirected">{}</graph></gexf>'
GRAPHML = '<?xml version="1.0"?>{}<graphml><graph edgedefault="undirected">{}</graph></graphml>'
NODES = '<node id="a"/><node id="b"/>'

Pairs = set[tuple[Any, ...]]


def pairs_of(graph: Graph) -> Pairs:
    return {tuple(sorted(pair)) for pair in graph.ids[graph.links].tolist()}


def save(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def written(write: Callable[[Any], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def by_igraph(write: str, folder: Path, names: list[str] | None = None) -> bytes:
    graph = igraph.Graph([(0, 1), (1, 2)])
    if names:
        graph.vs["name"] = names
    getattr(graph, write)(str(folder / "made"))
    return (folder / "made").read_bytes()


def matrix(graph: nx.Graph) -> Any:
    return sparse.csr_array(nx.to_scipy_sparse_array(graph))


WRITERS: dict[str, Callable[[nx.Graph], bytes]] = {
    "g.graphml": lambda graph: written(lambda file: nx.write_graphml(graph, file)),
    "g.gexf": lambda graph: written(lambda file: nx.write_gexf(graph, file)),
    "g.gml": lambda graph: written(lambda file: nx.write_gml(graph, file)),
    "g.net": lambda graph: written(lambda file: nx.write_pajek(nx.relabel_nodes(graph, str), file)),
    "g.txt": lambda graph: "".join(f"{u}\t{v}\n" for u, v in graph.edges).encode(),
    "g.csv": lambda graph: nx.to_pandas_edgelist(graph).to_csv().encode(),
    "g.parquet": lambda graph: written(nx.to_pandas_edgelist(graph).to_parquet),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("graph", [PEOPLE, NUMBERS], ids=["people", "numbers"])
@pytest.mark.parametrize("name", WRITERS)
def test_one_graph_in_every_format(tmp_path: Path, name: str, graph: nx.Graph, packed: bool) -> None:
    content = WRITERS[name](graph)
    read = load_graph(save(tmp_path, f"{name}.gz" if packed else name, gzip.compress(content) if packed else content))
    assert pairs_of(read) == {tuple(sorted(pair)) for pair in graph.edges}
    assert read.digest == as_graph(graph).digest
    assert (read.name, read.file) == ("g", str(tmp_path / f"{name}{'.gz' if packed else ''}"))


@pytest.mark.parametrize("name", ["g.graphml", "g.gexf", "g.gml", "g.net"])
def test_content_decides_and_not_the_name(tmp_path: Path, name: str) -> None:
    assert pairs_of(load_graph(save(tmp_path, "g.txt", WRITERS[name](NUMBERS)))) == set(
        map(tuple, map(sorted, NUMBERS.edges))
    )


@pytest.mark.parametrize("name", ["g.graphml", "g.gexf", "g.gml", "g.net", "g.parquet"])
def test_the_reader_of_edge_lists_takes_nothing_else(tmp_path: Path, name: str) -> None:
    """It is the one that reads what people upload to a service."""
    with pytest.raises(InputError, match="has the format .*, and is no edge list or table"):
        load_edge_list(save(tmp_path, name, WRITERS[name](PEOPLE)))


@pytest.mark.parametrize("name", ["g.graphml", "g.gexf", "g.gml", "g.net", "g.csv", "g.parquet"])
def test_weights_need_a_rule(tmp_path: Path, name: str) -> None:
    if name == "g.net":
        content = b'*Vertices 4\n1 "1"\n2 "2"\n3 "3"\n4 "4"\n*Edges\n1 2 0.5\n2 3 2.0\n3 4\n'
    else:
        content = WRITERS[name](HEAVY)
    file = save(tmp_path, name, content)
    with pytest.raises(InputError, match=r"a link has weight 0\.5; .* --weights ignore .* --weights threshold=X"):
        load_graph(file)
    assert pairs_of(load_graph(file, ReadingOptions(weights="ignore"))) == {(1, 2), (2, 3), (3, 4)}
    strong = load_graph(file, ReadingOptions(weights="threshold=1"))
    assert pairs_of(strong) == {(2, 3), (3, 4)}
    assert strong.n_vertices == 4
    with pytest.raises(InputError, match="no link"):
        load_graph(file, ReadingOptions(weights="threshold=3"))


ARROWS = '*Vertices 3\n1 "Ann Lee" 0.1 0.2 0.5\n2 "bob"\n3 cid\n*Arcs\n1 2 1\n2 3 1\n'
ABC = {("a", "b"), ("b", "c")}
CHAIN = {(1, 2), (2, 3)}

READ: list[tuple[str, str | bytes, dict[str, Any], Pairs]] = [
    ("gephi.graphml",
     '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key attr.name="label" id="label" for="node"/>'
     '<key attr.name="Edge Label" for="edge" id="edgelabel"/><key attr.name="weight" for="edge" id="weight"/>'
     '<graph edgedefault="undirected"><node id="a"><data key="label">A</data></node><node id="b"/><node id="c"/>'
     '<edge id="0" source="a" target="b"><data key="weight">1.0</data></edge><edge source="b" target="c"/>'
     "</graph></graphml>",
     {}, ABC),
    ("default-weight.graphml", '<graphml><key attr.name="weight" id="w" for="edge"><default>3</default></key><graph>'
     f'{NODES}<node id="c"/><edge source="a" target="b"/><edge source="b" target="c"><data key="w">1</data></edge>'
     "</graph></graphml>", {"weights": "threshold=2"}, {("a", "b")}),
    ("nested.graphml",
     GRAPHML.format("", f'<node id="x"><graph>{NODES}</graph></node><edge source="a" target="b"/>'),
     {}, {("a", "b")}),
    ("doctype.graphml",
     GRAPHML.format("<!DOCTYPE graphml SYSTEM 'file:///etc/passwd'>", f'{NODES}<edge source="a" target="b"/>'),
     {}, {("a", "b")}),
    ("utf-16.graphml",
     GRAPHML.replace("?>", ' encoding="utf-16"?>').format("", f'{NODES}<edge source="b" target="a"/>').encode("utf-16"),
     {}, {("a", "b")}),
    ("gephi.gexf", GEXF.format('<nodes><node id="a" label="A"/><node id="b" label="B"/><node id="c"/></nodes><edges>'
     '<edge id="0" source="a" target="b" weight="1.0"/><edge id="1" source="b" target="c"/></edges>'), {}, ABC),
    ("newman.gml",
     'Creator "Mark Newman"\ngraph\n[\n  node\n  [\n    id 0\n    label "a"\n  ]\n  node [ id 1 label "b" ]\n'
     '  node [ id 5 label "c" ]\n  edge\n  [\n    source 0\n    target 1\n  ]\n  edge [ source 1 target 5 ]\n]\n',
     {}, ABC),
    ("ids-only.gml",
     "graph [ node [ id 1 ] node [ id 2 ] node [ id 3 ]\n edge [ source 1 target 2 ] edge [ source 2 target 3 ] ]",
     {}, CHAIN),
    ("labels-in-part.net", '*Vertices 3\n2 "b"\n*Edges\n1 2\n2 3\n', {}, {("1", "b"), ("3", "b")}),
    ("list.net", "% c\n*Vertices 3\r\n*Edgeslist\r\n1 2 3\r\n", {}, {(1, 2), (1, 3)}),
    ("symmetric.mtx", MTX + "pattern symmetric\n% by hand\n3 3 2\n2 1\n3 2\n", {}, CHAIN),
    ("general.mtx", MTX + "real general\n3 3 4\n1 2 .5\n2 1 .5\n2 3 3\n3 2 3\n", {"weights": "ignore"}, CHAIN),
    ("strong.mtx", MTX + "real general\n3 3 4\n1 2 .5\n2 1 .5\n2 3 3\n3 2 3\n", {"weights": "threshold=1"}, {(2, 3)}),
    ("dense.mtx", "%%MatrixMarket matrix array integer general\n2 2\n0\n1\n1\n0\n", {}, {(1, 2)}),
    ("packed.mtx.gz", gzip.compress((MTX + "pattern symmetric\n3 3 2\n2 1\n3 2\n").encode()), {}, CHAIN),
    ("g.npz", written(lambda file: sparse.save_npz(file, matrix(nx.path_graph(3)))), {}, {(0, 1), (1, 2)}),
    ("strong.npz",
     written(lambda file: sparse.save_npz(file, matrix(HEAVY))),
     {"weights": "threshold=1"}, {(1, 2), (2, 3)}),
    ("g.npy", written(lambda file: np.save(file, np.array([[1, 2], [2, 3]], np.uint32))), {}, CHAIN),
    ("words.npy.gz", gzip.compress(written(lambda file: np.save(file, np.array([["a", "b"], ["b", "c"]])))), {}, ABC),
    ("columns.parquet", written(TABLE.rename(columns={"source": "who", "target": "whom"}).to_parquet),
     {"columns": ("who", "whom", "weight"), "weights": "threshold=1"}, {("bob", "cid")}),
    ("neighbours.txt",
     "# by networkx\na b c # two\nb c\n\nd\n",
     {"format": "adjlist"}, {("a", "b"), ("a", "c"), ("b", "c")}),
    ("all-neighbours.txt", "1\t2\n2\t1 3\n3\t2\n", {"format": "adjlist"}, CHAIN),
    ("ring.metis", "% a ring\n4 4\n2 4\n1 3\n2 4\n1 3\n", {"format": "metis"}, {(1, 2), (2, 3), (3, 4), (1, 4)}),
    ("alone.metis", "4 2\n2\n1 3\n2\n\n", {"format": "metis"}, CHAIN),
    ("weights.metis", "3 2 011\n9 2 5\n9 1 5 3 1\n9 2 1\n", {"format": "metis", "weights": "threshold=2"}, {(1, 2)}),
    ("graph.col", "c of 1992\np edge 4 2\ne 1 2\ne 2 3\n", {}, CHAIN),
    ("both-ways.txt", "p col 3 2\ne 1 2\ne 2 1\ne 2 3\ne 3 2\n", {}, CHAIN),
    ("out.konect", "% sym unweighted\n% 2 3 3\n1\t2 1 99\n2\t3 1 100\n", {}, CHAIN),
    ("out.two", "% sym unweighted\n1 2\n2 3\n", {}, CHAIN),
    ("out.signed", "% asym signed\n1 2 -1\n2 3 1\n", {"weights": "threshold=1"}, {(2, 3)}),
    ("out.ends", "% sym weighted\n1 2 7\n2 3 1\n", {"columns": (1, 2)}, CHAIN),
    ("snap.txt", "# Directed graph\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n", {}, CHAIN),
    ("network.dat", "1\t2\n2\t1\n2\t3\n3\t2\n", {}, CHAIN),
    ("lfr-weighted.dat",
     "1\t2\t.5\n2\t1\t.5\n2\t3\t2\n3\t2\t2\n",
     {"columns": (1, 2, 3), "weights": "threshold=1"}, {(2, 3)}),
    ("times.txt", "1 2 1082040961\n2 3 1082155839\n", {"columns": (1, 2)}, CHAIN),
    ("index.csv", TABLE.to_csv(), {"weights": "ignore"}, {("ann", "bob"), ("bob", "cid")}),
    ("strong.csv", TABLE.to_csv(), {"weights": "threshold=1"}, {("bob", "cid")}),
    ("strong-ends.csv", TABLE.to_csv(), {"weights": "threshold=1", "columns": ("source", "target")}, {("bob", "cid")}),
    ("rating.csv",
     "who,whom,rating\na,b,5\nb,c,1e1\nc,d,-3\n",
     {"columns": ("who", "whom", "rating"), "weights": "threshold=5"}, ABC),
    ("excel.csv", "sep=;\r\nsource;target\r\na;b\r\nb;c\r\n", {}, ABC),
    ("r-table.txt", '"from" "to"\n"a" "b"\n"b" "c"\n', {}, ABC),
    ("names.txt", '"a, of x" "b, of y"\n"b, of y" "c, of x"\n', {}, {("a, of x", "b, of y"), ("b, of y", "c, of x")}),
    ("utf-16.txt", "a\tb\nb\tc\n".encode("utf-16"), {}, ABC),
    ("counts.txt", "4 2\n1 2\n2 3\n", {"format": "text"}, {(1, 2), (2, 3), (2, 4)}),
]  # fmt: skip

REFUSED: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    ("pairs.txt", "(0, 1)\n(1, 2)\n", {}, "every line is in brackets, such as '(0, 1)'"),
    ("lists.txt", "[0,1],\n[1,2],\n", {}, "every line is in brackets"),
    ("metis.txt", "3 2\n2\n1 3\n2\n", {"format": "adjlist"}, "not clear whether the first line, '3 2', is a vertex"),
    ("colons.txt", "0: 1 2\n1: 0\n", {"format": "adjlist"}, "separator at its end"),
    ("attributes.txt", "0 1\n1 {'weight': 4}\n", {"format": "adjlist"}, "separator at its end"),
    ("empty.graphml", "", {}, "is empty"),
    ("cut.graphml", "<graphml><graph><node id='a'/>", {}, "is damaged XML (no element found: line 1"),
    ("text.graphml", "1 2\n2 3\n", {}, "is damaged XML"),
    ("laughs.graphml",
     GRAPHML.format('<!DOCTYPE x [<!ENTITY l "lol"><!ENTITY m "&l;&l;">]>', '<node id="&m;"/>'),
     {}, "defines the entity 'l'"),
    ("dangling.graphml",
     GRAPHML.format("", f'{NODES}<edge source="a" target="z"/>'),
     {}, "a link of 'z', which is no node"),
    ("hyper.graphml", GRAPHML.format("", f'{NODES}<hyperedge><endpoint node="a"/></hyperedge>'), {}, "has hyperedges"),
    ("two.graphml", GRAPHML.format("", NODES).replace("</graphml>", "<graph/></graphml>"), {}, "more than one graph"),
    ("no-id.gexf", GEXF.format("<nodes><node label='a'/></nodes>"), {}, "an element <node> without id"),
    ("heavy.gexf",
     GEXF.format(f'<nodes>{NODES}</nodes><edges><edge source="a" target="b" weight="2"/></edges>'),
     {}, "has weight 2;"),
    ("words.gexf",
     GEXF.format(f'<nodes>{NODES}</nodes><edges><edge source="a" target="b" weight="x"/></edges>'),
     {"weights": "threshold=1"}, "has weight 'x', which is no number"),
    ("other.xml", '<?xml version="1.0"?><svg></svg>', {}, "is XML, but neither GraphML nor GEXF"),
    ("cut.gml", "graph [ node [ id 1 ", {}, "is no whole GML file"),
    ("dangling.gml", "graph [ node [ id 1 ] edge [ source 1 target 2 ] ]", {}, "Unknown target node id"),
    ("large.gml",
     f"graph [ node [ id {2**53} ] node [ id 1 ] edge [ source 1 target {2**53} ] ]",
     {}, "write it as GraphML"),
    ("text.net", "1 2\n2 3\n", {}, "0 parts that begin with *Vertices"),
    ("two.net", "*Vertices 2\n*Edges\n1 2\n*Vertices 2\n*Edges\n1 2\n", {}, "2 parts that begin with *Vertices"),
    ("dangling.net", "*Vertices 2\n*Edges\n1 3\n", {}, "is no whole Pajek file (Invalid vertex ID (3)"),
    ("cut.mtx", MTX + "pattern general\n3 3 2\n1 2\n", {}, "is no whole Matrix Market file (Truncated"),
    ("general.mtx", MTX + "real general\n3 3 1\n1 2 .5\n", {}, "entry (1, 2) is 0.5"),
    ("rectangle.mtx", MTX + "pattern general\n3 4 1\n1 2\n", {}, "shape (3, 4)"),
    ("huge.mtx", MTX + "pattern general\n99999999999 99999999999 1\n1 2\n", {}, "at most 4294967294"),
    ("complex.mtx", MTX + "complex general\n2 2 1\n1 2 1 2\n", {"weights": "threshold=1"}, "is no number"),
    ("cut.parquet", written(TABLE.to_parquet)[:-9], {}, "is no whole Parquet file"),
    ("columns.parquet", written(TABLE.to_parquet), {"columns": ("source", "x")}, "has no column 'x'"),
    ("cut.npz",
     written(lambda file: sparse.save_npz(file, matrix(NUMBERS)))[:300],
     {}, "holds no whole sparse matrix"),
    ("arrays.npz", written(lambda file: np.savez(file, x=np.eye(2))), {}, "holds no whole sparse matrix"),
    ("cut.npy", written(lambda file: np.save(file, np.ones((2, 2), int)))[:-4], {}, "is no whole NumPy file"),
    ("pickle.npy", written(lambda file: np.save(file, np.array([[1, "a"]], object))), {}, "allow_pickle=False"),
    ("square.npy", written(lambda file: np.save(file, np.eye(4, dtype=int))), {}, "shape (4, 4)"),
    ("short.metis", "3 2\n2\n1 3\n", {"format": "metis"}, "3 vertices, and has lines for 2"),
    ("wrong.metis", "3 2\n2\n1\n\n", {"format": "metis"}, "says that it has 2 links, and lists 2 neighbours, not 4"),
    ("outside.metis", "2 1\n2\n3\n", {"format": "metis"}, "line 3: '3' is no vertex from 1 to 2"),
    ("ring.graph", "5 5\n2 5\n1 3\n2 4\n3 5\n1 4\n", {}, "not clear whether the first line, '5 5', is a link"),
    ("counts.txt", "4 3\n1 2\n2 3\n3 4\n", {}, "not clear whether the first line, '4 3', is a link"),
    ("uneven.graph", "4 4\n2 3\n1 3\n1 2 4\n3\n", {}, "if the file is METIS's, --format metis"),
    ("comma.adjlist", "a, b\n", {"format": "adjlist"}, "'a,' has a separator at its end"),
    ("outside.col", "p edge 2 1\ne 1 3\n", {}, "line 2: 'e 1 3' has no two vertices from 1 to 2"),
    ("cut.col", "p edge 3 2\ne 1 2\n", {}, "says that it has 2 links, and has 1"),
    ("out.bipartite", "% bip unweighted\n1 1\n1 2\n", {}, "two kinds of vertices, whose numbers overlap"),
    ("out.weighted", "% sym weighted\n1 2 7\n", {}, "a link has weight 7;"),
    ("weights.txt", "1 2 .5\n", {"weights": "ignore"}, "Say which columns are the two ends"),
    ("no-weights.txt", "1 2\n", {"weights": "threshold=1"}, "has no weights for 'threshold=1'"),
    ("no-weights.csv", "source,target\na,b\n", {"weights": "threshold=1"}, "has no weights for 'threshold=1'"),
    ("no-number.csv",
     "source,target,weight\na,b,high\n",
     {"weights": "threshold=1"}, "has weight 'high', which is no number"),
    ("missing.csv",
     "source,target,weight\na,b,nan\n",
     {"weights": "threshold=1"}, "has weight nan, which is no number"),
    ("three.csv", "who,whom,rating\na,b,5\n", {"columns": ("who", "whom", "rating")}, "a link has weight 5;"),
    ("page.txt", "<!DOCTYPE html>\n<html>\n<body> 404\n</body></html>\n", {}, "is a web page"),
    ("page-2.txt", "<html>\n<head> x\n", {}, "is a web page"),
    ("links.json", '{"nodes": [{"id": 1}], "links": []}', {}, "is JSON"),
    ("list.txt", '[{"source": 1, "target": 2}]', {}, "is JSON"),
    ("garbage", bytes(range(256)) * 9, {}, "byte 0x00, which no text has"),
    ("comma.csv",
     'source,target,weight\na,b,"1,500"\n',
     {"weights": "threshold=1"}, "has weight '1,500', which may be 1.500 or 1500; write it without a comma"),
    ("book.xlsx", b"PK\x03\x04xx", {}, "is a spreadsheet; save it as CSV"),
    ("archive.zip", b"PK\x03\x04xx", {}, "is a zip archive; unpack it first"),
    ("cut.gexf.gz", gzip.compress(GEXF.encode())[:-9], {}, "cut-off gzip"),
    ("columns.graphml",
     GRAPHML.format("", NODES),
     {"columns": (1, 2)}, "has the format graphml, which has no columns"),
    ("as-text.graphml", GRAPHML.format("", NODES), {"format": "text"}, "has the format graphml, and is no edge list"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "expected"), READ, ids=[row[0] for row in READ])
@pytest.mark.filterwarnings("ignore:.*a directed graph:mmsbgen.graph.GraphWarning")
def test_files_that_are_read(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any], expected: Pairs
) -> None:
    assert pairs_of(load_graph(save(tmp_path, name, content), ReadingOptions(**options))) == expected


@pytest.mark.parametrize(("name", "content", "options", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_files_that_are_refused(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_graph(save(tmp_path, name, content), ReadingOptions(**options))
    assert name in str(caught.value)
    assert reason in str(caught.value)


def test_files_of_igraph_have_the_ids_of_its_graphs(tmp_path: Path) -> None:
    names = ["ann", "bob", "cid"]
    for write in ("write_graphml", "write_gml", "write_pajek"):
        graph = load_graph(save(tmp_path, "g.dat", by_igraph(write, tmp_path, names)))
        assert pairs_of(graph) == {("ann", "bob"), ("bob", "cid")}, write
    assert pairs_of(load_graph(save(tmp_path, "g.dat", by_igraph("write_graphml", tmp_path)))) == {(0, 1), (1, 2)}
    with pytest.raises(InputError, match="two vertices have the same attribute 'name'"):
        load_graph(save(tmp_path, "g.dat", by_igraph("write_graphml", tmp_path, ["a", "a", "b"])))


def test_labels_that_occur_twice_are_no_ids(tmp_path: Path) -> None:
    file = save(tmp_path, "g.net", '*Vertices 3\n1 "a"\n2 "a"\n3 "b"\n*Edges\n1 2\n2 3\n')
    with pytest.warns(GraphWarning, match="labels are missing or occur twice, so that vertices go by their numbers"):
        assert pairs_of(load_graph(file)) == CHAIN


def test_direction_is_dropped_and_told(tmp_path: Path) -> None:
    made = nx.DiGraph([("a", "b"), ("b", "c")])
    for write in (nx.write_graphml, nx.write_gexf, nx.write_gml):
        file = save(tmp_path, "g.dat", written(lambda file, write=write: write(made, file)))
        with pytest.warns(GraphWarning, match="direction is dropped"):
            assert pairs_of(load_graph(file)) == ABC
    with pytest.warns(GraphWarning, match="direction is dropped"):
        graph = load_graph(save(tmp_path, "g.net", ARROWS))
    assert pairs_of(graph) == {("Ann Lee", "bob"), ("bob", "cid")}


def test_unlinked_vertices_of_formats_that_have_them(tmp_path: Path) -> None:
    alone = nx.Graph([(1, 2)])
    alone.add_nodes_from([3, 7])
    for name in ("g.graphml", "g.gexf", "g.gml", "g.net"):
        graph = load_graph(save(tmp_path, name, WRITERS[name](alone)))
        assert (graph.ids.tolist(), graph.report.n_isolated) == ([1, 2, 3, 7], 2), name
    square = written(lambda file: scipy_io.mmwrite(file, sparse.coo_array(([1], ([0], [1])), shape=(4, 4))))
    assert load_graph(save(tmp_path, "g.mtx", square)).ids.tolist() == [1, 2, 3, 4]
    assert load_graph(save(tmp_path, "g", "1 2\n4\n"), ReadingOptions("adjlist")).ids.tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("links", "listed", "ids"),
    [
        ("1 2\n2 3\n", "# all\n9\n1\n\n-4\n", [-4, 1, 2, 3, 9]),
        ("1 2\n2 3\n", "9\r\n 1 \n\n-4\n", [-4, 1, 2, 3, 9]),
        ("1 2\n2 3\n", "x\n", ["1", "2", "3", "x"]),
        ("1 2\n2 3\n", "9\n4 5\n", ["1", "2", "3", "4 5", "9"]),
        ("1 2\n2 3\n", "007\n", ["007", "1", "2", "3"]),
        ("1 2\n2 3\n", "9\n# more\n-4\n", [-4, 1, 2, 3, 9]),
        ("1 2\n2 3\n", "9 # nine\n", ["1", "2", "3", "9 # nine"]),
        ("1 2\n2 3\n", "9\v\n", ["1", "2", "3", "9\v"]),
        ("a b\n", "3\nb\n", ["3", "a", "b"]),
        ("a\tb c\nb c\td\n", "d e\r\n", ["a", "b c", "d", "d e"]),
        ("1 2\n", "2\n1\n", [1, 2]),
    ],
)
def test_vertices_without_links_come_from_a_file(tmp_path: Path, links: str, listed: str, ids: list[Any]) -> None:
    file, vertices = save(tmp_path, "g.txt", links), save(tmp_path, "ids.txt", listed)
    plain, graph = as_graph(file), as_graph(file, vertices=vertices)
    assert graph.ids.tolist() == ids
    assert {tuple(map(str, pair)) for pair in pairs_of(graph)} == {tuple(map(str, pair)) for pair in pairs_of(plain)}
    assert graph.report.n_isolated == np.count_nonzero(graph.degrees() == 0)
    assert graph.reading == {"vertices": str(vertices)}
    # A record gives the same graph again.
    assert load_graph(file, ReadingOptions.recorded(graph.reading)).digest == graph.digest


def test_vertices_without_links_from_python(tmp_path: Path) -> None:
    assert as_graph([("a", 1)], vertices=["a", (2, 3)]).ids.tolist() == [1, "a", (2, 3)]
    graph = as_graph(save(tmp_path, "g.txt", "1 2\n"), vertices=[5])
    assert (graph.ids.tolist(), graph.file) == ([1, 2, 5], None)
    assert as_graph(graph, vertices=[6]).ids.tolist() == [1, 2, 5, 6]
    for listed, message in (
        ("1\na\tb\n", r"ids\.txt, line 2: 'a\\tb' is no one id"),
        ("id,age\n1,30\n9,20\n", r"ids\.txt: '1,30' is more than the id 1; give one id a line"),
        ('9\n"2";x\n', 'is more than the id "2"; give'),
        ("id\n1\n9\n", "all ids are integers but the first, 'id'; leave it out if it is a header"),
    ):
        with pytest.raises(InputError, match=message):
            as_graph([(1, 2)], vertices=save(tmp_path, "ids.txt", listed))
    with pytest.raises(InputError, match="no such file"):
        as_graph([(1, 2)], vertices=tmp_path / "none")


def test_weights_of_objects() -> None:
    assert pairs_of(as_graph(HEAVY)) == {(1, 2), (2, 3), (3, 4)}
    made = igraph.Graph([(0, 1), (1, 2)])
    made.es["weight"] = [0.5, 2]
    for source, strong in (
        (HEAVY, {(2, 3), (3, 4)}),
        (made, {(1, 2)}),
        (nx.Graph([("a", "b", {"weight": 0}), ("b", "c")]), {("b", "c")}),
        (sparse.csr_array(np.array([[0, 0.5, 0], [0.5, 0, 2], [0, 2, 0]])), {(1, 2)}),
        (TABLE, {("bob", "cid")}),
    ):
        assert pairs_of(as_graph(source, weights="threshold=1")) == strong
    for source in ([(1, 2)], nx.Graph([(1, 2)]), np.array([[1, 2]]), TABLE[["source", "target"]]):
        with pytest.raises(InputError, match="has no weights for 'threshold=1'"):
            as_graph(source, weights="threshold=1")
    two = TABLE.assign(weights=1)
    with pytest.raises(InputError, match="several columns of weights, weight, weights; name one third"):
        as_graph(two, weights="threshold=1")
    with pytest.raises(InputError, match="a link has weight"):
        as_graph(two)
    with pytest.raises(InputError, match="a Graph has none any more"):
        as_graph(as_graph(HEAVY), weights="ignore")
    with pytest.raises(InputError, match="a link has weight 'x', which is no number"):
        as_graph(nx.Graph([(1, 2, {"weight": "x"})]), weights="threshold=1")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"format": "xls"}, "format='xls': give one of auto, text"),
        ({"weights": "sum"}, "weights='sum': give 'ignore', or 'threshold=X'"),
        ({"weights": "threshold=x"}, "weights='threshold=x'"),
        ({"weights": "threshold=nan"}, "weights='threshold=nan'"),
        ({"columns": ("a", "b", "c", "d")}, "name two"),
        ({"columns": "ab"}, "name two"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        as_graph([(1, 2)], **options)


def test_formats_are_for_files() -> None:
    with pytest.raises(InputError, match="format='gml' is that of a file, and a list is none"):
        as_graph([(1, 2)], format="gml")


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr(libraries.importlib, "import_module", absent)
    files = (("g.gml", "graph [", "igraph"), ("g.net", "*Vertices 1\n", "igraph"), ("g.parquet", "x", "tables"))
    for name, text, extra in files:
        with pytest.raises(MissingDependencyError, match=rf"pip install 'mmsbgen\[{extra}\]'"):
            load_graph(save(tmp_path, name, text))


@pytest.mark.parametrize(
    "begin", ["<!---->", "% %\n", "# #\n", "comment comment ", 'comment "" ', "c c\n", "<", "[", " \n"]
)
def test_finding_the_format_takes_no_time_whatever_the_content(tmp_path: Path, begin: str) -> None:
    with pytest.raises(InputError):
        load_graph(save(tmp_path, "g.txt", begin * 20_000 + "x"))


def test_a_directory_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; give the file of the graph inside it"):
        load_graph(tmp_path)
