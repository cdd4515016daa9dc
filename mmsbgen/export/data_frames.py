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
    """The vertices ``[R]`` and columns ``[R]`` of the long table, by vertex and then by share, largest first.

    Rows are the stored shares, and memberships without a stored share, which have NaN.
    """
    m = found.memberships
    n, r = m.indices.shape
    # Rows of memberships are in this order already.
    keys = np.repeat(np.arange(n, dtype=np.int64) * m.k, r) + m.indices.ravel()
    shares = m.values.ravel().astype(np.float64)
    sizes = [len(members) for members in found.cover.members]
    placed = np.concatenate([np.zeros(0, np.int64), *found.cover.members]) * m.k
    placed += np.repeat(np.array(found.cover.labels, dtype=np.int64), sizes)
    unkept = np.sort(placed[~np.isin(placed, keys)])
    if unkept.size:
        behind = (unkept // m.k + 1) * r
        keys, shares = np.insert(keys, behind, unkept), np.insert(shares, behind, np.nan)
    member = np.isin(keys, placed)
    there = np.flatnonzero((shares > 0) | member)
    vertices, communities = np.divmod(keys[there], m.k)
    return vertices, {"community": communities, "share": shares[there], "member": member[there]}


def to_pandas(found: Clustering, form: str) -> Any:
    """See :meth:`mmsbgen.export.Exports.to_pandas`."""
    if form not in FORMS:
        raise InputError(f"form {form!r} is not one of {', '.join(FORMS)}")
    pandas = library("pandas", "data frames")
    ids, m = found.memberships.ids, found.memberships
    if form == "long":
        vertices, columns = long_columns(found)
        return pandas.DataFrame({"id": _series(pandas, ids[vertices]), **columns})
    if form == "wide":
        frame = pandas.DataFrame(m.dense(), columns=pandas.RangeIndex(m.k, name="community"))
        frame.index = _index(pandas, ids)
        return frame
    labels = list(found.cover.labels)
    members = pandas.Series([ids[one].tolist() for one in found.cover.members], dtype=object)
    return pandas.DataFrame(
        {
            "size": np.array([len(one) for one in found.cover.members], dtype=np.int64),
            "strength": m.beta[labels] if labels else np.zeros(0),
            "members": members.to_numpy(),
        },
        index=pandas.Index(labels, name="community", dtype="int64"),
    )


def _series(pandas: Any, ids: npt.NDArray[Any]) -> Any:
    # NumPy pads strings to the longest one; objects do not.
    return ids if ids.dtype.kind == "i" else pandas.Series(ids.astype(object), dtype=object)


def _index(pandas: Any, ids: npt.NDArray[Any]) -> Any:
    if ids.dtype.kind == "i":
        return pandas.Index(ids, name="id")
    # Tuples are ids here, not levels of a MultiIndex.
    return pandas.Index(ids.astype(object), name="id", dtype=object, tupleize_cols=False)
