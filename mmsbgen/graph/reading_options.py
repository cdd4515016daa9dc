"""How a graph is read: format, columns, weights, vertices without links."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError

#: Names that the two columns of a link usually have, in lower case.
USUAL_COLUMNS = (
    ("source", "target"),
    ("from", "to"),
    ("u", "v"),
    ("src", "dst"),
    ("src", "tgt"),
    ("head", "tail"),
    ("start", "end"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("id1", "id2"),
    ("id_1", "id_2"),
    ("vertex1", "vertex2"),
    ("user1", "user2"),
    ("from_id", "to_id"),
    ("source_id", "target_id"),
    ("fromnodeid", "tonodeid"),
)
#: Names of a column or an attribute of weights, in lower case.
WEIGHT_NAMES = ("weight", "weights")
#: Formats of files; ``text`` is an edge list or a table.
FORMATS = (
    "auto",
    "text",
    "adjlist",
    "metis",
    "dimacs",
    "graphml",
    "gexf",
    "gml",
    "pajek",
    "mtx",
    "parquet",
    "npz",
    "npy",
)

#: The comma of such a number may be of its decimals or of its thousands.
_EITHER = re.compile(r"[-+]?[0-9]{1,3},[0-9]{3}")
_CHOICES = (
    "--weights ignore counts every row as a link, --weights threshold=X those of weight X or more "
    "(weights='ignore', 'threshold=X' in Python)"
)


@dataclass(frozen=True)
class ReadingOptions:
    """How a graph is read.

    Attributes:
        format: one of ``FORMATS``; ``auto`` finds it by content and name.
        columns: the columns of a link's two ends in a table, and a third if one holds weights; names, or for files
            numbers from 1 on.  None finds them.
        weights: ``ignore`` counts every row as a link, ``threshold=X`` those of weight X or more.  None refuses
            weights other than 1 in files, tables and matrices, and ignores those of graph objects.
        vertices: file with one id a line, or ids; those without links become vertices too.

    Raises:
        InputError: For another format, rule of weights or number of columns.
    """

    format: str = "auto"
    columns: Sequence[Any] | None = None
    weights: str | None = None
    vertices: str | os.PathLike[str] | Iterable[Any] | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InputError(f"format={self.format!r}: give one of {', '.join(FORMATS)}")
        columns = self.columns
        named = isinstance(columns, tuple | list) and len(columns) in (2, 3)
        if columns is not None and (not named or any(name in columns[:at] for at, name in enumerate(columns))):
            raise InputError(
                f"columns={columns!r}: name two, those of the two ends of a link, and a third if one holds weights"
            )
        if self.weights not in (None, "ignore") and self.threshold is None:
            raise InputError(f"weights={self.weights!r}: give 'ignore', or 'threshold=X' with a number X")

    @property
    def threshold(self) -> float | None:
        """X of ``threshold=X``; None for other rules."""
        rule, _, value = str(self.weights).partition("=")
        try:
            number = float(value) if rule == "threshold" else math.nan
        except ValueError:
            number = math.nan
        return None if math.isnan(number) else number

    @property
    def is_default(self) -> bool:
        """Whether no option is given."""
        return self == ReadingOptions()

    def given(self) -> dict[str, Any]:
        """The options given, for a run record; a file of vertices by its absolute path."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        named = {name: value for name, value in found.items() if value is not None and value != "auto"}
        if "columns" in named:
            named["columns"] = list(named["columns"])
        if "vertices" in named:
            named["vertices"] = os.path.abspath(named["vertices"])
        return named

    def flags(self) -> str:
        """The options given, as flags of the command line, each after a blank."""
        texts = {name: ",".join(map(str, one)) if name == "columns" else str(one) for name, one in self.given().items()}
        return "".join(f" --{name} {shlex.quote(text)}" for name, text in texts.items())

    @classmethod
    def of_text(cls, columns: str | None, weights: str | None) -> ReadingOptions:
        """Columns as the text ``A,B`` or ``A,B,W``, and a rule of weights; raises InputError for wrong ones."""
        return cls(columns=None if columns is None else [part.strip() for part in columns.split(",")], weights=weights)

    @classmethod
    def recorded(cls, given: Mapping[str, Any] | None) -> ReadingOptions:
        """The options of a run record that :meth:`given` made; raises TypeError for other names."""
        return cls(**(given or {}))


