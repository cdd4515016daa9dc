"""``mmsbgen convert`` on folders that ``mmsbgen detect`` wrote."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.cli import main
from mmsbgen.export.run_folder import graph_of_run, read_members, read_run
from mmsbgen.graph import as_graph, load_edge_list
from mmsbgen.scores import read_cover
from mmsbgen.scores.cover import words_of
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl

RING = [(f"v{a}", f"v{(a + step) % 30}") for a in range(30) for step in (1, 2)]
FAST = {"device": PROCESSOR, "iterations": 6, "start": "random", "mini_batch_size": 8, "n_partners": 4}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "ring.txt"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in RING))
    return path


@pytest.fixture(scope="module")
def results(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    words = f"detect {graph} -k 5 -o {out} -n 20 -m 8 --device {PROCESSOR} --top 3 --start random -q"
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    return out


def convert(*args: Any, code: int = 0) -> Any:
    done = CliRunner().invoke(main, ["convert", *map(str, args)])
    assert done.exit_code == code, done.output + repr(done.exception)
    assert "Traceback" not in done.output
    return done


def test_what_detect_wrote_is_what_it_returned(graph: Path, tmp_path: Path) -> None:
    pairs = np.array([(a, b) for a in range(30) for b in range(a)])
    for whole in (False, True):
        found = mmsbgen.detect(graph, 5, out=tmp_path / "out", whole=whole, top=3, **FAST)
        read = read_run(tmp_path / "out", load_edge_list(graph), top=3)[0]
        assert read.cover.background == found.cover.background
        assert all(map(np.array_equal, read.cover.members, found.cover.members))
        for name in ("ids", "indices", "values", "beta", "columns"):
            assert np.array_equal(getattr(read.memberships, name), getattr(found.memberships, name)), name
        predicted = (memberships.link_probabilities(pairs) for memberships in (read.memberships, found.memberships))
        np.testing.assert_allclose(*predicted, rtol=1e-5)
        assert read.memberships.delta == found.memberships.delta
        assert read.rule == found.record["rule"]


def test_formats(graph: Path, results: Path, tmp_path: Path) -> None:
    done = convert(results, "--graph", graph, "-o", tmp_path / "ring.gexf")
    assert "30 vertices, gexf" in done.stderr
    drawn = nx.read_gexf(tmp_path / "ring.gexf")
    assert (drawn.number_of_nodes(), drawn.number_of_edges()) == (30, 60)
    labels = {data["label"] for _, data in drawn.nodes(data=True)}
    assert labels == {f"v{a}" for a in range(30)}
    members = json.loads((results / "run.json").read_text())["communities"]
    counts = dict.fromkeys(range(members["count"]), 0)
    for _, data in drawn.nodes(data=True):
        for label in (data["communities"] or "").split("|"):
            if label:
                counts[int(label)] += 1
    assert list(counts.values()) == members["sizes"]
    convert(results, "--graph", graph, "-o", tmp_path / "ring.xml", "--to", "graphml")
    assert nx.read_graphml(tmp_path / "ring.xml").number_of_edges() == 60
    convert(results, "-o", tmp_path / "ring.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "ring.parquet").num_rows == sum(members["sizes"])
    convert(results, "-o", tmp_path / "ring.csv")
    assert len((tmp_path / "ring.csv").read_text().splitlines()) == 1 + sum(members["sizes"])
    convert(results, "-o", tmp_path / "ring.txt")
    assert read_cover(tmp_path / "ring.txt") == read_cover(results / "communities.txt")


def test_a_saved_model(graph: Path, tmp_path: Path) -> None:
    model = mmsbgen.MMSB(5, top=3, **FAST).fit(graph)
    model.save(tmp_path / "model")
    convert(tmp_path / "model", "-o", tmp_path / "ring.gexf", "-q")
    assert nx.read_gexf(tmp_path / "ring.gexf").number_of_edges() == 60
    convert(tmp_path / "model", "-o", tmp_path / "ring.txt")
    assert read_cover(tmp_path / "ring.txt") == model.communities_
    twice = convert(tmp_path / "model", "-o", tmp_path / "out.csv", "--graph", graph, code=2)
    assert "has its graph in it: leave --graph out" in twice.stderr
    assert "no model of mmsbgen" in convert(graph, "-o", tmp_path / "out.csv", code=2).stderr
    assert not (tmp_path / "out.csv").exists()


def test_the_graph_is_found_where_the_run_found_it(results: Path, tmp_path: Path) -> None:
    convert(results, "-o", tmp_path / "ring.gexf")
    assert nx.read_gexf(tmp_path / "ring.gexf").number_of_edges() == 60
    shutil.copytree(results, tmp_path / "moved")
    record = json.loads((results / "run.json").read_text())
    for file, why in (
        (str(tmp_path / "gone.txt"), "gone.txt: no such file"),
        (None, "its record does not name the graph's file"),
        (str(tmp_path / "other.txt"), "other.txt is no longer the graph that the run was made on"),
    ):
        (tmp_path / "other.txt").write_text("v1 v2\n")
        record["graph"]["file"] = file
        (tmp_path / "moved" / "run.json").write_text(json.dumps(record))
        said = convert(tmp_path / "moved", "-o", tmp_path / "moved.gexf", code=2).stderr
        assert why in said
        assert "give the run's graph with --graph" in said
        assert not (tmp_path / "moved.gexf").exists()
        convert(tmp_path / "moved", "-o", tmp_path / "moved.csv")
    record["graph"]["file"] = str(tmp_path / "gone" / "beside.txt")
    (tmp_path / "moved" / "run.json").write_text(json.dumps(record))
    shutil.copy(json.loads((results / "run.json").read_text())["graph"]["file"], tmp_path / "moved" / "beside.txt")
    convert(tmp_path / "moved", "-o", tmp_path / "moved.gexf")


def test_ids_that_spreadsheets_take_for_formulas_are_told_and_stay(tmp_path: Path) -> None:
    names = ["=1+1", "@ann", "+b", "-c", "-5", "d"]
    (tmp_path / "g.txt").write_text("".join(f"{a} {b}\n" for a in names for b in names if a < b))
    words = (
        f"detect {tmp_path / 'g.txt'} -k 2 -o {tmp_path / 'out'} -n 5 --device {PROCESSOR} --start random -q --rule top"
    )
    assert CliRunner().invoke(main, words.split()).exit_code == 0
    said = convert(tmp_path / "out", "-o", tmp_path / "x.csv").stderr
    assert "4 ids begin as formulas do, such as '+b': import them into spreadsheets as text" in said
    rows = list(csv.reader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert {row[0] for row in rows[1:]} == set(names)
    assert "formulas" not in convert(tmp_path / "out", "-o", tmp_path / "x.parquet").stderr


def test_ids_of_blanks_that_separate_nothing_are_ids(tmp_path: Path) -> None:
    """Only ASCII blanks separate ids, in graphs and in files of communities."""
    names = ["\u2028", "\u00a0", "\u3000x", "a\u2028b", "c"]
    (tmp_path / "g.txt").write_text("".join(f"{a} {b}\n" for a in names for b in names if a < b), encoding="utf-8")
    words = (
        f"detect {tmp_path / 'g.txt'} -k 2 -o {tmp_path / 'out'} -n 5 --device {PROCESSOR} --start random -q --rule top"
    )
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    convert(tmp_path / "out", "-o", tmp_path / "x.txt")
    for file in (tmp_path / "x.txt", tmp_path / "out" / "communities.txt"):
        assert {word for line in read_cover(file) for word in line} == set(names)
    compared = CliRunner().invoke(
        main, ["evaluate", *[str(tmp_path / "x.txt")] * 2, "--graph", str(tmp_path / "g.txt"), "--json"]
    )
    assert json.loads(compared.stdout)["vertices"] == 5
    (tmp_path / "more.txt").write_text("d\u2028\n\u2028\n", encoding="utf-8")
    assert set(as_graph(tmp_path / "g.txt", vertices=tmp_path / "more.txt").ids) == {*names, "d\u2028"}


def test_refusals(graph: Path, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gexf"
    said = convert(results / "run.json", "-o", tmp_path / "out.csv", code=2).stderr
    assert f"name their folder, {results}" in said
    assert "does not say what format" in convert(results, "-o", tmp_path / "out", code=2).stderr
    assert "has no run.json: name the folder" in convert(tmp_path, "-o", out, code=2).stderr
    assert "absent.txt" in convert(results, "-o", out, "--graph", tmp_path / "absent.txt", code=2).stderr
    (tmp_path / "other.txt").write_text("v1 v2\n")
    said = convert(results, "-o", out, "--graph", tmp_path / "other.txt", code=2).stderr
    assert "other.txt is not the graph of the run in" in said
    assert "it has 2 vertices and 1 links, the run's 30 and 60" in said
    before = graph.read_bytes()
    said = convert(results, "-o", graph, "--to", "snap", code=2).stderr
    assert f"-o {graph} would replace {graph}, which the command reads: name another file" in said
    assert graph.read_bytes() == before
    assert "does not exist: name a folder of results" in convert(tmp_path / "x.mmsbgen", "-o", out, code=2).stderr
    assert "'docx' is not one of" in convert(results, "-o", out, "--to", "docx", code=2).stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("run.json", lambda old: b"{", "run.json is damaged"),
        ("run.json", lambda old: b"[]", "run.json is damaged"),
        ("run.json", lambda old: b"[" * 100_000, "run.json is damaged"),
        (
            "run.json",
            lambda old: old.replace(b'"background"', b'"names"'),
            "it has no 'background'.*run `mmsbgen detect -o` again",
        ),
        ("run.json", lambda old: old.replace(b'"vertices": 30', b'"vertices": 31'), "30 vertices, run.json 31"),
        ("memberships.npz", lambda old: old[:300], "memberships.npz is damaged"),
        ("memberships.npz", lambda old: b"", "memberships.npz is damaged"),
        ("communities.txt", lambda old: old + b"nobody\tv1\n", "'nobody' is no vertex"),
        ("communities.txt", lambda old: old + b"v1\tv2\n", "not those of run.json"),
        ("communities.txt", lambda old: b"\xff\xfe", "communities.txt is damaged"),
    ],
)
def test_damaged_folders(results: Path, tmp_path: Path, name: str, change: Any, words: str) -> None:
    shutil.copytree(results, tmp_path / "copy")
    path = tmp_path / "copy" / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=words):
        read_run(tmp_path / "copy")[0]


@pytest.mark.parametrize("odd", ["7", "2 5", "05", "+5", "", "2\t", "#5", "2\v", "x"])
def test_members_are_read_alike_whether_ids_are_integers_or_text(odd: str) -> None:
    ids, text = np.array([-3, 2, 5, 10]), "5\t-3\n2\n-3\t10\t2\n"
    members = [[2, 0], [1], [0, 3, 1]]
    for kind in (ids, ids.astype(str)):
        assert [one.tolist() for one in read_members(text.encode(), kind)] == members
        assert read_members(b"", kind) == []
        for damaged in (f"{text}{odd}\n", f"{odd}\n{text}", f"{text}5\t{odd}\n"):
            with pytest.raises(ValueError, match="is no vertex"):
                read_members(damaged.encode(), kind)
    assert [one.tolist() for one in read_members(text.encode(), ids[::-1])] == [[1, 3], [2], [3, 0, 2]]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("shares", lambda a: a * np.nan),
        ("shares", lambda a: -a),
        ("shares", lambda a: a.astype(complex)),
        ("communities", lambda a: a.astype(np.float32)),
        ("beta", lambda a: a * np.inf),
        ("beta", lambda a: a.astype("U9")),
        ("rest", lambda a: a - 1),
        ("spread", lambda a: a * np.nan),
        ("codes", lambda a: a.astype(np.int64)),
        ("columns", lambda a: a + 0.5),
        ("unlinked", lambda a: np.array([0.5])),
    ],
)
def test_forged_memberships(results: Path, tmp_path: Path, name: str, change: Any) -> None:
    """Archives with valid checksums whose numbers no run has."""
    shutil.copytree(results, tmp_path / "copy")
    path = tmp_path / "copy" / "memberships.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    with np.errstate(invalid="ignore"):
        np.savez(path, **arrays | {name: change(arrays[name])})
    said = convert(tmp_path / "copy", "-o", tmp_path / "out.csv", code=2).stderr
    assert "memberships.npz is damaged, or not what this version of mmsbgen writes" in said
    assert not (tmp_path / "out.csv").exists()


def test_archives_that_unpack_to_more_than_they_are(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    path = tmp_path / "copy" / "memberships.npz"
    np.savez_compressed(path, ids=np.zeros(1_000_000, np.int64))
    assert path.stat().st_size < 10_000
    assert "ids.npy is compressed" in convert(tmp_path / "copy", "-o", tmp_path / "out.csv", code=2).stderr
    header = io.BytesIO()
    np.lib.format.write_array_header_2_0(header, {"descr": "<i8", "fortran_order": False, "shape": (2**44,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ids.npy", header.getvalue() + b"\0" * 80)
    assert "memberships.npz is damaged" in convert(tmp_path / "copy", "-o", tmp_path / "out.csv", code=2).stderr


def test_ids_that_files_cannot_have_are_refused_before_the_run(tmp_path: Path) -> None:
    links = [("a\tb", "c"), ("c", "d"), ("d", "a\tb"), ("d", "e")]
    with pytest.raises(InputError, match=r"id 'a\\tb' cannot stand in a file"):
        mmsbgen.detect(links, 2, out=tmp_path / "out", **FAST)
    with pytest.raises(InputError, match=r"id 'a\\udcff' cannot stand in a file"):
        mmsbgen.detect([("a\udcff", "c"), ("c", "d")], 2, out=tmp_path / "out", **FAST)
    assert not (tmp_path / "out").exists()
    spaced = [("a b", (1, 2)), ((1, 2), None), (None, "a b"), ("a b", 3), (3, frozenset("xyz"))]
    found = mmsbgen.detect(spaced, 2, out=tmp_path / "out", **FAST)
    read = read_run(tmp_path / "out")[0]
    assert words_of(found.memberships.ids) == read.ids
    assert all(map(np.array_equal, read.cover.members, found.cover.members))


def test_the_graph_of_a_table_is_read_by_the_columns_of_its_run(tmp_path: Path) -> None:
    file = tmp_path / "ring.csv"
    file.write_text("".join(f"{at},{a},{b}\n" for at, (a, b) in enumerate(RING)))
    words = f"detect {file} -k 3 -n 2 -m 8 --device {PROCESSOR} --start random -q -o {tmp_path / 'out'}"
    refused = CliRunner().invoke(main, words.split())
    assert (refused.exit_code, (tmp_path / "out").exists()) == (2, False)
    assert "--columns A,B" in refused.output
    done = CliRunner().invoke(main, [*words.split(), "--columns", "2,3"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "run.json").read_text())["graph"]["reading"] == {"columns": ["2", "3"]}
    graph, reason = graph_of_run(tmp_path / "out")
    assert reason == ""
    assert {frozenset(pair) for pair in graph.ids[graph.links].tolist()} == set(map(frozenset, RING))


def test_exports_read_the_graph_as_its_run_did(tmp_path: Path) -> None:
    file, vertices = tmp_path / "ring.net", tmp_path / "ids.txt"
    file.write_text("".join(f"{a} {b} {w}\n" for w, (a, b) in enumerate(RING)))
    vertices.write_text("v3\nalone\n")
    reading = ["--format", "text", "--columns", "1,2,3", "--weights", "threshold=10", "--vertices", str(vertices)]
    words = f"detect {file} -k 3 -n 2 -m 8 --device {PROCESSOR} --start random -q -o {tmp_path / 'out'}"
    done = CliRunner().invoke(main, [*words.split(), *reading])
    assert done.exit_code == 0, done.output
    convert(tmp_path / "out", "-o", tmp_path / "ring.graphml")
    drawn = nx.read_graphml(tmp_path / "ring.graphml")
    labels = nx.get_node_attributes(drawn, "label")
    assert {frozenset(map(labels.get, pair)) for pair in drawn.edges} == set(map(frozenset, RING[10:]))
    assert set(labels.values()) == {f"v{a}" for a in range(30)} | {"alone"}
    cover = tmp_path / "out" / "communities.txt"
    scores = ["evaluate", str(cover), str(cover), "--json"]
    files = ["--graph", str(file), *reading[:4], *reading[6:]]
    compared = CliRunner().invoke(main, [*scores, *files])
    assert json.loads(compared.output)["vertices"] == 31
    alone = CliRunner().invoke(main, [*scores, *files[2:]])
    assert (alone.exit_code, "--graph" in alone.output) == (2, True)
    how = {"format": "text", "columns": ("1", "2", "3"), "weights": "threshold=10", "vertices": vertices}
    found = mmsbgen.MMSB(3, **FAST).fit(file, **how)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert found.record_["graph"] == record["graph"]


def test_damaged_files_end_with_their_reason_and_no_results(tmp_path: Path) -> None:
    for name, content in (("g.graphml", b"<graphml><graph>"), ("g.npz", b"PK\x03\x04.npy"), ("g.parquet", b"PAR1")):
        (tmp_path / name).write_bytes(content)
        done = CliRunner().invoke(main, ["detect", str(tmp_path / name), "-k", "3", "-o", str(tmp_path / "out")])
        assert done.exit_code == 2, done.output
        assert name in done.output
        assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("columns", ["2", "2,", "2,3,4", "2,9"])
def test_columns_that_are_none_are_refused(graph: Path, columns: str) -> None:
    done = CliRunner().invoke(main, ["detect", str(graph), "-k", "3", "--columns", columns])
    assert done.exit_code == 2, done.output
    assert columns.split(",")[0] in done.output


def test_communities_of_a_graph_without_structure_are_not_to_be_used(results: Path, tmp_path: Path) -> None:
    """The verdict of the run is repeated, and nothing is said where there is structure."""
    folder = tmp_path / "run"
    shutil.copytree(results, folder)
    record = json.loads((folder / "run.json").read_text())
    for kind, said in (("none", True), ("degrees", True), ("found", False)):
        record["verdict"] |= {"kind": kind, "sentence": f"Verdict {kind}. Do not use the communities."}
        (folder / "run.json").write_text(json.dumps(record))
        done = convert(folder, "-o", tmp_path / f"{kind}.csv")
        assert ("Do not use the communities." in done.stderr) == said
