"""Results as objects and files of other programs, read back by those programs' own libraries."""

from __future__ import annotations

import csv
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import cdlib
import cdlib.evaluation
import gexfpy
import igraph
import networkx as nx
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from xsdata.formats.dataclass.parsers import XmlParser
from xsdata.formats.dataclass.parsers.config import ParserConfig

from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.export import Clustering, Exports
from mmsbgen.export.export_files import FORMATS
from mmsbgen.graph import as_graph
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.scores import read_cover

LINKS = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "d")]


class Given(Exports):
    def __init__(self, found: Clustering) -> None:
        self.found = found

    def exported(self) -> Clustering:
        return self.found


def result(ids: list[Any] | None = None, links: bool = True) -> Given:
    """Two triangles and a vertex in both, one in none; columns 2 and 3 have no members."""
    names = dict(zip("abcdef", ids or "abcdef", strict=True))
    graph = as_graph([(names[u], names[v]) for u, v in LINKS])
    place = {name: vertex for vertex, name in enumerate(graph.ids.tolist())}
    shares = {
        "a": [(0, 0.75), (3, 0.25)],
        "b": [(0, 1.0), (3, 0.0)],
        "c": [(1, 0.5), (0, 0.375)],
        "d": [(1, 0.875), (2, 0.125)],
        "e": [(2, 0.5), (3, 0.25)],
        "f": [(3, 0.5), (2, 0.5)],
    }
    rows = sorted((place[names[letter]], row) for letter, row in shares.items())
    m = Memberships(
        graph.ids,
        np.array([[k for k, _ in row] for _, row in rows], np.int32),
        np.array([[share for _, share in row] for _, row in rows], np.float32),
        np.array([0.5, 0.25, 0.3, 0.1]),
        1e-3,
    )
    # The share that puts e into community 1 was not kept.
    members = tuple(np.array(sorted(place[names[v]] for v in one), np.int64) for one in ("abc", "cde"))
    return Given(Clustering(m, Cover(members, 6), graph if links else None, {"name": "share", "threshold": 0.125}))


ODD = [0, ("t", 1), frozenset({"x"}), None, "f\x00\x1b<&>\ud800", 2.5]
PLAIN_ODD = [0, ("t", 1), frozenset({"x"}), "with blank", "f\x00", 2.5]


def test_cdlib() -> None:
    found = result()
    fuzzy = found.to_cdlib()
    assert isinstance(fuzzy, cdlib.FuzzyNodeClustering)
    assert fuzzy.communities == [["a", "b", "c"], ["c", "d", "e"]]
    assert fuzzy.allocation_matrix == {
        "a": {0: 1.0},
        "b": {0: 1.0},
        "c": {1: pytest.approx(4 / 7), 0: pytest.approx(3 / 7)},
        "d": {1: 1.0},
        "e": {1: 1.0},
        "f": {},
    }
    assert (fuzzy.method_name, fuzzy.overlap, fuzzy.node_coverage) == ("mmsbgen", True, 5 / 6)
    assert fuzzy.method_parameters == {"name": "share", "threshold": 0.125}
    assert '"allocation_matrix"' in fuzzy.to_json()
    crisp = found.to_cdlib(fuzzy=False)
    assert type(crisp) is cdlib.NodeClustering
    assert crisp.to_node_community_map() == {"a": [0], "b": [0], "c": [0, 1], "d": [1], "e": [1]}
    assert cdlib.evaluation.size(crisp.graph, crisp).score == 3
    assert crisp.internal_edge_density().max == 1
    same = cdlib.evaluation.overlapping_normalized_mutual_information_MGH(fuzzy, crisp).score
    assert same == pytest.approx(1)
    whole = igraph.Graph(n=6)
    assert found.to_cdlib(whole).graph is whole
    slashed = result(["\\a", "\\b", "\\c", "d", "e", "f"]).to_cdlib()
    assert slashed.communities[0] == ["\\a", "\\b", "\\c"], "cdlib's constructor would make numbers of them"


