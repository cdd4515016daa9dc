"""Graphs from Matrix Market, NumPy, SciPy and Parquet files."""

from __future__ import annotations

import io
import tokenize
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.libraries import library
from mmsbgen.base.user_files import need_memory
from mmsbgen.graph.files.graph_archive import graph_of_archive, is_graph_archive
from mmsbgen.graph.graph import Graph
from mmsbgen.graph.library_graphs import from_array, from_scipy, from_table
from mmsbgen.graph.reading_options import ReadingOptions, need_weights

#: Most bytes of memory for a byte of the arrays of a file while it is read, for a row of a table and for its cells.
_ENTRY, _ROW, _CELL = 14, 800, 32


def from_matrix_market(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a square matrix; ids are its rows, from 1 on as the file counts them."""
    return from_scipy(matrix_market(file, raw), str(file), reading, first_id=1)


def from_npz(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph that an update left, or of a matrix that ``scipy.sparse.save_npz`` wrote, whose rows are the ids."""
    if is_graph_archive(raw):
        need_memory(file, 2 * len(raw))
        need_weights(reading, str(file))
        return graph_of_archive(file, raw)
    return from_scipy(npz_matrix(file, raw), str(file), reading)


def matrix_market(file: Path, raw: bytes) -> Any:
    """The matrix of a Matrix Market file as SciPy's; raises :class:`InputError` if it is damaged."""
    from scipy import sparse
    from scipy.io import mmread

    if not raw.endswith(b"\n"):
        raw += b"\n"  # without it SciPy 1.17 reads beyond its buffer, and crashes
    try:
        matrix = mmread(io.BytesIO(raw))
    except (ValueError, TypeError, OverflowError, OSError, EOFError, MemoryError, RuntimeError) as error:
        raise _damaged(file, "Matrix Market", error) from None
    if isinstance(matrix, np.ndarray):
        matrix = sparse.coo_array(matrix)
    return matrix


def npz_matrix(file: Path, raw: bytes) -> Any:
    """The matrix that ``scipy.sparse.save_npz`` wrote; raises :class:`InputError` if it is damaged or too large."""
    from scipy import sparse

    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            need_memory(file, _ENTRY * sum(member.file_size for member in archive.infolist()))
        matrix = sparse.load_npz(io.BytesIO(raw))
        if hasattr(matrix, "check_format"):  # load_npz does not check the places of rows and columns
            matrix.check_format()
        return sparse.coo_array(matrix)
    except InputError:
        raise
    except Exception:  # a damaged archive raises errors of zipfile, zlib, NumPy and SciPy
        raise InputError(f"{file} holds no whole sparse matrix; give one that scipy.sparse.save_npz wrote") from None


def from_npy(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of an array ``[L, 2]`` of ids that ``numpy.save`` wrote."""
    need_memory(file, _ENTRY * len(raw))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError, SyntaxError, tokenize.TokenError) as error:
        raise _damaged(file, "NumPy", error) from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{file} is an archive of arrays; give one array of pairs of ids that numpy.save wrote")
    return from_array(array, str(file), reading)


def from_parquet(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a table with one link a row."""
    parquet = library("pyarrow.parquet", "Parquet files")
    arrow = library("pyarrow", "Parquet files")
    try:
        stored = parquet.ParquetFile(arrow.BufferReader(raw))
        need_memory(file, stored.metadata.num_rows * (_ROW + _CELL * stored.metadata.num_columns))
        table: Any = stored.read()
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(file, "Parquet", error) from None
    return from_table(table, "pyarrow", reading, str(file))


def _damaged(file: Path, kind: str, error: Exception) -> InputError:
    return InputError(f"{file} is no whole {kind} file ({_first_line(error)}); write or fetch it again")


def _first_line(error: Exception) -> str:
    return plain(str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__, 200)
