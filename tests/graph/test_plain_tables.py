"""Plain tables are parsed in blocks: links, arcs, warnings and errors are those of the other reader."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import ReadingOptions, arc_sources, load_graph
from mmsbgen.graph.files import edgelist, plain_tables, tokens
from mmsbgen.graph.files import words as words_module
from mmsbgen.graph.files.tokens import Words
from mmsbgen.graph.files.words import ids_of_words, number_words
from mmsbgen.graph.ids import string_ids

HEADS: list[list[str]] = [
    [],
    [],
    ["source", "target"],
    ["a", "b"],
    ["0", "1"],
    ["1", "b"],
    ["source", "target", "weight"],
    ["weight", "from", "to"],
    ["source", "target", '"weight"'],
    ["id", "source", "target", "name"],
]
ODD = [
    "0.5",
    "x",
    "",
    " 4",
    "07",
    '"5"',
    "1e3",
    "#9",
    "a b",
    "NA",
    '"',
    '"a""b"',
    "x ",
    "\u2003x",
    "a\x1cb",
    "1 2",
    "x #c",
]
WORDS = [
    [str(number) for number in range(-2, 30)],
    ["a", "b", "source", "ann@x.org", "10.1/abcdefg", "10.1/abcdefgh", "10.1/abcdefghi"],
    ["1", "2", "007", "x1", "Zoë", "日本", "John Smith", "a#b", "9223372036854775808"],
]


def table(rng: random.Random) -> str:
    """Rows of small integers or of words, with an odd word or row now and then."""
    mark, head = rng.choice([*",;\t| ,,", ", "]), rng.choice(HEADS)
    width, noise = len(head) or rng.choice([2, 2, 3]), rng.choice([0, 0, 0.05])
    words, form = rng.choice([WORDS[0], *WORDS]), rng.choice(["{}", "{}", '"{}"'])
    rows = [
        [rng.choice(ODD) if rng.random() < noise else form.format(rng.choice(words)) for _ in range(width)]
        for _ in range(rng.choice([0, 9, 9, 9, 9, 9]) if head else 9)
    ]
    weight = next((at for at, name in enumerate(head) if "weight" in name), None)
    for row in rows if weight is not None else []:
        row[weight] = rng.choice(["1", "1", "1.0", "2.5", "1.000000000000001"])
    if rows and rng.random() < 0.1:
        rows[-1] = rows[-1][:-1]
    end = rng.choice(["\n", "\r\n"])
    lines = [mark.join(row) for row in ([head] if head else []) + rows]
    if rng.random() < 0.1:
        lines.insert(rng.randint(0, len(lines)), rng.choice(["# a", " %a,b", "", mark]))
    return rng.choice(["", "", "\ufeff", "# a" + end]) + end.join(lines) + rng.choice(["", end, end + end])


def outcome(read: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = read()
        except InputError as error:
            return str(error)
    names = ("ids", "links", "offsets", "targets", "weights")
    arrays = [np.asarray(getattr(found, name, None)).tolist() for name in names]
    return arrays, sorted(str(each.message) for each in told)


def test_both_readers_of_tables_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BLOCK_BYTES", 40)
    rng, parsed, file = random.Random(0), Counter[type](), tmp_path / "links.csv"
    found: list[Any] = []

    def recorded(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **more: found.append(real(*given, **more)) or found[-1]

    readers = (edgelist, "plain_ends"), (arc_sources, "plain_arcs")
    for _ in range(200):
        file.write_text(table(rng), "utf-8")
        columns = rng.choice([None, None, (1, 2), (2, 1), (1, 2, 3), ("source", "target"), ("a", "b")])
        rule = {"weights": rng.choice(["ignore", "threshold=1"])} if rng.random() < 0.3 else {}
        reads = [
            lambda columns=columns, rule=rule: load_graph(file, ReadingOptions(columns=columns, **rule)),
            lambda columns=columns: arc_sources.as_arcs(file, directed=True, columns=columns),
            lambda columns=columns: arc_sources.as_arcs(file, weights="weight", columns=columns),
        ]
        read = rng.choice(reads)
        found.clear()
        for module, name in readers:
            monkeypatch.setattr(module, name, recorded(getattr(plain_tables, name)))
        fast = outcome(read)
        parsed.update(type(ends) for ends, _ in filter(None, found))
        for module, name in readers:
            monkeypatch.setattr(module, name, lambda *given, **more: None)
        assert fast == outcome(read), file.read_text()
    assert min(parsed[np.ndarray], parsed[Words]) >= 12, parsed


@pytest.mark.parametrize("factor", [0, words_module._FACTOR])
def test_words_are_numbered_by_their_bytes(monkeypatch: pytest.MonkeyPatch, factor: int) -> None:
    monkeypatch.setattr(words_module, "_FACTOR", factor)  # with 0, all words have the same hash
    rng = random.Random(0)
    letters = ["ab", "abcdefghij", "aäéz日😀", "0123456789"]
    words = [
        "".join(rng.choices(rng.choice(letters), k=rng.choice([1, 2, 7, 8, 9, 16, 17]))).encode() for _ in range(2000)
    ]
    for longest in (b"", b"x" * 256, "é".encode() * 200, b"y" * 300):
        every = [*words, longest, *words[:100]] if longest else words
        expected = sorted(set(every))
        distinct, places = number_words(Words.of(every))
        assert distinct.words() == expected
        assert [expected[place] for place in places] == every
        found, named = ids_of_words(distinct), string_ids([word.decode() for word in expected])
        assert found.dtype == named.dtype
        assert np.array_equal(found, named)


def test_arcs_need_two_columns(tmp_path: Path) -> None:
    (file := tmp_path / "arcs.csv").write_text("sep=,\na\nb\n")
    with pytest.raises(InputError, match="which columns are the two ends of an arc"):
        arc_sources.as_arcs(file, directed=True)
