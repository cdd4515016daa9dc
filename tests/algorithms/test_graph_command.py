"""``mmsbgen graph``."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.cli import main
from mmsbgen.sampler.saved.result_folder import keep_foreign
from tests.devices import PROCESSOR


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["graph", *words, "--device", PROCESSOR])


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "g.txt").write_text("1 2\n2 3\n3 1\n3 4\n7 8\n")
    return str(tmp_path / "g.txt")


def test_a_line_for_each_vertex_and_a_summary(file: str, processor: Device) -> None:
    done = run("bfs", file, "--source", "4")
    assert (done.exit_code, done.stdout) == (0, "1\t2\n2\t2\n3\t1\n4\t0\n7\tinf\n8\tinf\n")
    assert done.stderr.startswith("6 vertices, 10 arcs; 4 reached, the farthest at 2 (")
    done = run("bfs", file, "--source", "4", "--directed")
    assert done.stdout == "1\tinf\n2\tinf\n3\tinf\n4\t0\n7\tinf\n8\tinf\n"
    done = run("bfs", file, "--source", "4", "--source", "8")
    assert done.stdout == "1\t2\tinf\n2\t2\tinf\n3\t1\tinf\n4\t0\tinf\n7\tinf\t1\n8\tinf\t0\n"
    assert "6 reached, the farthest at 2" in done.stderr
    done = run("closeness", file)
    assert done.stdout == "1\t0.45\n2\t0.45\n3\t0.6\n4\t0.36\n7\t0.2\n8\t0.2\n"
    done = run("components", file)
    assert done.stdout == "1\t0\n2\t0\n3\t0\n4\t0\n7\t1\n8\t1\n"
    assert "2 components, the largest of 4" in done.stderr
    done = run("cores", file)
    assert done.stdout == "1\t2\n2\t2\n3\t2\n4\t1\n7\t1\n8\t1\n"
    assert "the largest core number is 2, of 3" in done.stderr
    done = run("cores", file, "--k", "2")
    assert done.stdout == "1\n2\n3\n"
    assert "; 3 in the 2-core (" in done.stderr
    done = run("triangles", file)
    assert done.stdout == "1\t1\t1\n2\t1\t1\n3\t1\t0.333333\n4\t0\t0\n7\t0\t0\n8\t0\t0\n"
    assert "1 triangle, 0.6 of all pairs of neighbours are linked, 0.388889 of a vertex's on average" in done.stderr


def test_no_result_replaces_what_is_read(file: str, tmp_path: Path, processor: Device) -> None:
    before, link = Path(file).read_text(), tmp_path / "same.txt"
    link.symlink_to(file)
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("1\n")
    for words in (["cores", file, "-o", str(link)], ["rank", file, "--seeds", str(seeds), "-o", str(seeds)]):
        done = run(*words)
        assert done.exit_code == 2
        assert "which the command reads: name another file" in done.stderr
    assert (Path(file).read_text(), seeds.read_text()) == (before, "1\n")
    done = run("cores", "no graph", "-o", f"{file}/cores.tsv")
    assert (done.exit_code, "cannot write" in done.stderr) == (2, True), "said before any work"


def test_a_dash_is_standard_output(
    file: str, processor: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("cores", file, "--k", "2", "-o", "-")
    assert (done.exit_code, capfd.readouterr().out, Path("-").exists()) == (0, "1\n2\n3\n", False)


def test_a_folder_that_may_not_be_entered_is_told(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, closed = os.stat, str(tmp_path / "closed")
    (tmp_path / "closed").write_text("")

    def refused(path: Any, *more: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, *more, **how)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(InputError, match="run: Permission denied. Name a folder that you may write to"):
        keep_foreign(Path(closed, "run"))
    done = run("cores", file, "-o", f"{closed}/cores.tsv")
    assert (done.exit_code, "cannot write" in done.stderr) == (2, True), done.output


def test_distances_by_the_third_column(tmp_path: Path, processor: Device) -> None:
    (tmp_path / "w.txt").write_text("a b 0.5\nb c 1\na c 2\n")
    done = run("sssp", str(tmp_path / "w.txt"), "--source", "a")
    assert (done.exit_code, done.stdout) == (0, "a\t0.0\nb\t0.5\nc\t1.5\n")
    done = run("widest", str(tmp_path / "w.txt"), "--source", "a")
    assert (done.exit_code, done.stdout) == (0, "a\tinf\nb\t1.0\nc\t2.0\n")


def test_tables_of_arcs(tmp_path: Path, processor: Device) -> None:
    roads = tmp_path / "roads.csv"
    roads.write_text('km,from,to,opened\n5,Bad Ems,"Ulm, old",1950\n2,Bad Ems,Hof,1960\n1.5,Hof,"Ulm, old",1970\n')
    done = run("sssp", str(roads), "--source", "Bad Ems", "--directed", "--columns", "from,to,km")
    assert (done.exit_code, done.stdout) == (0, "Bad Ems\t0.0\nHof\t2.0\nUlm, old\t3.5\n")
    done = run("bfs", str(roads), "--source", "Hof", "--directed")
    assert (done.exit_code, done.stdout) == (0, "Bad Ems\tinf\nHof\t0\nUlm, old\t1\n")
    done = run("sssp", str(roads), "--source", "Hof")
    assert done.exit_code == 2
    assert "not clear which column has the weights: give --columns A,B,W" in done.stderr
    roads.write_text(roads.read_text().replace("km", "weight"))
    done = run("sssp", str(roads), "--source", "Bad Ems")
    assert (done.exit_code, done.stdout) == (0, "Bad Ems\t0.0\nHof\t2.0\nUlm, old\t3.5\n")
    done = run("components", str(roads))  # which ignores weights
    assert (done.exit_code, done.stdout) == (0, "Bad Ems\t0\nHof\t0\nUlm, old\t0\n")
    roads.write_text("person,friend,since\nAnn,Bob,1950\nBob,Cleo,1960\n")
    done = run("pagerank", str(roads), "--directed")
    assert done.exit_code == 2
    assert "1: 'person'  2: 'friend'" in done.stderr


def test_a_third_column_with_another_name_is_no_weight(tmp_path: Path, processor: Device) -> None:
    friends = tmp_path / "friends.csv"
    for text in (
        "person,friend,since\nAnn,Bob,1950\n",
        "from,to,since\nAnn,Bob,1950\n",
        "from to since\nAnn Bob 1950\n",
    ):
        friends.write_text(text)
        ends = ",".join(text.replace(",", " ").split()[:2])
        for columns in (("--columns", ends),) if "person" in text else ((), ("--columns", ends)):
            done = run("sssp", str(friends), "--source", "Ann", *columns)
            assert done.exit_code == 2, text
            assert "give --columns A,B,W" in done.stderr
        done = run("sssp", str(friends), "--source", "Ann", "--columns", f"{ends},since")
        assert (done.exit_code, done.stdout) == (0, "Ann\t0.0\nBob\t1950.0\n")
    friends.write_text("1,2,1950\n")
    assert "give --columns A,B,W" in run("sssp", str(friends), "--source", "1", "--columns", "1,2").stderr


def test_ranks_to_a_file(file: str, tmp_path: Path, processor: Device) -> None:
    out = tmp_path / "ranks.tsv"
    done = run("pagerank", file, "--source", "7", "--tolerance", "1e-9", "-o", str(out))
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"{out}: 6 vertices, 10 arcs; " in done.stderr
    ranks = dict(line.split("\t") for line in out.read_text().splitlines())
    assert float(ranks["7"]) == pytest.approx(1 / 1.85, abs=1e-6)
    assert float(ranks["1"]) == pytest.approx(0, abs=1e-6)


def test_groups_of_the_number_with_the_least_free_energy(tmp_path: Path, processor: Device) -> None:
    """Two cliques of twelve with three links between them."""
    cliques = [(u + first, v + first) for first in (0, 12) for u in range(12) for v in range(u)]
    (tmp_path / "g.txt").write_text("".join(f"{u} {v}\n" for u, v in [*cliques, (0, 12), (3, 17), (5, 20)]))
    done = run("blockmodel", str(tmp_path / "g.txt"), "-k", "3,2", "--seed", "1")
    assert done.exit_code == 0
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [int(name) for name, _, _ in rows] == list(range(24))
    groups = [group for _, group, _ in rows]
    assert len(set(groups[:12])) == len(set(groups[12:])) == 1
    assert set(groups) == {"0", "1"}
    assert all(0.99 < float(chance) <= 1 for _, _, chance in rows)
    told = done.stderr.splitlines()
    assert told[0].split("\t") == ["K", "free energy", "with parameters"]
    assert [line.split("\t")[0] for line in told[1:4]] == ["1", "2", "3"]
    assert "24 vertices, 270 arcs; 2 groups, free energy " in told[4]
    one = run("blockmodel", str(tmp_path / "g.txt"), "-k", "2", "--seed", "1", "-q")
    assert (one.stdout, one.stderr) == (done.stdout, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("blockmodel", "-k", "1"), "'1': give whole numbers of 2 or more, such as 4 or 2,3,4"),
        (("blockmodel", "-k", "2,x"), "'2,x': give whole numbers of 2 or more"),
        (("blockmodel", "-k", "7"), "k=7 groups for g, which has 6 vertices: give a whole number from 1 to 6"),
        (("blockmodel", "-k", "2", "--directed"), "g is directed, and messages go both ways: give an undirected graph"),
        (("bfs", "--source", "9"), "'9' is no vertex of g; its ids are such as 1, 2, 3"),
        (("sssp", "--source", "1"), "'1 2' has 2 fields; an arc is two ids and its weight: give a third column"),
        (("pagerank", "--alpha", "2"), "alpha=2.0: it is a probability, give a number from 0 to 1"),
    ],
)
def test_errors_name_the_value_and_the_remedy(words: tuple[str, ...], told: str, file: str, processor: Device) -> None:
    done = run(words[0], file, *words[1:])
    assert done.exit_code == 2
    assert told in done.stderr


def test_adjacency_lists_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("1 2 3\n2 3\n")
    done = run("bfs", str(tmp_path / "g.txt"), "--source", "1", "--format", "adjlist")
    assert (done.exit_code, done.stdout) == (0, "1\t0\n2\t1\n3\t1\n")
    done = run("bfs", str(tmp_path / "g.txt"), "--source", "1", "--format", "adjlist", "--directed")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--format goes with links alone" in done.stderr