def test_networkx() -> None:
    graph = result().to_networkx()
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, LINKS))
    assert graph.nodes["c"] == {
        "community": 1,
        "memberships": {1: pytest.approx(4 / 7), 0: pytest.approx(3 / 7)},
        "share": pytest.approx(4 / 7),
        "strength": 0.25,
    }
    assert list(graph.nodes["c"]["memberships"]) == [1, 0], "the largest share first"
    assert graph.nodes["e"] == {"community": 1, "memberships": {1: 1.0}, "share": 1.0, "strength": 0.25}
    assert graph.nodes["f"] == {"community": -1, "memberships": {}, "share": 0.0, "strength": 0.0}
    own = nx.DiGraph(LINKS, name="own")
    own.nodes["a"]["color"] = "red"
    given = result(links=False).to_networkx(own)
    assert isinstance(given, nx.DiGraph)
    assert given.nodes["a"] == {"color": "red", **result().to_networkx().nodes["a"]}
    assert own.nodes["a"] == {"color": "red"}, "the caller's graph was changed"
    with pytest.raises(InputError, match="has 5 of 6 vertices"):
        result().to_networkx(nx.Graph(LINKS[:5]))
    with pytest.raises(InputError, match="has no vertex 'f'"):
        result().to_networkx(nx.relabel_nodes(own, {"f": "g"}))
    with pytest.raises(InputError, match="graph is a list; give the networkx graph"):
        result().to_networkx(LINKS)
    with pytest.raises(InputError, match="None cannot be a node of a networkx graph"):
        result(ODD).to_networkx()
    with pytest.raises(InputError, match="networkx graphs need the links"):
        result(links=False).to_networkx()


def test_igraph() -> None:
    made = result().to_igraph()
    assert isinstance(made, igraph.VertexCover)
    assert [made.graph.vs[one]["name"] for one in made] == [["a", "b", "c"], ["c", "d", "e"]]
    assert made.membership[2] == [0, 1]
    assert made.subgraph(0).ecount() == 3
    own = igraph.Graph(n=6)
    own.vs["name"] = list("fedcba")
    cover = result(links=False).to_igraph(own)
    assert [sorted(own.vs[one]["name"]) for one in cover] == [["a", "b", "c"], ["c", "d", "e"]]
    numbers = result([10, 1, 2, 3, 4, 5])
    with pytest.raises(InputError, match="has no vertex 10"):
        numbers.to_igraph(igraph.Graph(n=6))
    assert list(result([0, 1, 2, 3, 4, 5]).to_igraph(igraph.Graph(n=6))) == [[0, 1, 2], [2, 3, 4]]
    assert [made.graph.vs[one]["name"] for made in [result(ODD).to_igraph()] for one in made][1:] != []


def test_pandas() -> None:
    frame = result().to_pandas()
    assert list(frame.columns) == ["id", "community", "share"]
    assert frame.dtypes.astype(str).to_list()[1:] == ["int64", "float64"]
    rows = list(frame.itertuples(index=False, name=None))
    assert rows == [
        ("a", 0, 1.0),
        ("b", 0, 1.0),
        ("c", 1, pytest.approx(4 / 7)),
        ("c", 0, pytest.approx(3 / 7)),
        ("d", 1, 1.0),
        ("e", 1, 1.0),
    ]
    wide = result().to_pandas("wide")
    assert wide.shape == (6, 2)
    assert wide.loc["c"].to_list() == pytest.approx([3 / 7, 4 / 7])
    assert wide.loc["f"].to_list() == [0, 0]
    communities = result().to_pandas("communities")
    assert communities.loc[0].to_list() == [3, 0.5, False, ["a", "b", "c"]]
    assert communities.index.to_list() == [0, 1]
    with pytest.raises(InputError, match="form 'tall' is not one of long, wide, communities"):
        result().to_pandas("tall")
    odd = result(ODD)
    expected = odd.found.memberships.ids.tolist()
    assert odd.to_pandas("wide").index.to_list() == expected
    assert odd.to_pandas()["id"].drop_duplicates().to_list() == [name for name in expected if name != ODD[5]]
    assert all(set(one) <= set(ODD) for one in odd.to_pandas("communities")["members"])
    numbers = result([5, 1, 2, 3, 4, 0]).to_pandas()
    assert str(numbers["id"].dtype) == "int64"
    empty = Given(Clustering(odd.found.memberships, Cover((), 6), odd.found.graph))
    assert len(empty.to_pandas("communities")) == 0
    assert len(empty.to_pandas()) == 0
    assert len(empty.to_igraph()) == 0
    assert empty.to_cdlib(igraph.Graph(n=6)).communities == []


