"""The file of a fitted factorisation: an uncompressed archive of arrays and JSON, no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.base.atomic_files import published_archive
from mmsbgen.base.version import __version__
from mmsbgen.graph.id_json import to_json

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
    ids = {"user_ids": model.user_ids, "item_ids": model.item_ids}
    named = {name: _bytes(list(map(to_json, each.tolist()))) for name, each in ids.items() if each.dtype.kind == "O"}
    with published_archive(Path(path)) as archive:
        archive.add("meta", _bytes(meta))
        for name, each in ids.items():
            archive.add(f"{name}_json" if name in named else name, named.get(name, each))
        for name in ARRAYS:
            archive.add(name, getattr(model, name))


def _bytes(value: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)
