from __future__ import annotations

import json
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mmsbgen import detect
from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.scores import evaluate, structure

DATA = Path(__file__).parents[1] / "data"
TRUTH, GRAPH = DATA / "fb_348.cmty.txt.gz", DATA / "fb_348.txt.gz"


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["evaluate", *map(str, words)])


@pytest.fixture
def cover(tmp_path: Path) -> Path:
    file = tmp_path / "communities.txt"
    file.write_text("1\t2\n2\t3\n")
    return file


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    file = tmp_path / "truth.txt"
    file.write_text("# known\n1 2\n3 4\n")
    return file


def test_a_table_for_readers(cover: Path, truth: Path):
    result = call(cover, truth)
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[1].split("  ")[0] == "ONMI (McDaid, Greene, Hurley; max)"
    assert [line.split()[-1] for line in lines[1:5]] == ["0.5000", "0.5000", "0.7500", "0.2500"]
    assert lines[6].split() == ["4", "vertices", "cover", "truth"]
    assert lines[7].split() == ["communities", "2", "2"]
    assert lines[8].split() == ["coverage", "75.0%", "100.0%"]


def test_json_is_one_object_with_all_scores(cover: Path, truth: Path):
    result = call(cover, truth, "--json")
    assert json.loads(result.stdout) == asdict(evaluate([[1, 2], [2, 3]], [[1, 2], [3, 4]]))


def test_the_vertices_of_the_graph_are_those_compared():
    with_graph, without = (json.loads(call(TRUTH, TRUTH, "--json", *more).stdout) for more in (["--graph", GRAPH], []))
    assert (with_graph["vertices"], without["vertices"]) == (227, 220)
    assert with_graph["onmi"] == pytest.approx(1.0)
    assert with_graph["coverage"] == pytest.approx(220 / 227)
    assert without["coverage"] == 1.0


def test_links_of_the_graph_do_not_matter(tmp_path: Path):
    """This one is directed, of which `mmsbgen detect` warns."""
    cover = tmp_path / "cover.txt"
    cover.write_text("0 1 2\n")
    result = call(cover, cover, "--graph", DATA / "email-Eu-core.txt.gz", "--json")
    assert json.loads(result.stdout)["vertices"] == 1005
    assert result.stderr == ""


@pytest.mark.filterwarnings("default::mmsbgen.scores.cover.CoverWarning")
def test_files_that_share_no_vertex_are_refused_and_few_shared_ones_are_warned_of(cover: Path, tmp_path: Path):
    other = tmp_path / "other.txt"
    other.write_text("u1 u2\nu2 u3 u4\n")
    result = call(cover, other)
    assert result.exit_code == 2
    assert "communities.txt and " in result.stderr
    assert "have no vertex in common: the first has ids such as '1', the second such as 'u1'" in result.stderr
    cover.write_text("\t".join(map(str, range(20))) + "\n")
    other.write_text("\t".join(map(str, range(18, 40))) + "\n")
    assert call(cover, other).exit_code == 0
    other.write_text("\t".join(map(str, range(19, 40))) + "\n")
    result = call(cover, other)
    assert result.exit_code == 0, result.output
    assert "1 vertices in common, of 20 and 21 that they have" in result.stderr