@pytest.mark.parametrize(
    "ids",
    [list("abcdef"), [5, 1, 2, 3, 4, 0], PLAIN_ODD, ["a\rb", 'c"d,', *"efgh"]],
    ids=["strings", "integers", "mixed", "separators"],
)
def test_parquet_csv_and_tsv_have_the_long_table(tmp_path: Path, ids: list[Any]) -> None:
    found = result(ids)
    frame = found.to_pandas()
    table = pyarrow.parquet.read_table(found.export(tmp_path / "found.parquet"))
    assert [str(field.type) for field in table.schema][1:] == ["int64", "double"]
    back = table.to_pandas()
    for name in ("community", "share"):
        pd.testing.assert_series_equal(back[name], frame[name])
    kept = all(type(name) is type(ids[0]) for name in ids)
    assert back["id"].to_list() == (frame["id"].to_list() if kept else [repr(name) for name in frame["id"]])
    for name, delimiter in (("found.csv", ","), ("found.tsv", "\t")):
        with open(found.export(tmp_path / name), newline="") as file:
            rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [row["id"] for row in rows] == [str(name) for name in back["id"]]
        assert [int(row["community"]) for row in rows] == frame["community"].to_list()
        assert [float(row["share"]) for row in rows] == frame["share"].to_list()
    assert read_cover(tmp_path / "found.tsv") == read_cover(tmp_path / "found.csv")


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_ids_that_no_text_can_have_are_refused(tmp_path: Path, format: str) -> None:
    with pytest.raises(InputError, match=r"the character '\\udcff', a surrogate"):
        result(["a\udcff", *"bcdef"]).export(tmp_path / f"found.{format}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["gexf", "graphml"])
def test_gephi_files(tmp_path: Path, format: str) -> None:
    found = result(ODD)
    path = found.export(tmp_path / f"found.{format}")
    text = path.read_text(encoding="utf-8")
    ET.fromstring(text.encode())
    assert "nan" not in text.lower().replace("xmlns:xsi", "")
    graph = nx.read_gexf(path) if format == "gexf" else nx.read_graphml(path)
    assert not graph.is_directed()
    assert not graph.is_multigraph()
    assert {frozenset((int(u), int(v))) for u, v in graph.edges} == set(
        map(frozenset, found.found.graph.links.tolist())
    )
    ids = found.found.memberships.ids.tolist()
    node = {ids[int(name)]: data for name, data in graph.nodes(data=True)}
    shared = node[ODD[2]]
    assert shared["label"] == "frozenset({'x'})"
    told = {
        key: shared[key] for key in ("community", "communities", "n_communities", "share", "strength", "memberships")
    }
    assert told == {
        "community": 1,
        "communities": "1|0",
        "n_communities": 2,
        "share": pytest.approx(4 / 7),
        "strength": 0.25,
        "memberships": "1:0.5714|0:0.4286",
    }
    assert node[None]["label"] == "None"
    alone = node[ODD[5]]
    assert (alone["community"], alone["communities"] or "", alone["n_communities"], alone["share"]) == (-1, "", 0, 0.0)
    assert "\\x1b<&>" in node[ODD[4]]["label"], "characters that XML cannot have are escaped"
    for data in node.values():
        assert [type(data[key]) for key in ("community", "share", "strength")] == [int, float, float]


def test_gexf_is_what_its_schema_says(tmp_path: Path) -> None:
    """Read by classes that are made of the official schema, which has no other elements, attributes and words."""
    path = result(ODD).export(tmp_path / "found.gexf")
    parser = XmlParser(config=ParserConfig(fail_on_unknown_properties=True, fail_on_converter_warnings=True))
    read = parser.from_bytes(path.read_bytes(), gexfpy.Gexf)
    declared = {found.id: (found.title, found.type.value) for found in read.graph.attributes[0].attribute}
    assert set(declared.values()) == {
        ("community", "long"),
        ("communities", "string"),
        ("n_communities", "long"),
        ("share", "double"),
        ("strength", "double"),
        ("memberships", "string"),
    }
    nodes = read.graph.nodes[0].node
    assert len(nodes) == len(ODD)
    shared = next(node for node in nodes if node.label == "frozenset({'x'})")
    values = {declared[value.for_value][0]: value.value for value in shared.attvalues[0].attvalue}
    assert (values["community"], values["communities"], float(values["share"])) == ("1", "1|0", pytest.approx(4 / 7))
    assert {edge.source for edge in read.graph.edges[0].edge} <= {node.id for node in nodes}
    known_attributes(ET.parse(path).getroot(), read)


def known_attributes(element: ET.Element, read: Any) -> None:
    """Nothing in an element or below it has an attribute that its class does not know."""
    kinds = {field.metadata.get("name", field.name): field for field in fields(read)}
    attributes = {name for name, field in kinds.items() if field.metadata.get("type") == "Attribute"}
    assert {name for name in element.attrib if not name.startswith("{")} <= attributes, element.tag
    seen: Counter[str] = Counter()
    for child in element:
        name = child.tag.rpartition("}")[2]
        held = getattr(read, kinds[name].name)
        below = held[seen[name]] if isinstance(held, list) else held
        seen[name] += 1
        if is_dataclass(below):
            known_attributes(child, below)


def test_graphml_is_read_by_igraph(tmp_path: Path) -> None:
    found = result(ODD)
    graph = igraph.Graph.Read_GraphML(str(found.export(tmp_path / "found.graphml")))
    assert (graph.vcount(), graph.ecount(), graph.is_directed()) == (len(ODD), len(found.found.graph.links), False)
    shared = graph.vs.find(label="frozenset({'x'})")
    assert (shared["community"], shared["communities"], shared["share"]) == (1, "1|0", pytest.approx(4 / 7))


def test_snap(tmp_path: Path) -> None:
    path = result().export(tmp_path / "cover.txt")
    assert path.read_text() == "a\tb\tc\nc\td\te\n"
    assert read_cover(path) == [["a", "b", "c"], ["c", "d", "e"]]
    for bad, words in (
        (["a\tb", *"bcdef"], r"id 'a\\tb' cannot stand in a file of communities"),
        (["", *"bcdef"], "id '' cannot stand"),
        (["#a", *"bcdef"], "id '#a' cannot stand"),
        (["a\udcff", *"bcdef"], r"id 'a\\udcff' cannot stand"),
        (["1", 1, *"cdef"], "2 ids read '1' in a file of communities"),
    ):
        with pytest.raises(InputError, match=words):
            result(bad).export(tmp_path / "cover.txt")
        assert path.read_text() == "a\tb\tc\nc\td\te\n", "what was there stays"
    assert [p.name for p in tmp_path.iterdir()] == ["cover.txt"]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not say what format it is to have; name one of csv, gexf"):
        result().export(tmp_path / "found.docx")
    with pytest.raises(InputError, match="format 'docx' is not one of"):
        result().export(tmp_path / "found", "docx")
    with pytest.raises(InputError, match="drawings of the graph need the links"):
        result(links=False).export(tmp_path / "found.gexf")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        result().export(tmp_path / "file" / "found.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("library", "call", "extra"),
    [
        ("cdlib", "to_cdlib()", "cdlib"),
        ("networkx", "to_networkx()", "graph"),
        ("networkx", "export('x.gexf')", "graph"),
        ("pandas", "to_pandas()", "tables"),
        ("pyarrow", "export('x.parquet')", "tables"),
    ],
)
def test_a_missing_library_names_the_extra(library: str, call: str, extra: str, tmp_path: Path) -> None:
    """A real import in a fresh interpreter, which does not find the library."""
    import tomllib

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(line.startswith(library) for line in extras[extra])
    code = (
        "import sys\n"
        f"sys.modules[{library!r}] = None\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import numpy as np\n"
        "from mmsbgen.base.errors import MissingDependencyError\n"
        "from mmsbgen.export import Clustering, Exports\n"
        "from mmsbgen.graph import as_graph\n"
        "from mmsbgen.sampler.diagnostics.communities import Cover\n"
        "from mmsbgen.sampler.diagnostics.memberships import Memberships\n"
        "g = as_graph([(0, 1), (1, 2)])\n"
        "m = Memberships(g.ids, np.zeros((3, 1), np.int32), np.ones((3, 1)), np.ones(1))\n"
        "class Given(Exports):\n"
        "    def exported(self): return Clustering(m, Cover((np.arange(3),), 3), g)\n"
        "try:\n"
        f"    Given().{call}\n"
        "except MissingDependencyError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert f"{library} is not installed" in done.stdout
    assert f"pip install 'mmsbgen[{extra}]'" in done.stdout
    assert not list(tmp_path.iterdir())
    assert issubclass(MissingDependencyError, Exception)


def test_the_command_knows_all_formats() -> None:
    from mmsbgen.cli.runs.convert import _FORMATS

    assert set(_FORMATS) == set(FORMATS)
