"""Reads what :mod:`mmsbgen.factorisation.fitted_factors` writes."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from mmsbgen.base.atomic_files import DAMAGED, FOREIGN, stored_arrays
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.version import __version__
from mmsbgen.factorisation.als_estimator import ALS
from mmsbgen.factorisation.fit_loop import Scaled
from mmsbgen.factorisation.fitted_factors import ARRAYS, FORMAT, KIND, ModelFactors
from mmsbgen.factorisation.sgd_estimator import MatrixFactorization
from mmsbgen.graph.ids import ids_in


def load_model(path: str | os.PathLike[str]) -> MatrixFactorization | ALS:
    """Read what ``save`` of an estimator, or ``mmsbgen mf fit``, wrote.

    Raises:
        InputError: For any other file, and for one of a later version.
    """
    try:
        with open(path, "rb") as file, stored_arrays(file) as archive:
            meta = json.loads(archive["meta"].tobytes())
            if meta["kind"] != KIND:
                raise ValueError(f"it is a {meta['kind']}")
            if meta["format"] != FORMAT:
                raise InputError(
                    f"{path} is of mmsbgen {plain(meta['version'])}, and this is {__version__}: fit it again"
                )
            arrays: dict[str, Any] = {name: archive[name] for name in ARRAYS}
            ids: dict[str, Any] = {name: ids_in(archive, name) for name in ("user_ids", "item_ids")}
            mean, low, high, scale = map(float, meta["numbers"])
            model = ModelFactors(**arrays, **ids, mean=mean, low=low, high=high, implicit=bool(meta["implicit"]))
            _check(model)
            if not (np.isfinite([mean, scale]).all() and scale > 0 and low <= high):
                raise ValueError("its mean, scale and range are not those of ratings")
            kind = {"ALS": ALS, "MatrixFactorization": MatrixFactorization}[meta["estimator"]]
            fitted: Any = kind(**meta["params"])
            fitted.model_, fitted.n_iter_, fitted.history_ = model, int(meta["n_iter"]), list(meta["history"])
            fitted.interrupted_ = False
            sweeps = [[float(each[name]) for name in ("sweep", "seconds", "rmse")] for each in fitted.history_]
            if not (np.isfinite(sweeps).all() and 1 <= fitted.n_iter_ <= len(sweeps)):
                raise ValueError("its sweeps are not those of a fit")
            if kind is MatrixFactorization:
                fitted._scaled = Scaled(mean, scale, low, high)
            return fitted  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path, or name one that `mmsbgen mf fit` wrote") from None
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
    if model.user_ids.ndim != 1 or model.item_ids.ndim != 1:
        raise ValueError("its ids have several dimensions")
    if not all(x.dtype.kind == "f" and np.isfinite(x).all() for x in (model.p, model.q, model.b, model.c)):
        raise ValueError("its factors are no finite numbers")
    seen, offsets = model.seen_items, model.seen_offsets
    if seen.dtype.kind not in "iu" or offsets.dtype.kind not in "iu" or seen.ndim != 1:
        raise ValueError("its rated items are no indices")
    ends = np.array_equal(offsets[[0, -1]], [0, seen.size]) and np.all(offsets[1:] >= offsets[:-1])
    if not ends or (seen.size and not 0 <= int(seen.min()) <= int(seen.max()) < n):
        raise ValueError("its rated items do not fit together")
