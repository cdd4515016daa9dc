"""Bytes of a user's file as text, its short name, and what is not text."""

from __future__ import annotations

import re
from pathlib import Path

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.user_files import most_fields, need_memory, read_unpacked
from mmsbgen.graph.graph import GraphWarning

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


def read_graph_bytes(file: Path) -> bytes:
    """The unpacked content of a file; raises as :func:`mmsbgen.base.user_files.read_unpacked`, or if it is empty."""
    raw = read_unpacked(file, "give the file of the graph inside it")
    if not raw or raw.isspace():
        raise InputError(f"{file} is empty; an edge list has one link a line: two ids separated by a tab or spaces")
    return raw


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
    if raw.startswith(b"PK") and file.suffix.lower() in (".xlsx", ".xlsm", ".ods"):
        raise InputError(f"{file} is a spreadsheet; save it as CSV")
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


def text_lines(file: Path, raw: bytes) -> bytes:
    """The text of a file in UTF-8 without a byte-order mark, in lines that all have their end."""
    raw = _as_utf8(file, raw)
    if b"\r" in raw and b"\n" not in raw:
        raw = raw.replace(b"\r", b"\n")
    return raw if raw.endswith(b"\n") else raw + b"\n"


def _as_utf8(file: Path, raw: bytes) -> bytes:
    """The text in UTF-8 without a byte-order mark; what is neither UTF-8 nor UTF-16 is taken for Latin-1."""
    try:
        if raw.startswith(UTF_16):
            raw = raw.decode("utf-16").encode()
    except UnicodeError as error:
        raise InputError(f"{file} begins as UTF-16 text and is not ({error}); give an edge list as text") from None
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(
            f"{file} is not a graph file; line {line}: byte 0x00, which no text has; give an edge list, plain or gzip"
        )
    if raw.isascii():
        return raw
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        warn_user(f"{file}, line {line}: byte 0x{byte:02x} is not UTF-8; the file is read as Latin-1", GraphWarning)
        return raw.decode("latin-1").encode()
    return raw


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
