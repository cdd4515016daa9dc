"""``mmsbgen propagate`` and ``mmsbgen graph rank``."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from mmsbgen.algorithms.known_labels import LabelWarning, known_labels
from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.export.run_folder import read_run
from mmsbgen.graph import as_arcs
from tests.devices import PROCESSOR


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, words), "--device", PROCESSOR])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two triangles with a link between them, and a link apart."""
    (tmp_path / "g.txt").write_text("a b\nb c\nc a\nc d\nd e\ne f\nf d\nx y\n")
    return tmp_path / "g.txt"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    (tmp_path / "labels.tsv").write_text("a\tred\nf\tblue\n")
    return tmp_path / "labels.tsv"


def test_a_line_for_each_vertex(file: Path, labels: Path, processor: Device) -> None:
    done = run("propagate", file, "--labels", labels, "--tolerance", "1e-7")
    assert done.exit_code == 0
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows] == [
        *([v, "red"] for v in "abc"),
        *([v, "blue"] for v in "def"),
        ["x", ""],
        ["y", ""],
    ]
    # Red's potential: a = 1, b and c between it and d.
    assert float(rows[2][2]) == pytest.approx(5 / 7, abs=1e-5)
    assert "2 labels of 2 vertices spread to 6 of 8 in" in done.stderr
    assert "at most the tolerance" in done.stderr
    assert "No label reached 2 vertices, such as x, y." in done.stderr


def test_alpha_is_of_other_rules(file: Path, labels: Path) -> None:
    done = run("propagate", file, "--labels", labels, "--alpha", "0.5")
    assert (done.exit_code, "give --rule spread" in done.stderr) == (2, True)


@pytest.mark.filterwarnings("ignore:.*are left out")
def test_labels_may_have_a_header(tmp_path: Path, processor: Device) -> None:
    file, known = tmp_path / "g.txt", tmp_path / "known.csv"
    file.write_text("1 2\n2 3\n3 4\n")
    known.write_text("id,label\n1,7\n4,11\n")
    done = run("propagate", file, "--labels", known)
    assert done.stdout.splitlines()[0] == "1\t7\t1"
    assert "left out" not in done.stderr
    known.write_text("id,label\n9,7\n8,7\n1,7\n4,11\n")
    assert run("propagate", file, "--labels", known).stdout == done.stdout
    with pytest.warns(LabelWarning, match="2 lines of ids that are no vertices .* such as '9', '8'"):
        known_labels(as_arcs(file), known)


