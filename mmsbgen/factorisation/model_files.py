"""The file of a fitted factorisation: an uncompressed archive of arrays and JSON, no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen._version import __version__
from mmsbgen.base.atomic_files import DAMAGED, FOREIGN, published_archive, stored_arrays
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.factorisation.als_estimator import ALS
from mmsbgen.factorisation.fit_loop import Scaled
from mmsbgen.factorisation.fitted_factors import ModelFactors
from mmsbgen.factorisation.sgd_estimator import MatrixFactorization
from mmsbgen.graph.graph import object_ids
from mmsbgen.graph.id_json import from_json, to_json

__all__ = ["load_model", "write_model"]

_KIND, _FORMAT = "mmsbgen factorisation", 1
_ARRAYS = ("p", "q", "b", "c", "seen_offsets", "seen_items")
_PLAIN = (int, float, str, bool, type(None))


def write_model(path: str | os.PathLike[str], fitted: Any) -> None:
    """Write a fitted :class:`MatrixFactorization` or :class:`ALS`; raises InputError if that is not possible."""
    model: ModelFactors = fitted._fitted()
    params = {name: value for name, value in fitted.get_params().items() if isinstance(value, _PLAIN)}
    meta = {
        "kind": _KIND,
        "format": _FORMAT,
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
        for name in _ARRAYS:
            archive.add(name, getattr(model, name))


def load_model(path: str | os.PathLike[str]) -> MatrixFactorization | ALS:
    """Read what ``save`` of an estimator, or ``mmsbgen mf fit``, wrote.

    Raises:
        InputError: For any other file, and for one of a later version.
    """
    try:
        with open(path, "rb") as file, stored_arrays(file) as archive:
            meta = json.loads(archive["meta"].tobytes())
            if meta["kind"] != _KIND:
                raise ValueError(f"it is a {meta['kind']}")
            if meta["format"] != _FORMAT:
                raise InputError(
                    f"{path} is of mmsbgen {plain(meta['version'])}, and this is {__version__}: fit it again"
                )
            arrays: dict[str, Any] = {name: archive[name] for name in _ARRAYS}
            ids: dict[str, Any] = {
                name: archive[name]
                if name in archive
                else object_ids(list(map(from_json, json.loads(archive[f"{name}_json"].tobytes()))))
                for name in ("user_ids", "item_ids")
            }
            mean, low, high, scale = map(float, meta["numbers"])
            model = ModelFactors(**arrays, **ids, mean=mean, low=low, high=high, implicit=bool(meta["implicit"]))
            _check(model)
            kind = {"ALS": ALS, "MatrixFactorization": MatrixFactorization}[meta["estimator"]]
            fitted: Any = kind(**meta["params"])
            fitted.model_, fitted.n_iter_, fitted.history_ = model, int(meta["n_iter"]), list(meta["history"])
            fitted.interrupted_ = False
            if kind is MatrixFactorization:
                fitted._scaled = Scaled(mean, scale, low, high)
            return fitted  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (*FOREIGN, *DAMAGED) as error:
        raise InputError(
            f"{path} is no factorisation of mmsbgen ({plain(error, 200)}); name a file that `mmsbgen mf fit` wrote"
        ) from None


def _check(model: ModelFactors) -> None:
    m, n = model.user_ids.size, model.item_ids.size
    k = model.p.shape[1]
    shapes = [model.p.shape, model.q.shape, model.b.shape, model.c.shape, model.seen_offsets.shape]
    if shapes != [(m, k), (n, k), (m,), (n,), (m + 1,)]:
        raise ValueError("its arrays do not fit together")
    seen = model.seen_items
    if int(model.seen_offsets[-1]) != seen.size or (seen.size and int(seen.max()) >= n):
        raise ValueError("its rated items do not fit together")


def _bytes(value: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)
