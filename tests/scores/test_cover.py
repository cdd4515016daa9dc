from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import load_edge_list
from mmsbgen.graph.ids import object_ids
from mmsbgen.scores import cover, evaluate, read_cover
from mmsbgen.scores.cover import CoverWarning, cover_text, refuse_table, words_of


def written(folder: Path, content: bytes | str) -> Path:
    file = folder / "cover.txt"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


TEXT = "# two communities\n1\t2\t007\n\n2 b 2\r\n2 b # again\n9\n"
COVER = [["1", "2", "007"], ["2", "b"], ["2", "b"], ["9"]]


@pytest.mark.parametrize(
    "content",
    [TEXT.encode(), gzip.compress(TEXT.encode(), mtime=0), b"\xef\xbb\xbf" + TEXT.encode(), TEXT.encode("utf-16")],
)
def test_a_cover_is_read_as_it_is_written(content: bytes, tmp_path: Path):
    assert read_cover(written(tmp_path, content)) == COVER


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'id,community,share\n"Ames, Eve",0,.7\nBob,0,1\n"Ames, Eve",1,.3\nCy,1,1\n'),
        ("t.csv", '"Ames, Eve",0\nBob,0\n"Ames, Eve",1\nCy,1\n'),
        ("t.csv", 'person;team\r\n"Ames, Eve";red\r\nBob;red\r\n\r\n"Ames, Eve";blue\r\nCy;blue\r\n'),
        ("t.csv.gz", 'person,team\n"Ames, Eve",red\nBob,red\n"Ames, Eve",blue\nCy,blue\n'),
    ],
)
def test_a_csv_file_has_a_row_for_each_membership(name: str, text: str, tmp_path: Path):
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert read_cover(file) == [["Ames, Eve", "Bob"], ["Ames, Eve", "Cy"]]


def test_a_csv_file_with_a_column_before_the_community_is_told(tmp_path: Path):
    (tmp_path / "t.csv").write_text("id,name,team\n1,Ann,red\n2,Bob,red\n3,Cy,blue\n")
    with pytest.warns(CoverWarning, match="each of its 3 communities has one vertex"):
        assert read_cover(tmp_path / "t.csv") == [["1"], ["2"], ["3"]]


@pytest.mark.parametrize(("text", "said"), [("a,b\nc\n", "the row 'c' has no id and community"), ("", "has no comm")])
def test_a_csv_file_without_communities_is_refused(text: str, said: str, tmp_path: Path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_cover(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("text", "cover"),
    [
        ("Ann Smith\tBob\nCleo Ng\n", [["Ann Smith", "Bob"], ["Cleo Ng"]]),
        ("a\tb #1\tc d\t# e\tf\ng\n", [["a", "b #1", "c d"], ["g"]]),
        ("1 2\n3 4\t5\n", [["1 2"], ["3 4", "5"]]),
        ("1\t2 # a note\n3 4\n", [["1", "2"], ["3", "4"]]),
        (" 1 \t 2 \n3 4\n", [["1", "2"], ["3", "4"]]),
    ],
)
def test_ids_with_blanks_are_separated_by_tabs(text: str, cover: list[list[str]], tmp_path: Path):
    assert read_cover(written(tmp_path, text)) == cover


def test_ids_are_parted_where_edge_lists_part_them(tmp_path: Path):
    ids = ["\u5c71\u7530\u3000\u592a\u90ce", "a\u00a0b", "c\u2028d", "e\x1cf", "g\x85h"]
    assert read_cover(written(tmp_path, f"{' '.join(ids)}\r1\v2\f3\n")) == [ids, ["1", "2", "3"]]
    (tmp_path / "graph.txt").write_text("".join(f"{ids[0]}\t{other}\n" for other in ids[1:]), "utf-8", newline="")
    assert load_edge_list(tmp_path / "graph.txt").ids.tolist() == sorted(ids)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no community; a cover has one community a line"),
        ("# nothing\n\n", "has no community"),
        ("1 2\n3, 4\n", "line 2: '3,' has a separator at its end"),
        (gzip.compress(b"1 2\n" * 1000, mtime=0)[:-12], "damaged or cut-off gzip"),
        (b"1 \xff\n", "byte 2 .0xff. is not UTF-8"),
        (b"\xff\xfe1\x00 ", "byte 4 .0x20. is not UTF-16"),
        (b"1 2\0\n", "zero byte"),
    ],
)
def test_what_is_no_cover_is_refused(content: bytes | str, message: str, tmp_path: Path):
    with pytest.raises(InputError, match=message):
        read_cover(written(tmp_path, content))