def test_results_are_those_of_a_detection(file: Path, labels: Path, tmp_path: Path, processor: Device) -> None:
    out = tmp_path / "out"
    done = run("propagate", file, "--labels", labels, "--tolerance", "1e-7", "-o", out)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Written to" in done.stderr
    found, record = read_run(out)
    assert [[found.ids[v] for v in one] for one in found.cover.members] == [list("cdef"), list("abcd")]
    assert record["labels"] == ["blue", "red"]
    assert record["convergence"]["converged"]
    table = tmp_path / "shares.csv"
    assert CliRunner().invoke(main, ["convert", str(out), "-o", str(table)]).exit_code == 0
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert rows[0] == ["id", "community", "share"]
    assert [row[:2] for row in rows[1:] if row[0] in "cd"] == [["c", "red"], ["c", "blue"], ["d", "blue"], ["d", "red"]]
    assert float(next(row for row in rows if row[:2] == ["c", "red"])[2]) == pytest.approx(5 / 7, abs=1e-5)
    assert CliRunner().invoke(main, ["convert", str(out), "-o", str(tmp_path / "out.parquet")]).exit_code == 0
    columns = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(zip(columns["id"], columns["community"], strict=True)) == [tuple(row[:2]) for row in rows[1:]]
    for name, read in (("out.gexf", nx.read_gexf), ("out.graphml", nx.read_graphml)):
        assert CliRunner().invoke(main, ["convert", str(out), "-o", str(tmp_path / name)]).exit_code == 0
        drawn = {data["label"]: data for _, data in read(tmp_path / name).nodes(data=True)}
        assert (drawn["c"]["community"], drawn["c"]["communities"]) == ("red", "red|blue")
        assert drawn["c"]["memberships"].startswith("red:0.71")
        assert drawn["x"]["community"] in ("", None)
    refused = CliRunner().invoke(main, ["report", str(out)])
    assert refused.exit_code == 2
    assert "is of `mmsbgen propagate`: reports are of results of detect and update" in refused.output
    assert record["unreached"] == {"count": 2, "such_as": ["x", "y"]}
    assert found.memberships.dense()[:6].sum(axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert CliRunner().invoke(main, ["convert", str(out), "-o", str(tmp_path / "out.csv")]).exit_code == 0
    assert record["options"]["labels_format"] == "pairs"
    assert "labels.tsv was read as lines of an id and its label." in done.stderr
    (out / "run.json").write_text(json.dumps({name: value for name, value in record.items() if name != "command"}))
    done = run("propagate", file, "--labels", labels, "-o", out)
    assert done.exit_code == 2
    assert "has results of a detection: name another folder" in done.stderr
    (out / "run.json").write_text(json.dumps(record))
    other = tmp_path / "other.txt"
    other.write_text("a b\nb c\nc d\n")
    done = run("propagate", other, "--labels", labels, "-o", out)
    assert done.exit_code == 2
    assert "has results of another graph" in done.stderr
    assert json.loads((out / "run.json").read_text()) == record
    printed = run("propagate", file, "--labels", labels, "-q").stdout
    (tmp_path / "printed.tsv").write_text(printed)
    assert run("propagate", file, "--labels", tmp_path / "printed.tsv", "-q").stdout.splitlines()[-1] == "y\t\t0"
    (tmp_path / "pairs.txt").write_text("a b\n")
    assert run("propagate", file, "--labels", tmp_path / "pairs.txt").exit_code == 2
    done = run("propagate", file, "--labels", tmp_path / "pairs.txt", "--labels-format", "communities")
    assert "pairs.txt was read as lines of a community." in done.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "communities.txt").write_text("keep\n")
    done = run("propagate", file, "--labels", labels, "-o", tmp_path / "mine")
    assert done.exit_code == 2
    assert "is not of a run of mmsbgen" in done.stderr
    assert (tmp_path / "mine" / "communities.txt").read_text() == "keep\n"


def test_weights_of_the_third_column(tmp_path: Path, labels: Path, processor: Device) -> None:
    (tmp_path / "w.txt").write_text("a m 1\nm f 3\n")
    done = run("propagate", tmp_path / "w.txt", "--labels", labels, "--weighted", "--json")
    assert json.loads(done.stdout)["graph"]["links"] == 2
    done = run("propagate", tmp_path / "w.txt", "--labels", labels, "--weighted", "-q")
    assert done.stdout.splitlines()[2] == "m\tblue\t0.75"
    assert done.stderr == ""
    table = ["propagate", tmp_path / "w.txt", "--labels", labels, "--columns", "1,2,3", "-q", "--weights"]
    for rule, shown in (("ignore", "m\tblue\t0.5"), ("threshold=2", "m\tblue\t1")):
        assert run(*table, rule).stdout.splitlines()[2] == shown
    done = run(*table, "ignore", "--weighted")
    assert done.exit_code == 2
    assert "--weights ignore makes links of the weights that --weighted uses" in done.stderr
    (tmp_path / "named.csv").write_text("source,target,weight\na,b,2\n")
    done = run("propagate", tmp_path / "named.csv", "--labels", labels)
    assert "has weight 2; --weighted spreads by weights. --weights ignore counts" in done.stderr
    (tmp_path / "w.txt").write_text("a m 1\nm f -3\n")
    done = run("propagate", tmp_path / "w.txt", "--labels", labels, "--weighted")
    assert done.exit_code == 2
    assert "the weight from 'f' to 'm' is -3.0; give finite ones of 0 or more" in done.stderr


