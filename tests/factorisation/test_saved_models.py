"""Files of models: what is saved is loaded whole, and what is none is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.factorisation import ALS, MatrixFactorization, load_model
from mmsbgen.families.mf.generated import generated_ratings
from mmsbgen.ratings import Ratings, as_ratings
from tests.devices import PROCESSOR

DEVICE = PROCESSOR


@pytest.fixture(scope="module")
def small() -> Ratings:
    return as_ratings(generated_ratings(60, 40, 900, 1))


def test_models_are_saved_whole(small: Ratings, tmp_path: Path, processor: Any) -> None:
    named = [f"user {u}" for u in small.users], small.items, small.values
    for number, fitted in enumerate((
        MatrixFactorization(3, n_epochs=2, reg=0.2, device=DEVICE).fit(named).partial_fit(([7], [7], [1.0])),
        ALS(3, n_epochs=2, device=DEVICE).fit(small),
    )):  # fmt: skip
        path = tmp_path / f"{number}.npz"
        fitted.save(path)
        loaded = load_model(path)
        assert loaded.get_params() == fitted.get_params()
        user = fitted.user_ids_[0]
        assert loaded.recommend(user)[0].tolist() == fitted.recommend(user)[0].tolist()
        assert loaded.user_factors.tobytes() == fitted.user_factors.tobytes()
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputError, match="is no factorisation of mmsbgen"):
        load_model(path)
    np.savez(path, x=np.ones(3))
    with pytest.raises(InputError, match="is no factorisation of mmsbgen"):
        load_model(path)
    with pytest.raises(InputError, match="there is no file"):
        load_model(tmp_path / "none.npz")


def test_numpys_integers_are_saved(small: Ratings, tmp_path: Path, processor: Any) -> None:
    fitted = MatrixFactorization(np.int64(3), n_epochs=np.int32(1), device=DEVICE).fit(small)  # type: ignore[arg-type]
    fitted.save(tmp_path / "m.npz")
    assert load_model(tmp_path / "m.npz").partial_fit(small).n_factors == 3


@pytest.mark.parametrize(
    "forged",
    [
        {"q": np.full((40, 2), np.nan, np.float32)},
        {"q": np.full((40, 2), "1")},
        {"b": np.zeros(60, complex)},
        {"seen_offsets": np.array([*range(60, 0, -1), 900])},
        {"seen_items": np.full(900, -1)},
        {"user_ids": np.zeros((60, 1))},
        {"scale": 0.0},
        {"n_iter_": 2},
        {"history_": []},
        {"history_": [{"sweep": 1, "seconds": 0.1}]},
    ],
)
def test_forged_models_are_refused(forged: dict[str, Any], small: Ratings, tmp_path: Path, processor: Any) -> None:
    fitted = MatrixFactorization(2, n_epochs=1, device=DEVICE).fit(small)
    if "scale" in forged:
        fitted._scaled = dataclasses.replace(fitted._scaled, **forged)
    else:
        vars(fitted if {"n_iter_", "history_"} & forged.keys() else fitted.model_).update(forged)
    fitted.save(tmp_path / "m.npz")
    with pytest.raises(InputError, match="is no factorisation of mmsbgen"):
        load_model(tmp_path / "m.npz")