def test_a_wrong_path_is_told(tmp_path: Path):
    with pytest.raises(InputError, match="nowhere.txt: no such file"):
        read_cover(tmp_path / "nowhere.txt")
    with pytest.raises(InputError, match="is a directory"):
        read_cover(tmp_path)


@pytest.mark.slow
def test_the_words_of_ids_do_not_depend_on_the_hashes_of_strings(tmp_path: Path):
    """Files of one seed are the same in every process, and covers of equal sets are equal."""
    code = (
        "import numpy as np; from mmsbgen.graph.ids import object_ids; from mmsbgen.scores.cover import words_of;"
        "print(words_of(object_ids([frozenset('abcdef'), ('x', frozenset('ghij')), 2.5, 'y', None])))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2, 3)
    }
    words = ["frozenset({'a', 'b', 'c', 'd', 'e', 'f'})", "('x', frozenset({'g', 'h', 'i', 'j'}))", "2.5", "y", "None"]
    assert found == {f"{words}\n"}
    # Of equal sets of such numbers the order is that in which they came, as they meet in a hash table.
    one, other = frozenset([8, 16, 0]), frozenset([16, 8, 0])
    assert str(one) != str(other)
    assert evaluate([[one, 1], [2, 3]], [[other, 1], [2, 3]]).vertices == 4


def test_an_id_with_a_zero_byte_cannot_stand_in_a_file():
    with pytest.raises(InputError, match=r"id 'a\\x00' cannot stand in a file"):
        words_of(object_ids(["a\0", "b"]))


def test_a_table_of_vertices_and_labels_is_recognised(tmp_path: Path):
    table = "".join(f"{vertex} {'abc'[vertex % 3]}\n" for vertex in range(12))
    with pytest.warns(CoverWarning, match="all 12 lines have two fields.* one of 3 labels") as told:
        read = read_cover(written(tmp_path, table))
    assert str(told[0].message).endswith("the page *Compare with known communities* shows how)")
    with pytest.raises(InputError, match="one of 3 that are no vertices of graph.txt: this is a table of vertices"):
        refuse_table(read, set(map(str, range(12))), "cover.txt", "graph.txt")
    for vertices in ({*map(str, range(12)), "a"}, set(map(str, range(11)))):
        refuse_table(read, vertices, "cover.txt", "graph.txt")
    assert len(read_cover(written(tmp_path, table + "20 21 22\n"))) == 13
    assert len(read_cover(written(tmp_path, "0 red\n1 red\n"))) == 2, "too few to tell"


@pytest.mark.parametrize(
    "text", ["a z\nb z\nc z\n", "1 2\n2 3\n3 1\n", "1 red\n1 blue\n2 red\n3 red\n", "9 1\n9 2\n9 3\n9 4\n"]
)
def test_pairs_that_may_be_something_else_are_read_with_a_warning(tmp_path: Path, text: str):
    with pytest.warns(CoverWarning, match=r"all \d lines have two fields, as (an edge list or )?a table") as told:
        assert len(read_cover(written(tmp_path, text))) == text.count("\n")
    assert told[0].filename == __file__


@pytest.mark.parametrize("ids", [[0, 7, 10, 99, 2**62], [-3, 0, 5, 12, 4], ["a", "b", "0", "x y", "ü"]])
def test_lines_of_communities_have_the_words_of_ids(ids: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover, "_AT_A_TIME", 3)
    members = [np.array(one) for one in ([0, 1, 2, 3, 4], [3, 1], [0], [2, 4])]
    lines = ["\t".join(str(ids[at]) for at in one.tolist()) + "\n" for one in members]
    assert cover_text(np.array(ids), members) == "".join(lines)
    assert cover_text(np.array(ids), []) == ""