@pytest.mark.filterwarnings("default")
def test_rounds_that_run_out_end_with_a_warning(file: Path, labels: Path, processor: Device) -> None:
    done = run("propagate", file, "--labels", labels, "--tolerance", "1e-9", "--max-rounds", "3")
    assert done.exit_code == 0
    assert "more than the tolerance: allow more rounds" in done.stderr
    assert "shares still change by" in done.stderr


def test_ranks_of_many_seeds(tmp_path: Path, processor: Device) -> None:
    made = nx.karate_club_graph()
    (tmp_path / "k.txt").write_text("".join(f"{u} {v}\n" for u, v in made.edges))
    (tmp_path / "seeds.txt").write_text("# seeds\n5\n33 0\n")
    given = ("graph", "rank", tmp_path / "k.txt", "--seeds", tmp_path / "seeds.txt")
    done = run(*given, "--top", "3", "--tolerance", "1e-9")
    assert done.exit_code == 0
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["5"] * 3 + ["33,0"] * 3
    for begin, start in ((0, {5: 1}), (3, {33: 1, 0: 1})):
        exact = nx.pagerank(made, personalization=start, weight=None, tol=1e-12, max_iter=500)
        best = sorted(exact, key=lambda v: -exact[v])[:3]
        assert sorted(int(row[1]) for row in rows[begin : begin + 3]) == sorted(best)
        for _, name, score in rows[begin : begin + 3]:
            assert float(score) == pytest.approx(exact[int(name)], abs=1e-5)
    assert "2 seeds" in done.stderr
    done = run(*given, "--tolerance", "0.5")
    assert "scores lack up to 0." in done.stderr
    done = run(*given, "--tolerance", "1e-12", "--max-rounds", "3")
    assert done.exit_code == 1
    assert "allow more rounds by --max-rounds" in done.stderr
    (tmp_path / "seeds.txt").write_text("99\n")
    done = run(*given)
    assert done.exit_code == 2
    assert "'99' is no vertex of" in done.stderr


def test_ranks_heed_the_column_of_weights(tmp_path: Path, processor: Device) -> None:
    (tmp_path / "g.csv").write_text("from,to,w\nm,a,1\nm,b,9\n")
    (tmp_path / "seeds.txt").write_text("m\n")
    for algorithm in (["rank", "--seeds", tmp_path / "seeds.txt"], ["pagerank", "--source", "m"]):
        scores = []
        for columns in ("from,to", "from,to,w"):
            done = run("graph", algorithm[0], tmp_path / "g.csv", *algorithm[1:], "--columns", columns)
            rows = [line.split("\t")[-2:] for line in done.stdout.splitlines()]
            scores.append({name: float(score) for name, score in rows})
        assert scores[0]["a"] == pytest.approx(scores[0]["b"])
        assert scores[1]["b"] == pytest.approx(9 * scores[1]["a"], rel=1e-3)


def test_seeds_may_have_blanks(tmp_path: Path) -> None:
    (tmp_path / "graph.csv").write_text("source,target\nAnna Byrne,Ben Cole\nBen Cole,Cara Dunn\n")
    (tmp_path / "seeds.txt").write_text("Anna Byrne\nAnna Byrne\tCara Dunn\n")
    files = tmp_path / "graph.csv", "--seeds", tmp_path / "seeds.txt"
    found = CliRunner().invoke(main, ["graph", "rank", *map(str, files), "--device", PROCESSOR])
    assert found.exit_code == 0, found.output
    assert {line.split("\t")[0] for line in found.stdout.splitlines()} == {"Anna Byrne", "Anna Byrne,Cara Dunn"}


def test_columns_of_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "graph.csv").write_text("since,person,friend,often\n1,Anna B,Ben C,2\n2,Ben C,Cara D,2\n")
    (tmp_path / "labels.txt").write_text("Anna B\tred\n")
    for columns in ("person,friend", "person,friend,often"):
        found = run("propagate", tmp_path / "graph.csv", "--columns", columns, "--labels", tmp_path / "labels.txt")
        assert found.exit_code == 0, found.output
        assert [line.split("\t")[:2] for line in found.stdout.splitlines()] == [
            ["Anna B", "red"], ["Ben C", "red"], ["Cara D", "red"],
        ]  # fmt: skip
