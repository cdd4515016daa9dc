"""Files of ratings: every form that is read gives the same ratings, and what is none is refused by file and line."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.io import mmwrite

from mmsbgen.base.errors import InputError
from mmsbgen.graph.files import tokens
from mmsbgen.ratings import Ratings, as_ratings, rating_files, read_ratings
from mmsbgen.ratings.rating_files import read_pairs

ROWS = [(1, 10, 4.0), (2, 10, 0.0), (2, 7, -2.5), (9, 12, 5.0)]


def triples(found: Ratings) -> set[tuple[Any, Any, float]]:
    users, items = found.user_ids[found.users].tolist(), found.item_ids[found.items].tolist()
    return set(zip(users, items, found.values.tolist(), strict=True))


TEXTS = {
    "csv": "userId,movieId,rating,timestamp\n" + "".join(f"{u},{v},{r},88\n" for u, v, r in ROWS),
    "other order": "rating;Item ID;User ID\n" + "".join(f"{r};{v};{u}\n" for u, v, r in ROWS),
    "tsv": "".join(f"{u}\t{v}\t{r}\t881250949\n" for u, v, r in ROWS),
    "colons": "".join(f"{u}::{v}::{r}::97\n" for u, v, r in ROWS),
    "blanks": "# u i r\n" + "".join(f"{u} {v} {r}\n" for u, v, r in ROWS),
    "no last line end": "\n".join(f"{u},{v},{r}" for u, v, r in ROWS),
    "windows": "\ufeffuser,item,rating\r\n" + "".join(f"{u},{v},{r}\r\n" for u, v, r in ROWS),
    "empty lines": "\n\n" + "".join(f"{u},{v},{r}\n\n" for u, v, r in ROWS),
    "German": "film;user;item;rating;\n"
    + ";;;;\n".join(f"A, B;{u};{v};{str(r).replace('.', ',')};\n" for u, v, r in ROWS),
    "German without a header": "".join(f"{u};{v};{str(r).replace('.', ',')}\n" for u, v, r in ROWS),
    "recbole": "user_id:token\titem_id:token\trating:float\n" + "".join(f"{u}\t{v}\t{r}\n" for u, v, r in ROWS),
}


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_text_gives_the_same(form: str, packed: bool, tmp_path: Path) -> None:
    file = tmp_path / ("ratings.txt.gz" if packed else "ratings.txt")
    raw = TEXTS[form].encode()
    file.write_bytes(gzip.compress(raw) if packed else raw)
    found = read_ratings(file)
    assert triples(found) == set(ROWS)
    assert found.user_ids.dtype == np.int64


def test_every_matrix_and_table_gives_the_same(tmp_path: Path) -> None:
    u, v, r = (np.array(each) for each in zip(*ROWS, strict=True))
    matrix = sparse.coo_array((r, (u, v)), shape=(11, 13))
    frame = pd.DataFrame({"user": u, "item": v, "rating": r})
    sparse.save_npz(tmp_path / "m.npz", matrix)
    mmwrite(tmp_path / "m.mtx", sparse.coo_array((r, (u - 1, v - 1)), shape=(11, 13)))
    frame.to_parquet(tmp_path / "m.parquet")
    for source in ("m.npz", "m.mtx", "m.parquet"):
        assert triples(read_ratings(tmp_path / source)) == set(ROWS)
    for given in (matrix, matrix.tocsr(), frame, (u, v, r), (u.tolist(), v.tolist(), r.tolist())):
        assert triples(as_ratings(given)) == set(ROWS)
    assert as_ratings(matrix).user_ids.size == 11


def test_ids_may_be_texts_and_large(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text('user,item,rating\n"de, Anna",x,3\nßo,y,4\n9007199254740993,x,2\n')
    assert triples(read_ratings(file)) == {("de, Anna", "x", 3.0), ("ßo", "y", 4.0), ("9007199254740993", "x", 2.0)}
    file.write_text("9007199254740993,5000000000,2\n-3,9007199254740992,1\n")
    assert triples(read_ratings(file)) == {(9007199254740993, 5000000000, 2.0), (-3, 9007199254740992, 1.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; a file of ratings has lines such as"),
        ("# only\n", "has no rating"),
        ("1\n2\n", "1 columns in the first row"),
        ("1,2,3\n4,5,x\n", "line 2: the rating 'x' is no finite number; mend or delete the line"),
        ("1,2,3\n4,5,nan\n", "line 2: the rating 'nan' is no finite number"),
        ("1,2,3\n4,5,inf\n", "line 2: the rating 'inf' is no finite number"),
        ("1\t2\t3\n4\t5\t2W\n", "line 2: the rating '2W'"),
        ("1\t2\t3\n4\t5\n", r"line 2: 2 columns in '4\\t5'"),
        ("1,2,3\n4,5,1,5\n", "line 2: 4 columns in '4,5,1,5', and the first row has 3; mend or delete the line"),
        ("a;2;3\n4;5;3,064\n", "line 2: the rating '3,064' is no finite number; write its decimals after a point"),
        ("1,a\rb,3\n4,5,2\n", "line 1: new-line character seen in unquoted field"),
        ("a,2,3\n,5,2\n", "line 2: ',5,2' lacks an id"),
        ('1,2,3,"so\n4,5,2,bad\n', "line 1: a quoted field does not end within 3 lines; close it"),
        ('1,2,3,"so\n' + 999 * f"4,5,2,{140 * 'x'}\n", r"line 1: field larger than .*; close its quotes"),
        (
            "1,2,3\n4,5,2\n1,2,5\n",
            "user 1 rates item 2 twice, 3 and 5; 1 rating too many of such cells.* --duplicates last",
        ),
        ("who,what,mark\n1,2,3\n", "columns who, what, mark; it is not clear which to use: name them: --columns"),
        ("<html><body>", "is a web page"),
    ],
)
def test_bad_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_ratings(file)


def test_a_quoted_field_may_have_several_lines(tmp_path: Path) -> None:
    """Lines of a review may look like ratings; an inch is no quote."""
    file = tmp_path / "r.csv"
    file.write_text('user,item,rating,review\n1,2,3,"good:\n7,8,5,""all"" of it"\n\n1,4,5,5" wide\n2,4,1,"bad"\n')
    found = read_ratings(file)
    assert (found.user_ids.tolist(), found.item_ids.tolist(), found.values.tolist()) == ([1, 2], [2, 4], [3, 5, 1])


def test_a_quoted_field_may_have_commas(tmp_path: Path) -> None:
    (file := tmp_path / "r.csv").write_text('user,title,item,rating,time\n1,"1, 2, 3, Sun",7,4,0\n2,plain,8,5,0\n')
    assert triples(read_ratings(file)) == {(1, 7, 4.0), (2, 8, 5.0)}


def test_columns_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("who,what,mark\n1,2,3\n")
    for columns in (("who", "what", "mark"), (1, 2, 3)):
        assert triples(read_ratings(file, columns=columns)) == {(1, 2, 3.0)}
    with pytest.raises(InputError, match="has no column 'nobody'; there are who"):
        read_ratings(file, columns=("nobody", "what", "mark"))


def test_a_cut_gzip_file_and_no_file(tmp_path: Path) -> None:
    file = tmp_path / "r.csv.gz"
    file.write_bytes(gzip.compress(b"1,2,3\n" * 1000)[:-20])
    with pytest.raises(InputError, match="damaged or cut-off gzip"):
        read_ratings(file)
    with pytest.raises(InputError, match="no such file"):
        read_ratings(tmp_path / "none.csv")


def test_duplicates_become_one() -> None:
    given = ([1, 2, 1, 1], [5, 5, 5, 6], [2.0, 3.0, 5.0, 1.0])
    assert triples(as_ratings(given, "mean")) == {(1, 5, 3.5), (2, 5, 3.0), (1, 6, 1.0)}
    assert triples(as_ratings(given, "last")) == {(1, 5, 5.0), (2, 5, 3.0), (1, 6, 1.0)}
    with pytest.raises(InputError, match="duplicates='first': give"):
        as_ratings(given, "first")  # type: ignore[arg-type]


def test_pairs_need_no_rating(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text("user,item\n3,4\n1,9\n")
    found = read_pairs(file)
    assert found.user_ids[found.users].tolist() == [3, 1]
    file.write_text("Kunde,Titel\n3,Up 1\n1,Heat\n")
    assert read_pairs(file, (1, 2)).user_ids.tolist() == [1, 3]
    file.write_text("Kunde,Titel\nann,Up\n")
    assert len(read_pairs(file)) == 2, "whether that is a header is not known"


DECIMALS = ["4", "-2", "3.5", ".5", "5.", "-0", "0.1", "4.35", "00.5", "-7.25", "0.000000000000001", "123456.789012345"]
DECIMALS += ["1e3", "+1", "0.12345678901234567", "123456789012345.6789"]


def test_plain_numbers_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BLOCK_BYTES", 64)
    monkeypatch.setattr(rating_files, "_words", None)  # takes the other tables
    rows = [(u, -u, word) for u, word in enumerate(DECIMALS * 5)]
    (file := tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{v},{w}\n" for u, v, w in rows))
    assert triples(read_ratings(file)) == {(u, v, float(word)) for u, v, word in rows}


def test_words_of_plain_tables_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BLOCK_BYTES", 64)
    rows = [(f"u{at}", f"i {-at}", word) for at, word in enumerate(DECIMALS * 2)]
    (file := tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{v},{w}\n" for u, v, w in rows))
    expected = {(u, v, float(word)) for u, v, word in rows}
    with monkeypatch.context() as patch:
        patch.setattr(rating_files, "_words", None)  # takes the other tables
        assert triples(read_ratings(file)) == expected
    monkeypatch.setattr(rating_files, "plain_words", lambda *given: None)
    assert triples(read_ratings(file)) == expected


@pytest.mark.parametrize("word", ["", ".", "-.", "1.2.3", '"1', "1,2", "nan", "-inf", "1e999"])
def test_words_that_are_no_numbers_are_left_to_the_other_reader(word: str) -> None:
    columns = tokens.split_columns(f"{word}\n".encode(), b",", 1)
    assert columns is None or tokens.parse_numbers(columns[0]) is None


def test_a_part_is_held_out() -> None:
    found = as_ratings((range(100), range(100), np.ones(100)))
    train, test = found.held_out(0.2, 1)
    assert (len(train), len(test)) == (80, 20)
    assert not set(train.users.tolist()) & set(test.users.tolist())
    for bad in (0.0, 1.0, 0.001, -3):
        with pytest.raises(InputError, match="leaves some of both"):
            found.held_out(bad, 1)
    with pytest.raises(InputError, match=r"a builtins\.int holds no ratings"):
        as_ratings(3)


def test_numbers_of_columns_are_places(tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    for text, columns, wanted in (
        ("196 242 3 88\n186 302 4 89\n", (1, 2, 3), {(196, 242, 3.0), (186, 302, 4.0)}),
        ("2,1,5\n7,8,4\n", (1, 2, 3), {(2, 1, 5.0), (7, 8, 4.0)}),
        ("2,1,5\n7,8,4\n", ("3", "2", "1"), {(5, 1, 2.0), (4, 8, 7.0)}),
        ("user,2020,item\n1,5,2\n", ("user", "item", "2020"), {(1, 2, 5.0)}),
        ("user,1.5,item\n1,5,2\n", (1, 3, 2), {(1, 2, 5.0)}),
    ):
        file.write_text(text)
        assert triples(read_ratings(file, columns=columns)) == wanted


def test_ids_that_are_written_differently_differ(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("007,1,3\n7,+5,4\n7,5,0.5\n")
    assert triples(read_ratings(file)) == {("007", "1", 3.0), ("7", "+5", 4.0), ("7", "5", 0.5)}
    file.write_text("7,-2,-0.5\n0,5,0.5\n")
    assert triples(read_ratings(file)) == {(7, -2, -0.5), (0, 5, 0.5)}


def test_all_pairs_stay_in_order(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text("3,4\n1,9\n3,4\n")
    found = read_pairs(file)
    assert found.user_ids[found.users].tolist() == [3, 1, 3]
    file.write_text("7,userId,movie\n7,1,2\n")
    assert len(read_pairs(file, ("2", "3"))) == 1


def test_what_was_lost_silently(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("# a comment\na,x,3\n#b,x,4\n%c,x,5\n")
    assert [each[0] for each in sorted(triples(read_ratings(file)))] == ["#b", "%c", "a"]
    mmwrite(tmp_path / "m.mtx", np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert triples(read_ratings(tmp_path / "m.mtx")) == {(1, 1, 1.0), (1, 2, 0.0), (2, 1, 0.0), (2, 2, 2.0)}
    with pytest.raises(InputError, match="ratings are no numbers"):
        as_ratings(([1], [2], np.array([1j])))
    pd.DataFrame({"user": [1], "item": [2], "rating": [3]}).to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match="name them: --columns"):
        read_ratings(tmp_path / "m.parquet", columns=("user", "item"))


@pytest.mark.parametrize(
    "wrong", [{"users": np.array([0, 2], np.uint32)}, {"items": np.array([0, 1])}, {"values": [1, np.nan]}]
)
def test_ratings_that_do_not_fit_together(wrong: dict[str, Any]) -> None:
    given = vars(as_ratings(([1, 2], [3, 4], [1.0, 2.0]))) | wrong
    with pytest.raises(InputError, match="give such|ratings are finite"):
        as_ratings(Ratings(**given))


def test_columns_of_files_and_tables_are_named(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("who,what,stars\nanna,x,5\nben,y,3\n")
    for source in (tmp_path / "odd.csv", pd.read_csv(tmp_path / "odd.csv")):
        with pytest.raises(InputError, match="columns"):
            as_ratings(source)
        found = as_ratings(source, columns=("who", "what", "stars"))
        assert (found.user_ids.tolist(), found.values.tolist()) == (["anna", "ben"], [5, 3])
