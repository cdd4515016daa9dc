"""Labelled pairs, from which scikit-learn's searches and cross-validations fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError


def links_of(pairs: Any, labels: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """The links among ``pairs`` ``[P, 2]`` of ids by ``labels`` ``[P]``, 1 or 0, and the ids of all pairs.

    Raises:
        InputError: for other pairs or labels, and if no pair is a link.
    """
    table = pairs.to_numpy() if hasattr(pairs, "to_numpy") else pairs
    rows = table.tolist() if isinstance(table, np.ndarray) else table
    if not isinstance(rows, list | tuple) or not all(isinstance(row, list | tuple) and len(row) == 2 for row in rows):
        raise InputError(
            f"y says which pairs are links, and {type(pairs).__name__} is no array (P, 2) of ids: give one, or no y"
        )
    told = np.asarray(labels)
    if told.shape != (len(rows),) or not np.isin(told, (0, 1)).all():
        raise InputError(f"y of shape {told.shape}: give {len(rows)} values, 1 for a link and 0 for a non-link")
    links = [(row[0], row[1]) for row, is_link in zip(rows, told.tolist(), strict=True) if is_link]
    if not links:
        raise InputError(f"none of the {len(rows)} pairs is a link: the fit needs some")
    return links, [name for row in rows for name in row]