def test_bad_input_is_told(cover: Path, truth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing\n")
    stranger = tmp_path / "stranger.txt"
    stranger.write_text("1 2\n3 Ann\n")
    told = {
        (cover, tmp_path / "nowhere.txt"): "nowhere.txt: no such file; check the path",
        (empty, truth): "empty.txt has no community; a cover has one community a line",
        (stranger, TRUTH, "--graph", GRAPH): "community 2 of the cover has the id 'Ann', which is no vertex of the",
        (cover, truth, "--graph", tmp_path / "nograph.txt"): "nograph.txt: no such file",
    }
    for words, message in told.items():
        result = call(*words)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
        assert result.stdout == ""


def test_without_a_truth_the_links_score_the_cover(cover: Path, tmp_path: Path):
    graph = tmp_path / "graph.txt"
    graph.write_text("1 2\n2 3\n3 4\n")
    told = json.loads(call(cover, "--graph", graph, "--json").stdout)
    assert told == asdict(structure([[1, 2], [2, 3]], [(1, 2), (2, 3), (3, 4)]))
    lines = [" ".join(line.split()) for line in call(cover, "--graph", graph).stdout.splitlines()]
    assert lines[0] == "2 communities of 4 vertices, 3 links value"
    assert lines[3:] == [
        "internal density, mean of communities 1.0000", "links inside a community 66.7%",
        "vertices in a community 75.0%",
        "communities of a covered vertex 1.33",
    ]  # fmt: skip
    graph.write_text("1 2 0.5\n2 3 1.5\n3 4 1.5\n")
    assert (
        json.loads(call(cover, "--graph", graph, "--columns", "1,2,3", "--weights", "threshold=1", "--json").stdout)[
            "links"
        ]
        == 2
    )
    refused = call(cover)
    assert refused.exit_code == 2
    assert "give TRUTH, known communities to compare with, or --graph to score by its links" in refused.stderr
    cover.write_text("1 Ann\n")
    assert (
        "community 1 of the cover has the id 'Ann', which is no vertex"
        in call(cover, "--graph", graph, "--columns", "1,2,3", "--weights", "ignore").stderr
    )


def test_the_help_says_what_is_compared():
    text = " ".join(call("--help").stdout.split())
    assert "With TRUTH, all measures are over the same vertices: those of the graph if it is known, else those" in text


def test_a_result_folder_tells_its_graph(tmp_path: Path, processor: Device):
    graph, out, truth = tmp_path / "links.csv", tmp_path / "out", tmp_path / "truth.txt"
    rows = [f"{number},{a},{b},2020\n" for number, (a, b) in enumerate(combinations("abcd", 2))]
    graph.write_text("row,person,friend,since\n" + "".join(rows) + "9,d,e,2021\n9,e,f,2021\n")
    detect(graph, 2, columns=("person", "friend"), iterations=4, out=out, device=processor.info.spec)
    truth.write_text("a b c d\n")
    found = json.loads(call(out, truth, "--json").stdout)
    by_hand = call(out / "communities.txt", truth, "--graph", graph, "--columns", "person,friend", "--json")
    assert found == json.loads(by_hand.stdout)
    assert found["vertices"] == 6
    assert json.loads(call(out, "--json").stdout)["links"] == 8
    refused = call(out, truth, "--graph", graph, "--columns", "person,friend")
    assert (refused.exit_code, "tells how its graph is read: leave out" in refused.stderr) == (2, True)
    communities = (out / "communities.txt").read_text()
    (out / "communities.txt").write_text("a\tb\n")
    assert "are not those of run.json" in call(out, truth).stderr
    (out / "communities.txt").write_text(communities)
    graph.rename(tmp_path / "moved.csv")
    refused = call(out, truth)
    assert (refused.exit_code, "is not at hand" in refused.stderr) == (2, True)
    assert json.loads(call(out, truth, "--graph", tmp_path / "moved.csv", "--json").stdout) == found


@pytest.mark.filterwarnings("always::mmsbgen.scores.cover.CoverWarning")
def test_communities_of_two_are_scored_and_a_table_is_refused_where_the_graph_tells(tmp_path: Path):
    cover, table, graph = (tmp_path / name for name in ("cover.txt", "table.txt", "graph.txt"))
    cover.write_text("a z\nb z\nc z\n")
    table.write_text("a red\nb red\nc red\n")
    graph.write_text("a b\nb c\nc z\n")
    result = call(cover, cover, "--graph", graph, "--json")
    assert "taken for communities of two vertices" in result.stderr
    assert json.loads(result.stdout)["onmi"] == 1
    result = call(cover, table, "--graph", graph)
    assert result.exit_code == 2, result.output
    assert "table.txt: all 3 lines have two fields, a vertex and one of 1 that are no vertices of" in result.stderr
