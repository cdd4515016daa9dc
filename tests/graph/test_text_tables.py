"""Files of links as people have them: each is read right, or refused with the reason; no wrong link is read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import networkit as nk
import networkx as nx
import pandas as pd
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import Graph, GraphWarning, as_graph, load_edge_list
from mmsbgen.graph.files.words import DisjointEndsWarning

NAMES = pd.DataFrame({"source": ["ann", "bob", "cid"], "target": ["bob", "cid", "dan"]})
NUMBERS = pd.DataFrame({"a": [10, 20, 30], "b": [20, 30, 40]})
PEOPLE = {("ann", "bob"), ("bob", "cid"), ("cid", "dan")}
TENS = {(10, 20), (20, 30), (30, 40)}
NOT_CLEAR = "not clear which columns are the two ends"
HEADER = "not clear whether the first row is a header or a link"


def links(graph: Graph) -> set[tuple[Any, ...]]:
    return {tuple(graph.ids[pair].tolist()) for pair in graph.links}


def save(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


READ: list[tuple[str, str | bytes, set[tuple[Any, ...]]]] = [
    ("index.csv", NAMES.to_csv(), PEOPLE),
    ("trailing.csv", "source;target\nann;bob;\nbob;cid;\n;;\ncid;dan;\n", PEOPLE),
    ("header.csv", NAMES.to_csv(index=False), PEOPLE),
    ("plain.csv", NAMES.to_csv(index=False, header=False), PEOPLE),
    ("header-over-integers.csv", NUMBERS.to_csv(index=False), TENS),
    ("integers.csv", NUMBERS.to_csv(index=False, header=False), TENS),
    ("header.tsv", NAMES.to_csv(index=False, sep="\t"), PEOPLE),
    ("no-suffix", NAMES.to_csv(index=False), PEOPLE),
    ("excel.csv", NAMES.to_csv(index=False, sep=";", lineterminator="\r\n").encode("utf-8-sig"), PEOPLE),
    ("utf-16.csv", NAMES.to_csv(index=False).encode("utf-16"), PEOPLE),
    ("packed.csv.gz", gzip.compress(NAMES.to_csv(index=False).encode()), PEOPLE),
    ("more-columns.csv", NAMES.assign(year=[1, 2, 3], kind="x").to_csv(index=False), PEOPLE),
    ("weights-of-one.csv", NAMES.assign(weight=1.0).to_csv(index=False), PEOPLE),
    ("swapped.csv", NAMES.assign(kind="x")[["kind", "target", "source"]].to_csv(index=False), PEOPLE),
    ("comments.csv", "# from a survey\n% 2026\n" + NAMES.to_csv(index=False), PEOPLE),
    ("quoted.csv", 'source,target\n"Lee, A",Bob\nBob,"C ""x"""\n', {("Bob", "Lee, A"), ("Bob", 'C "x"')}),
    ("blanks-in-ids.tsv", "ann 1\tbob 1\nbob 1\tcid 1\n", {("ann 1", "bob 1"), ("bob 1", "cid 1")}),
    ("blanks.txt", "ann lee, bob ray\nbob ray, cid doe\n", {("ann lee", "bob ray"), ("bob ray", "cid doe")}),
    ("bars.txt", "1|2\n2|3\n", {(1, 2), (2, 3)}),
    ("zeros.csv", "source,target\n007,7\n7,8\n", {("007", "7"), ("7", "8")}),
    ("snap.txt", "# Nodes: 3\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n", {(1, 2), (2, 3)}),
    ("header.txt", "Source Target\nann bob\nbob cid\n", {("ann", "bob"), ("bob", "cid")}),
    ("header-over-integers.txt", "person friend\n1 2\n2 3\n", {(1, 2), (2, 3)}),
    ("comments-behind.txt", "1\t2 # first\n2\t3\n", {(1, 2), (2, 3)}),
    ("excel-sep.csv", "sep=;\r\nsource;target\r\nann;bob\r\n", {("ann", "bob")}),
    ("r-table.txt", '"from" "to"\n"a" "b"\n"b" "c d"\n', {("a", "b"), ("b", "c d")}),
    ("long-comments.csv", "# c\n" * 18_000 + "Ann Lee,Bob\nBob,Cy Ray\n", {("Ann Lee", "Bob"), ("Bob", "Cy Ray")}),
    ("marks-in-ids.txt", "a'\"b\tc;d\nc;d\te,f\n", {("a'\"b", "c;d"), ("c;d", "e,f")}),
    ("letters.txt", "u v\nv w\n", {("u", "v"), ("v", "w")}),
    ("letters.csv", "u,v\nv,w\n", {("u", "v"), ("v", "w")}),
    ("commas-in-ids.txt", "a,b c,d,e\nc,d,e f\n", {("a,b", "c,d,e"), ("c,d,e", "f")}),
]  # fmt: skip

