"""Bytes of a user's file as text, its short name, and what is not text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.user_files import most_fields, need_memory, read_unpacked
from mmsbgen.graph.files.tokens import Words
from mmsbgen.graph.files.words import number_words
from mmsbgen.graph.graph import GraphWarning, Int64Array
from mmsbgen.graph.ids import number_integers

#: How texts in UTF-16 begin, and some in UTF-8.
UTF_16, BYTE_ORDER_MARK = (b"\xff\xfe", b"\xfe\xff"), b"\xef\xbb\xbf"

_SUFFIXES = {".gz", ".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist", ".dat", ".ungraph", ".adjlist", ".metis"}
_ARCHIVES = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
#: Formats by the begin of a file.
_BEGINS = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"%%MatrixMarket": "mtx", b"%MatrixMarket": "mtx"}
#: Formats by the end of a name, for files whose begin says nothing.
_ENDS = {
    ".graphml": "graphml",
    ".gexf": "gexf",
    ".gml": "gml",
    ".net": "pajek",
    ".paj": "pajek",
    ".mtx": "mtx",
    ".parquet": "parquet",
    ".npz": "npz",
    ".npy": "npy",
}
#: Formats by the first text of a file, without comments of the format.
_TEXTS = {
    "pajek": re.compile(r"(?:\s*%[^\n]*\n)*\s*\*(?:network|vertices)\b", re.I),
    "dimacs": re.compile(r"(?:c\b[^\n]*\n)*p[ \t]+(?:edge|col|sp)[ \t]+\d+[ \t]+\d+[ \t]*\n"),
    # Atomic, so that what comes before the graph is matched in one way only.
    "gml": re.compile(r'(?>\s*#[^\n]*\n|\s*(?:Creator|Version|comment)\s+(?:"[^"]*"|\S+))*+\s*graph\s*\[', re.I),
}
#: Most bytes of memory for a field of a file while it is read, measured with ids that all differ (docs/memory.md).
FIELD_BYTES = {
    "integers": 70,
    "text": 310,
    "adjlist": 500,
    "metis": 550,
    "dimacs": 120,
    "graphml": 250,
    "gexf": 250,
    "gml": 120,
    "pajek": 340,
    "mtx": 72,
}
_ROOT = re.compile(r"<(?![?!])(?:[\w.-]+:)?([\w.-]+)")
_PAGE = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?><!--.*?-->\s*)*+<(?:!doctype html|html|head|body|title)\b", re.I | re.S)
_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"])')
_SAMPLE_BYTES = 1 << 16
Own = TypeVar("Own")


class WholeText:
    """A process that reads a text alone.

    Readers decide by these methods what the whole text says.  Where several processes read a part of it each, as
    :class:`mmsbgen.detection.ranks.reading.SharedText`, all call the same methods in the same order.

    Attributes:
        rank: number of this process.
        here: number of processes on this machine, which share its memory.
        lines_before: number of lines of the text before the part of this process.
        begin: number of its bytes before this part.
    """

    rank, here, lines_before, begin = 0, 1, 0, 0

    def told(self, own: Own) -> list[Own]:
        """What each process has found, in their order; a few numbers or flags."""
        return [own]

    def agree(self, work: Callable[[], Own]) -> Own:
        """What ``work`` returns here; of processes that raise :class:`InputError`, the first one ends all."""
        return work()

    def either(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of ``flags`` ``[N]`` any process has set."""
        return flags

    def number_integers(self, values: NDArray[Any]) -> tuple[Int64Array, NDArray[Any]]:
        """As :func:`number_integers`, of the ``values`` of all processes."""
        return number_integers(values)

    def number_words(self, words: Words) -> tuple[Words, NDArray[Any]]:
        """As :func:`number_words`, of the words of all processes."""
        return number_words(words)


#: A process that reads files alone.
WHOLE = WholeText()


def holds_first(size: int, among: WholeText) -> bool:
    """Whether the first of all fields or rows is among the ``size`` ones of this process."""
    sizes = among.told(size)
    return size > 0 and not any(sizes[: among.rank])


def read_graph_bytes(file: Path) -> bytes:
    """The unpacked content of a file; raises as :func:`mmsbgen.base.user_files.read_unpacked`, or if it is empty."""
    raw = read_unpacked(file, "give the file of the graph inside it")
    refuse_empty(file, raw)
    return raw


def refuse_empty(file: Path, raw: bytes, among: WholeText = WHOLE) -> None:
    """Raise InputError if ``raw``, the content of a file or this process's part of it, is empty for all."""
    if not any(among.told(bool(raw) and not raw.isspace())):
        raise InputError(f"{file} is empty; an edge list has one link a line: two ids separated by a tab or spaces")


