from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mmsbgen.errors import InputError
from mmsbgen.graph import load_edge_list
from mmsbgen.scores import read_cover


def written(folder: Path, content: bytes | str) -> Path:
    file = folder / "cover.txt"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


TEXT = "# two communities\n1\t2\t007\n\n2 b 2\r\n2 b # again\n9\n"
COVER = [["1", "2", "007"], ["2", "b"], ["2", "b"], ["9"]]


@pytest.mark.parametrize(
    "content", [TEXT.encode(), gzip.compress(TEXT.encode(), mtime=0), b"\xef\xbb\xbf" + TEXT.encode()]
)
def test_a_cover_is_read_as_it_is_written(content: bytes, tmp_path: Path):
    assert read_cover(written(tmp_path, content)) == COVER


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