REFUSED: list[tuple[str, str, str]] = [
    ("floats.csv", "source,target\n1,2.0\n2,3.0\n", "has the ids '2' and '2.0'"),
    ("index.csv", NUMBERS.to_csv(), NOT_CLEAR),
    ("index-no-header.csv", NUMBERS.to_csv(header=False), NOT_CLEAR),
    ("three.csv", "1,2,3\n2,3,4\n", NOT_CLEAR),
    ("two-pairs.csv", "source,target,from,to\n1,2,3,4\n", NOT_CLEAR),
    ("weights.csv", NAMES.assign(weight=[1, 2, 0.5]).to_csv(index=False), "a link has weight 2;"),
    ("names-of-pandas.csv", pd.DataFrame([(1, 2), (2, 3)]).to_csv(index=False), HEADER),
    ("person.csv", "person,friend\nann,bob\nbob,cid\n", HEADER),
    ("only-header.csv", "source,target\n", "the only row is a header by its names"),
    ("adjacency.csv", "a,b,c\nb,c\n", "row 2 has 2 columns and the first has 3"),
    ("adjacency.txt", "a b c\nb c\n", "line 1: 'a b c' has 3 fields"),
    ("two-weights.csv", NAMES.assign(weight=1, weights=[1, 2, 1]).to_csv(index=False), "a link has weight 2;"),
    (
        "alike-weights.csv",
        "source,target,weight,weight\n1,2,5,1\n2,3,1,1\n",
        "column weight of the table: a link has weight 5;",
    ),
    ("konect", "% sym weighted\n1 2 3\n2 3 1\n", "a link has weight 3;"),
    ("times.txt", "1 2 1082040961\n2 3 1082155839\n", "'1082040961', may be a weight"),
    ("two-signs.txt", "1\t2 0.7\n1\t3 0.5\n", "'2 0.7' in one column is several numbers"),
    ("two-delimiters.txt", "a;b,c;d\nc;d,e;f\n", "commas"),
    ("unclear.txt", "a b,c\nd e,f\n", "not clear whether blanks or commas separate"),
    ("comments-behind.csv", "1,2\n2,3 # last\n", "may end in a comment"),
    ("torn.csv", 'source,target,text\na,b,"hi\n#tag"\nc,d,"x"\n', "a quote that is not closed"),
    ("open-quote.csv", 'source,target\na,"b\nc,d\n', "a quote that is not closed"),
    ("open-later.csv", 'source,target\na,b\nx"y,"b\nc,d\n', "'x\"y,\"b' has a quote that is not closed"),
    ("open-over-much.csv", 'source,target\nx"y,"b\n' + "c,d\n" * 40_000, "'x\"y,\"b' has a quote that is not closed"),
    ("hashtags.csv", "source,target\nb,c\n#a,b\n", "may be a link"),
    ("attributes.txt", "1 2 {'w': 3, 'x': 4}\n2 3 {'w': 1, 'x': 4}\n", "ends in a dictionary"),
    ("no-tab.txt", "a\tb\nAnn Lee\t\n", "has no tab between two ids"),
    ("missing.csv", "source,target\nann,\n", "lacks an id"),
    ("nan.csv", "source,target\n1,2\n2,NaN\n", "the id 'NaN' is beside integers"),
    ("na.txt", "1 NA\n2 1\n", "the id 'NA' is beside integers"),
]


@pytest.mark.parametrize(("name", "content", "expected"), READ, ids=[row[0] for row in READ])
def test_files_that_are_read(tmp_path: Path, name: str, content: str | bytes, expected: set[tuple[Any, ...]]) -> None:
    graph = load_edge_list(save(tmp_path, name, content))
    assert {frozenset(link) for link in links(graph)} == {frozenset(link) for link in expected}