def kept_links(weights: Sequence[Any] | NDArray[Any], rule: ReadingOptions, name: str) -> NDArray[np.bool_] | None:
    """Which links ``[L]`` to keep by their ``weights`` ``[L]``; None for all.

    Raises:
        InputError: For weights other than 1 without a rule, and for a threshold and weights that are no numbers.
    """
    if rule.weights == "ignore":
        return None
    is_array = isinstance(weights, np.ndarray) and weights.dtype.kind in "biuf"
    if rule.threshold is not None:
        numbers = np.asarray(weights, dtype=np.float64) if is_array else _numbers(weights, name)
        if np.isnan(numbers).any():
            raise _no_number(math.nan, name)
        return numbers >= rule.threshold
    odd = weights[np.asarray(weights) != 1][:1].tolist() if is_array else [w for w in weights if not _is_one(w)][:1]
    if odd:
        raise InputError(f"{name}: a link has weight {_shown(odd[0])}; the model takes unweighted links. {_CHOICES}")
    return None


def _shown(weight: Any) -> str:
    try:
        return repr(float(weight)).removesuffix(".0")
    except (TypeError, ValueError):
        return repr(weight)


def usual_columns(names: Sequence[Any]) -> list[tuple[int, int]]:
    """The places of the columns of each usual pair that ``names`` have, once each."""
    lower = [str(name).lower() for name in names]
    pairs = [pair for pair in USUAL_COLUMNS if all(lower.count(name) == 1 for name in pair)]
    return [(lower.index(one), lower.index(other)) for one, other in pairs]


def weight_columns(names: Sequence[Any], ends: Sequence[int], rule: ReadingOptions) -> list[int]:
    """The places of the columns of a table that may be weights: the third of ``ends``, or those with such a name."""
    if len(ends) > 2:
        return [ends[2]]
    if rule.columns is not None and rule.threshold is None:
        return []
    return [at for at, name in enumerate(names) if str(name).lower() in WEIGHT_NAMES]


def need_weights(rule: ReadingOptions, name: str) -> None:
    """Raise InputError if links are chosen by a threshold; the caller found no weights."""
    if rule.threshold is not None:
        raise InputError(
            f"{name} has no weights for {rule.weights!r}; leave it out, or name their column third: --columns A,B,W "
            "(columns=(A, B, W) in Python)"
        )


def kept_of_some(weights: Sequence[Any], rule: ReadingOptions, name: str) -> NDArray[np.bool_] | None:
    """As :func:`kept_links`, for links of which some or all have no weight, None: it counts as 1."""
    if all(weight is None for weight in weights):
        need_weights(rule, name)
    return kept_links([1 if weight is None else weight for weight in weights], rule, name)


def kept_of_columns(weights: Sequence[tuple[Any, Any]], rule: ReadingOptions, name: str) -> NDArray[np.bool_] | None:
    """As :func:`kept_links`, by the columns of a table that may be weights, each with its name: several may share it.

    Raises:
        InputError: As :func:`kept_links`, and if a threshold may mean several columns or none.
    """
    if not weights:
        need_weights(rule, name)
        return None
    if rule.threshold is not None and len(weights) > 1:
        several = ", ".join(str(column) for column, _ in weights)
        raise InputError(
            f"{name} has several columns of weights, {several}; name one third: --columns A,B,W "
            "(columns=(A, B, W) in Python)"
        )
    kept, *_ = [kept_links(each, rule, f"column {column} of {name}") for column, each in weights]
    return kept


def _numbers(weights: Iterable[Any], name: str) -> NDArray[np.float64]:
    found = []
    for weight in weights:
        try:
            found.append(float(weight))
        except (TypeError, ValueError):
            raise _no_number(weight, name) from None
    return np.array(found, dtype=np.float64)


def _no_number(weight: Any, name: str) -> InputError:
    why = "is no number; mend it"
    if isinstance(weight, str) and _EITHER.fullmatch(weight):
        why = f"may be {weight.replace(',', '.')} or {weight.replace(',', '')}; write it without a comma"
    return InputError(
        f"{name}: a link has weight {weight!r}, which {why}, or count every row by --weights ignore "
        "(weights='ignore' in Python)"
    )


def _is_one(weight: Any) -> bool:
    try:
        return float(weight) == 1 if isinstance(weight, str) else bool(weight == 1)
    except (TypeError, ValueError):  # an array or a missing value of pandas
        return False
