"""The file of a fitted factorisation: an uncompressed archive of arrays and JSON, no pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.atomic_files import published_archive
from mmsbgen.base.version import __version__
from mmsbgen.graph.ids import add_ids

KIND, FORMAT = "mmsbgen factorisation", 1
ARRAYS = ("p", "q", "b", "c", "seen_offsets", "seen_items")
_PLAIN = (int, float, str, bool, type(None))


def write_model(path: str | os.PathLike[str], fitted: Any) -> None:
    """Write a fitted :class:`MatrixFactorization` or :class:`ALS`; raises InputError if that is not possible."""
    model = fitted._fitted()
    given = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in fitted.get_params().items()
    }
    params = {name: value for name, value in given.items() if isinstance(value, _PLAIN)}
    meta = {
        "kind": KIND,
        "format": FORMAT,
        "version": __version__,
        "estimator": type(fitted).__name__,
        "params": params,
        "n_iter": fitted.n_iter_,
        "history": fitted.history_,
        "numbers": [model.mean, model.low, model.high, getattr(getattr(fitted, "_scaled", None), "scale", 1.0)],
        "implicit": model.implicit,
    }
    with published_archive(Path(path)) as archive:
        archive.add_json("meta", meta)
        add_ids(archive, "user_ids", model.user_ids)
        add_ids(archive, "item_ids", model.item_ids)
        for name in ARRAYS:
            archive.add(name, getattr(model, name))