@pytest.mark.parametrize(("name", "content", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_files_that_are_refused(tmp_path: Path, name: str, content: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        load_edge_list(save(tmp_path, name, content))
    message = str(caught.value)
    assert name in message
    assert reason in message
    for command in ("awk", "cut -f", "tr '", "tail -n", "iconv"):
        assert command not in message


def test_unclear_columns_are_shown_as_they_were_understood(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_edge_list(save(tmp_path, "g.csv", NUMBERS.to_csv()))
    shown = str(caught.value).splitlines()[1:]
    assert shown == ["  1: ''  2: 'a'  3: 'b'", "  1: '0'  2: '10'  3: '20'", "  1: '1'  2: '20'  3: '30'"]


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        (NUMBERS.to_csv(), ("a", "b"), TENS),
        (NUMBERS.to_csv(), (2, 3), TENS),
        (NUMBERS.to_csv(header=False), ("2", "3"), TENS),
        (NAMES.assign(weight=[1, 2, 0.5]).to_csv(index=False), ("source", "target"), PEOPLE),
        ("person,friend\nann,bob\n", ("person", "friend"), {("ann", "bob")}),
        (NAMES.rename(columns={"source": "who", "target": "whom"}).to_csv(), ("who", "whom"), PEOPLE),
        ("who,whom,times\nann,bob,3\n", ("who", "whom"), {("ann", "bob")}),
        ("1,2,NA\n2,3,5\n", (1, 2), {(1, 2), (2, 3)}),
        ("0,1\n5,6\n", ("0", "1"), {(5, 6)}),
        ("1 2 {'w': 3, 'x': 4}\n2 3 {'w': 1, 'x': 4}\n", (1, 2), {(1, 2), (2, 3)}),
        ("1 2 5 # first\n2 3 6\n", (1, 2), {(1, 2), (2, 3)}),
        ("1 2 0.5\n2 3 0.7\n", (1, 2), {(1, 2), (2, 3)}),
        ("# of 2026\n1 2 0.5\n", (3, 1), {("0.5", "1")}),
    ],
)
def test_columns_decide(tmp_path: Path, content: str, columns: Any, expected: set[tuple[Any, ...]]) -> None:
    assert links(as_graph(save(tmp_path, "g.txt", content), columns=columns)) == expected


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (("a", "c"), "no column 'c'"),
        ((0, 1), "no column '0'"),
        ((1, 4), "no column '4': the table has 3 columns"),
        ((2, 9), "no column '9': the table has 3 columns"),
        (("a", "a"), "name two"),
        (("a",), "name two"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, columns: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        load_edge_list(save(tmp_path, "g.csv", NUMBERS.to_csv()), columns)


def test_columns_are_told_by_their_names(tmp_path: Path) -> None:
    file = save(tmp_path, "g.csv", ",person a,person b,year\n0,ann,bob,7\n1,bob,cat,8\n")
    told = r'no column .friend.; the first row has "", person a, person b, year; name two, such as --columns '
    with pytest.raises(InputError, match=told + "'person a,person b'"):
        load_edge_list(file, ("friend", "year"))
    file = save(tmp_path, "g.csv", ",person a,person b,year\n" + "0,ann,bob,7\n1,bob,cat,8\n" * 5)
    with pytest.warns(DisjointEndsWarning, match=r"the columns 'year' and 'person a' have no id in common"):
        load_edge_list(file, ("year", "person a"))


def test_other_encodings_are_read_as_latin_1_with_a_warning(tmp_path: Path) -> None:
    file = save(tmp_path, "g.csv", "source,target\nJosé,Zoë\n".encode("latin-1"))
    with pytest.warns(GraphWarning, match=r"line 2: byte 0xe9 is not UTF-8; the file is read as Latin-1"):
        graph = load_edge_list(file)
    assert links(graph) == {("José", "Zoë")}


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("person,friend\nann,bob\n", (1, 2)),
        ("person\tfriend\nann\tbob\n", None),
        ("person friend\nann bob\n", None),
    ],
)
def test_a_first_row_that_may_be_a_header_is_told(tmp_path: Path, content: str, columns: Any) -> None:
    with pytest.warns(GraphWarning, match="the first row, .*person.*friend.*, is read as a link; .* give its names"):
        graph = load_edge_list(save(tmp_path, "g.txt", content), columns)
    assert links(graph) == {("friend", "person"), ("ann", "bob")}


def test_a_wrong_line_far_down_is_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 5002 has 3 columns and the first has 2"):
        load_edge_list(save(tmp_path, "g.csv", "source,target\n" + "ann,bob\n" * 5000 + "ann,bob,cid\n"))


def test_the_karate_club_is_read_without_its_weights() -> None:
    club = nx.karate_club_graph()
    assert links(as_graph(club)) == {tuple(sorted(link)) for link in club.edges}


def test_networkit_graphs() -> None:
    source = nk.Graph(4)
    source.addEdge(0, 2)
    source.addEdge(2, 1)
    source.removeNode(3)
    graph = as_graph(source)
    assert (links(graph), graph.n_vertices) == ({(0, 2), (1, 2)}, 3)


def test_iterables_of_pairs() -> None:
    pairs = [(1, 2), (2, 3)]
    assert links(as_graph(pair for pair in pairs)) == links(as_graph(set(pairs))) == set(pairs)
    with pytest.raises(InputError, match=r"builtins\.dict is no graph"):
        as_graph({1: [2]})
