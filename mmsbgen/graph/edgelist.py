"""Reader for SNAP-style edge lists.

The format is one link per line, two ids separated by spaces or tabs, as plain text or gzip (detected by the first
bytes, not the name).  A field that begins with ``#`` starts a comment, and so does ``%`` at the start of a line.  Blank
lines, Windows line ends and a byte-order mark are accepted.

Ids are integers if every id of the file is a 64-bit signed integer in its shortest form; vertices are then numbered by
ascending id.  Otherwise all ids are strings, unchanged (``007`` is not ``7``), in code-point order.

Isolated vertices are listed in a comment, ids separated by blanks or commas::

    # isolated nodes (no edge line): 3 28 30
"""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import Stage, stage
from mmsbgen.base.user_files import read_bytes, unpacked
from mmsbgen.graph._tokens import Fields, parse_integers, split_fields
from mmsbgen.graph.graph import Graph, Int64Array, build_graph, number_integers, string_ids

# With blocks of this size, temporary arrays stay small and in the cache.
_BLOCK_BYTES = 1 << 22
_SUFFIXES = {".gz", ".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist", ".dat", ".ungraph"}
_FOREIGN = {
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("zip", "unzip"),
}
# Without the first letter, whose case varies: search with a fixed prefix is fast in a large file.
_ISOLATED = re.compile(rb"solated (?:nodes|vertices)[^:\n]*:([^\n]*)")
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
_NUMBER = re.compile(rb"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
#: Usual column names of edge lists.
_COLUMN = re.compile(
    rb"head|tail|start|end|(from|to|source|target|src|dst|tgt)([_ ]?(node|vertex|user|id))?([_ ]?id)?"
    rb"|(node|vertex|user|id)[_ ]?(id)?[_ ]?[ab12]",
    re.IGNORECASE,
)


def load_edge_list(path: str | os.PathLike[str]) -> Graph:
    """Read an edge list (module docstring) into a :class:`~mmsbgen.graph.Graph`.

    Self-loops and repeated links are dropped and counted in ``Graph.report``.  If every link is listed in both
    directions, one duplicate per link is counted.  If only some are, the file is probably directed: direction is
    dropped with a :class:`~mmsbgen.graph.GraphWarning`.

    Raises:
        InputError: If the file cannot be read, is damaged, is not UTF-8, has no link, or has a line without exactly
            two fields (a third would be a weight).  The message gives file, line, value and remedy.
    """
    file = Path(path)
    with stage(f"reading {file.name}", unit="B") as told:
        return _load(file, told)


def _load(file: Path, told: Stage) -> Graph:
    text = _read(file)
    isolated = _isolated_ids(text)
    name, whole = _short_name(file), None if _passes(file) else str(file.absolute())
    numbers = _integer_pairs(file, text, told)
    extra = _as_int64(isolated)
    if numbers is not None and extra is not None:
        ids, places = number_integers(np.concatenate([numbers, extra]))
        places = places[: numbers.size]
        return build_graph(places[0::2], places[1::2], ids, name=name, file=whole)

    words = [word for block in _checked_blocks(file, text, told) for word in block.words()]
    _refuse_odd_words(file, words, text)
    distinct = sorted({*words, *isolated})
    index = {word: place for place, word in enumerate(distinct)}
    places = np.fromiter(map(index.__getitem__, words), dtype=np.int64, count=len(words))
    ids = string_ids([word.decode() for word in distinct])
    return build_graph(places[0::2], places[1::2], ids, name=name, file=whole)


def _integer_pairs(file: Path, text: bytes, told: Stage) -> Int64Array | None:
    """All ids of the file in order, int64 ``[2 L]``; None if any is not an integer."""
    parts = []
    for block in _checked_blocks(file, text, told):
        part = parse_integers(block)
        if part is None:
            return None
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _checked_blocks(file: Path, text: bytes, told: Stage) -> Iterator[Fields]:
    """Yield the file in blocks of whole lines, after checking that every line has two fields or none."""
    begin, lines_before = 0, 0
    while begin < len(text):
        end = text.find(b"\n", begin + _BLOCK_BYTES) + 1 or len(text)
        block = split_fields(text[begin:end])
        bad = block.first_line_without_two()
        if bad is not None:
            raise _wrong_line(file, lines_before + bad + 1, block.line(bad), text, block.text.split(b"\n")[bad])
        yield block
        begin, lines_before = end, lines_before + block.n_lines
        told.tell(end, len(text))


def _wrong_line(file: Path, number: int, fields: list[bytes], text: bytes, line: bytes) -> InputError:
    tabbed = [part.strip() for part in line.strip().split(b"\t")]
    where = f"{file}, line {number}: {_show(line.strip() if len(tabbed) > 1 else b' '.join(fields))}"
    for separator in ",;":
        if separator.encode() in b" ".join(fields):
            return _wrong_separator(where, separator, file, text)
    spaced = next((part for part in tabbed if not all(map(_NUMBER.fullmatch, part.split())) and b" " in part), None)
    if len(tabbed) > 1 and spaced is not None:
        # awk '{print $1, $2}' would make a link of the two words of the first id.
        columns = "" if len(tabbed) == 2 else "cut -f 1,2 | "
        return InputError(
            f"{where}: tabs separate the fields, and {_show(spaced)} has a blank in it, which ids cannot have. Replace "
            f"the blanks in them{' and keep the first two columns' if columns else ''}: "
            + _filtered(file, f"{columns}tr ' ' '_'")
        )
    if len(fields) == 1:
        return InputError(f"{where} has one field; a link is two ids separated by a tab or spaces: mend the line")
    return InputError(
        f"{where} has {len(fields)} fields; the third, {_show(fields[2])}, would be a weight, and the model takes "
        "unweighted links. Keep the lines that count as links and only their first two columns: "
        f"awk '{{print $1, $2}}' (ids may not contain blanks; begin a header or comment with #)"
    )


def _wrong_separator(where: str, separator: str, file: Path, text: bytes) -> InputError:
    turn, header = f"tr '{separator}' '\\t'", _header(text, separator.encode())
    if header is None:
        return InputError(
            f"{where}: fields are separated by {separator!r}; use tabs or spaces: {_filtered(file, turn)}"
        )
    number, line = header
    return InputError(
        f"{where}: fields are separated by {separator!r}, and line {number}, {_show(line)}, looks like a header, which "
        f"would be a link; use tabs or spaces, without it: {_filtered(file, f'tail -n +{number + 1} | {turn}')}"
    )


def _header(text: bytes, separator: bytes) -> tuple[int, bytes] | None:
    """Number and text of the first line with fields if it is a header, else None."""
    lines = ((number, line.strip()) for number, line in enumerate(io.BytesIO(text), 1))
    found = list(itertools.islice((each for each in lines if each[1] and each[1][:1] not in (b"#", b"%")), 2))
    words, *below = ([word.strip(b" \t\"'") for word in line.split(separator)][:2] for _, line in found)
    if len(words) < 2:
        return None
    integers = any(len(ids) == 2 and all(map(_INTEGER.fullmatch, ids)) for ids in below)
    over_integers = integers and not any(map(_INTEGER.fullmatch, words))
    return found[0] if over_integers or all(map(_COLUMN.fullmatch, words)) else None


def _filtered(file: Path, command: str) -> str:
    """A shell command line that filters the file through ``command``."""
    if file.suffix == ".gz":
        return f"zcat {file.name} | {command} > links.txt"
    first, bar, rest = command.partition(" | ")
    return f"{first} < {file.name}{bar}{rest} > links.txt"


def _refuse_odd_words(file: Path, words: list[bytes], text: bytes) -> None:
    """Raise InputError for stray separators, and for a header over integer ids, which would be read as strings."""
    for word in words:
        if word[0] in b",;" or word[-1] in b",;":
            separator = next(c for c in ",;" if c.encode() in word)
            raise _wrong_separator(f"{file}: {_show(word)}", separator, file, text)
    header = words[:2]
    if len(words) > 2 and not any(map(_INTEGER.fullmatch, header)) and all(map(_INTEGER.fullmatch, words[2:])):
        raise InputError(
            f"{file}: the first line with fields, {_show(b' '.join(header))}, is a header over integer ids; "
            "put # before it"
        )


def _isolated_ids(text: bytes) -> list[bytes]:
    found: list[bytes] = []
    for match in _ISOLATED.finditer(text):
        line_start = text.rfind(b"\n", 0, match.start()) + 1
        lead = text[line_start : match.start()].lstrip()
        if lead[:1] in (b"#", b"%") and lead.strip(b" \t#%") in (b"i", b"I"):
            found += match.group(1).replace(b",", b" ").split()
    return found


def _as_int64(words: list[bytes]) -> Int64Array | None:
    if not all(map(_INTEGER.fullmatch, words)):
        return None
    numbers = [int(word) for word in words]
    if numbers and not (min(numbers) >= -(2**63) and max(numbers) < 2**63):
        return None
    return np.array(numbers, dtype=np.int64)


def _read(file: Path) -> bytes:
    """The unpacked UTF-8 text of the file without a byte-order mark, ending with a newline."""
    raw = read_bytes(file, "give the edge list inside it")
    for magic, (kind, tool) in _FOREIGN.items():
        if raw.startswith(magic):
            raise InputError(f"{file} is a {kind} archive; unpack it first ({tool}), or use gzip")
    raw = unpacked(file, raw).removeprefix(b"\xef\xbb\xbf")
    if b"\r" in raw and b"\n" not in raw:
        raw = raw.replace(b"\r", b"\n")
    _refuse_other_text(file, raw)
    return raw if raw.endswith(b"\n") else raw + b"\n"


def _refuse_other_text(file: Path, raw: bytes) -> None:
    if not raw.strip():
        raise InputError(f"{file} is empty; an edge list has one link a line: two ids separated by a tab or spaces")
    if raw.startswith(b"%%MatrixMarket"):
        raise InputError(f"{file} is in MatrixMarket format; read it by scipy.io.mmread and pass the sparse matrix")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{file} is UTF-16 text; convert it: iconv -f utf-16 -t utf-8 {file.name} > links.txt")
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(f"{file}, line {line}: byte 0x00, which no text has; give an edge list, plain or gzip")
    if not raw.isascii():
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{file}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8 text; convert the file, "
                f"such as by iconv -f latin1 -t utf-8 {file.name} > links.txt"
            ) from None


def _show(field: bytes) -> str:
    text = field.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _passes(file: Path) -> bool:
    """Whether the file is a pipe or standard input, which can be read only once and is not recorded."""
    return str(file) == "/dev/stdin" or any(map(file.is_relative_to, ("/dev/fd", "/proc"))) or file.is_fifo()


def _short_name(file: Path) -> str:
    name = file.name
    while Path(name).suffix.lower() in _SUFFIXES:
        name = Path(name).stem
    return name