def need_fields(file: Path, raw: bytes, kind: str, parts: int = 1) -> None:
    """Raise InputError if the fields of ``raw`` may take more than the memory left; ``kind`` is of ``FIELD_BYTES``.

    ``parts`` such texts are read at the same time.
    """
    need_memory(file, FIELD_BYTES[kind] * most_fields(raw) * parts)


def format_of(file: Path, raw: bytes) -> str:
    """The format of the content ``raw`` of ``file``, one of :data:`mmsbgen.graph.reading_options.FORMATS`.

    Raises:
        InputError: For archives, web pages, JSON and other XML than GraphML and GEXF.
    """
    name = file.name.lower().removesuffix(".gz")
    return foreign_format(file, raw) or _ENDS.get(Path(name).suffix, "text")


def foreign_format(file: Path, raw: bytes) -> str:
    """The format of ``raw`` by its begin; "" if it may be an edge list or a table.  Raises as :func:`format_of`."""
    for begin, kind in _BEGINS.items():
        if raw.startswith(begin):
            return kind
    if raw.startswith(b"PK\x03\x04") and b".npy" in raw[:200]:
        return "npz"
    for begin, kind in _ARCHIVES.items():
        if raw.startswith(begin):
            raise InputError(f"{file} is a {kind} archive; unpack it first, or use gzip")
    text = _sample(raw)
    _refuse_page(file, text)
    root = _ROOT.search(text) if text.lstrip().startswith("<") else None
    if root and root[1].lower() in ("graphml", "gexf"):
        return root[1].lower()
    if text.lstrip().startswith("<?xml"):
        raise InputError(f"{file} is XML, but neither GraphML nor GEXF; export the graph as one of these")
    return next((kind for kind, pattern in _TEXTS.items() if pattern.match(text)), "")


def _refuse_page(file: Path, text: str) -> None:
    if _PAGE.match(text):
        raise InputError(f"{file} is a web page, perhaps an error message in place of a download; fetch it again")
    if _JSON.match(text):
        raise InputError(
            f"{file} is JSON, which has no one form for graphs or ratings; read it in Python and pass what it holds, "
            "such as a graph from networkx.node_link_graph"
        )


def _sample(raw: bytes) -> str:
    begin = raw[:_SAMPLE_BYTES]
    text = begin.decode("utf-16" if begin.startswith(UTF_16) else "utf-8", "replace")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def text_lines(file: Path, raw: bytes, among: WholeText = WHOLE) -> bytes:
    """The text of a file in UTF-8 without a byte-order mark, in lines that all have their end.

    Of a text that several processes read, ``raw`` is the part of this one, in whole lines.
    """
    raw = _as_utf8(file, raw, among)
    if b"\r" in raw and b"\n" not in raw and not among.begin:
        raw = raw.replace(b"\r", b"\n")
    return raw if raw.endswith(b"\n") else raw + b"\n"


def _as_utf8(file: Path, raw: bytes, among: WholeText) -> bytes:
    """The text in UTF-8 without a byte-order mark; what is neither UTF-8 nor UTF-16 is taken for Latin-1."""
    try:
        if raw.startswith(UTF_16) and not among.rank:
            raw = raw.decode("utf-16").encode()
    except UnicodeError as error:
        raise InputError(f"{file} begins as UTF-16 text and is not ({error}); give an edge list as text") from None
    raw = raw if among.rank else raw.removeprefix(BYTE_ORDER_MARK)
    among.agree(lambda: _refuse_zeros(file, raw, among))
    odd = next(filter(None, among.told(_odd_byte(raw, among))), None)
    if odd is None:
        return raw
    if not among.rank:
        warn_user(f"{file}, line {odd[0]}: byte 0x{odd[1]:02x} is not UTF-8; the file is read as Latin-1", GraphWarning)
    return raw.decode("latin-1").encode()


def _refuse_zeros(file: Path, raw: bytes, among: WholeText) -> None:
    if b"\0" in raw:
        line = among.lines_before + raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(
            f"{file} is not a graph file; line {line}: byte 0x00, which no text has; give an edge list, plain or gzip"
        )


def _odd_byte(raw: bytes, among: WholeText) -> tuple[int, int] | None:
    """The number of the first line that is not UTF-8, and its first byte that is not; None if there is none."""
    if raw.isascii():
        return None
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return among.lines_before + raw.count(b"\n", 0, error.start) + 1, raw[error.start]
    return None


def record_path(file: Path) -> str | None:
    """The absolute path of a file for records; None for a pipe or standard input, which can be read only once."""
    passes = str(file) == "/dev/stdin" or any(map(file.is_relative_to, ("/dev/fd", "/proc"))) or file.is_fifo()
    return None if passes else str(file.absolute())


def short_name(file: Path) -> str:
    """The name of a file without what says its format."""
    name = file.name
    while Path(name).suffix.lower() in _SUFFIXES | _ENDS.keys():
        name = Path(name).stem
    return name
