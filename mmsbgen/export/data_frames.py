"""Results as tables: columns of arrays, pandas data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.libraries import library
from mmsbgen.export.found import Clustering

FORMS = ("long", "wide", "communities")


def long_columns(found: Clustering) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """The vertices ``[S]`` and columns ``[S]`` of the long table, by vertex and then by share, largest first."""
    vertices, communities, shares = found.affiliations
    return vertices, {"community": communities, "share": shares}


def to_pandas(found: Clustering, form: str) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_pandas`."""
    if form not in FORMS:
        raise InputError(f"form {form!r} is not one of {', '.join(FORMS)}")
    pandas = library("pandas", "data frames")
    ids, sets = found.memberships.ids, found.cover.members
    vertices, columns = long_columns(found)
    if form == "long":
        return pandas.DataFrame({"id": _series(pandas, ids[vertices]), **columns})
    if form == "wide":
        shares = np.zeros((len(ids), len(sets)))
        shares[vertices, columns["community"]] = columns["share"]
        frame = pandas.DataFrame(shares, columns=pandas.RangeIndex(len(sets), name="community"))
        frame.index = _index(pandas, ids)
        return frame
    members = pandas.Series([ids[one].tolist() for one in sets], dtype=object)
    return pandas.DataFrame(
        {
            "size": np.array([len(one) for one in sets], dtype=np.int64),
            "strength": found.strengths,
            "background": np.isin(np.arange(len(sets)), found.cover.background),
            "members": members.to_numpy(),
        },
        index=pandas.RangeIndex(len(sets), name="community"),
    )


def _series(pandas: Any, ids: npt.NDArray[Any]) -> Any:
    # NumPy pads strings to the longest one; objects do not.
    return ids if ids.dtype.kind == "i" else pandas.Series(ids.astype(object), dtype=object)


def _index(pandas: Any, ids: npt.NDArray[Any]) -> Any:
    if ids.dtype.kind == "i":
        return pandas.Index(ids, name="id")
    # Tuples are ids here, not levels of a MultiIndex.
    return pandas.Index(ids.astype(object), name="id", dtype=object, tupleize_cols=False)
