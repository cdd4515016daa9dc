"""What a fitted factorisation answers: predictions, recommendations, similar items, errors; its model file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.atomic_files import published_archive
from mmsbgen.base.errors import InputError, NotFittedError
from mmsbgen.base.version import __version__
from mmsbgen.graph.ids import add_ids
from mmsbgen.ratings import Ratings, as_ratings
from mmsbgen.ratings.ratings import looked_up

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


Array = NDArray[Any]
_BATCH = 1 << 22


@dataclass(eq=False)
class ModelFactors:
    """The numbers of a fitted factorisation: a rating is predicted as ``mean + b_u + c_v + <p_u, q_v>``.

    Attributes:
        p: User factors ``[m, K]``, float32; 0 for users without ratings.
        q: Item factors ``[n, K]``.
        b: User biases ``[m]``.
        c: Item biases ``[n]``.
        mean: Of the ratings; 0 for implicit feedback.
        low: The least rating, to which predictions are clipped.
        high: The largest one.
        user_ids: ``[m]``.
        item_ids: ``[n]``.
        seen_offsets: ``[m + 1]``, where the items of each user begin in ``seen_items``.
        seen_items: ``[E]``, indices of the items that users rated in training.
        implicit: Whether what was fitted were counts, and predictions are preferences.
    """

    p: Array
    q: Array
    b: Array
    c: Array
    mean: float
    low: float
    high: float
    user_ids: Array
    item_ids: Array
    seen_offsets: Array
    seen_items: Array
    implicit: bool = False
    _numbers: dict[str, dict[Any, int]] = field(default_factory=dict)

    def numbers(self, side: str, ids: Any) -> NDArray[np.int64]:
        """Indices ``[S]`` of users or items by their ids; -1 for unknown ones, see :func:`looked_up`."""
        every = self.user_ids if side == "user" else self.item_ids
        if side not in self._numbers:
            self._numbers[side] = {name: at for at, name in enumerate(every.tolist())}
        return looked_up(self._numbers[side], ids, f"{side}s")

    def predicted(self, users: Array, items: Array, clip: bool) -> NDArray[np.float64]:
        """Predictions ``[S]`` for indices of users and items ``[S]``; -1 adds nothing to the mean."""
        found = np.full(users.size, self.mean)
        known_user, known_item = users >= 0, items >= 0
        found[known_user] += self.b[users[known_user]]
        found[known_item] += self.c[items[known_item]]
        both = np.flatnonzero(known_user & known_item)
        part = max(1, _BATCH // max(1, self.p.shape[1]))
        for first in range(0, both.size, part):
            at = both[first : first + part]
            found[at] += np.einsum("sk,sk->s", self.p[users[at]], self.q[items[at]], dtype=np.float64)
        return np.clip(found, self.low, self.high) if clip and not self.implicit else found


class Answers:
    """The answers of an estimator whose ``model_`` is :class:`ModelFactors`."""

    model_: ModelFactors
    n_iter_: int
    history_: list[dict[str, Any]]
    interrupted_: bool

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        inputs = InputTags(sparse=True, string=True, categorical=True)
        return Tags(estimator_type="regressor", target_tags=TargetTags(required=False), input_tags=inputs)

    def _fitted(self) -> ModelFactors:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit with ratings first")
        return self.model_

    @property
    def user_factors(self) -> Array:
        """Factors of users ``[m, K]``, float32, in the order of ``user_ids_``."""
        return self._fitted().p

    @property
    def item_factors(self) -> Array:
        """Factors of items ``[n, K]``, float32, in the order of ``item_ids_``."""
        return self._fitted().q

    @property
    def user_ids_(self) -> Array:
        """Ids of users ``[m]``."""
        return self._fitted().user_ids

    @property
    def item_ids_(self) -> Array:
        """Ids of items ``[n]``."""
        return self._fitted().item_ids

    def predict(self, users: Any, items: Any = None, *, clip: bool = True) -> NDArray[np.float64]:
        """Predicted ratings, float64 ``[S]``.

        Args:
            users: Ids of users ``[S]``; or pairs ``[S, 2]`` of user and item, and no ``items``.
            items: Ids of items ``[S]``.
            clip: Whether to clip predictions to the range of the ratings that were fitted.

        Unknown users and items have no bias and no factors, so that both unknown give the mean.

        Raises:
            InputError: For ids of different number.
            NotFittedError: Before ``fit``.
        """
        model = self._fitted()
        if items is None:
            users, items = _columns_of(users)
        u, v = model.numbers("user", users), model.numbers("item", items)
        if u.size != v.size:
            raise InputError(f"{u.size} users and {v.size} items: give as many of each")
        return model.predicted(u, v, clip)

    def evaluate(self, ratings: Any, *, columns: Any = None) -> dict[str, float]:
        """Errors of predictions on ratings that :func:`mmsbgen.ratings.as_ratings` takes, with ``columns`` as there.

        Returns:
            ``rmse`` and ``mae``, and the numbers of ``ratings``, and of those by ``unknown_users`` and of
            ``unknown_items``, which are predicted without them.

        Raises:
            InputError: For a fit of implicit feedback, whose predictions are no ratings.
        """
        model = self._fitted()
        if model.implicit:
            raise InputError(
                "a fit of implicit feedback predicts preferences, which have no error against counts: "
                "see what it recommends"
            )
        given = as_ratings(ratings, columns=columns)
        u = model.numbers("user", given.user_ids)[given.users]
        v = model.numbers("item", given.item_ids)[given.items]
        error = given.values - model.predicted(u, v, True)
        return {
            "rmse": float(np.sqrt(np.mean(error * error))),
            "mae": float(np.abs(error).mean()),
            "ratings": len(given),
            "unknown_users": int(np.sum(u < 0)),
            "unknown_items": int(np.sum(v < 0)),
        }

    def score(self, X: Any, y: Any = None, *, columns: Any = None) -> float:  # noqa: N803
        """The RMSE on ratings, negative, so that more is better; the arguments are those of ``fit``."""
        return -self.evaluate(given_ratings(X, y, columns))["rmse"]

    def recommend(
        self,
        userids: Any,
        user_items: Any = None,
        N: int = 10,  # noqa: N803
        filter_already_liked_items: bool = True,
    ) -> tuple[Array, NDArray[np.float64]]:
        """The items with the largest predictions for a user, best first; equal ones in the order of ``item_ids_``.

        Args:
            userids: The id of a user, or several ``[S]``.
            user_items: More ratings, whose items are left out too.
            N: The number of items.
            filter_already_liked_items: Whether to leave out what a user rated.

        Returns:
            Ids of items and their predictions, not clipped, ``[N]`` each, or ``[S, N]`` for several users.  There are
            fewer if every user of ``userids`` has fewer left; where only some have, the others' rest is NaN.

        Raises:
            InputError: For unknown users, and N below 1.
        """
        model = self._fitted()
        several = isinstance(userids, list | tuple | np.ndarray) and np.ndim(userids) > 0
        wanted = list(userids) if several else [userids]
        rows = model.numbers("user", wanted)
        if (rows < 0).any():
            odd = wanted[int(np.argmax(rows < 0))]
            raise InputError(f"user {odd!r} is not in the model; give one of its {model.user_ids.size} users")
        if N < 1:
            raise InputError(f"N={N}: give a number of items from 1 on")
        more = self._more(user_items)
        best, values = [], []
        for row in rows.tolist():
            score = model.mean + float(model.b[row]) + model.c.astype(np.float64)
            score += model.q @ model.p[row].astype(np.float64)
            if filter_already_liked_items:
                score[model.seen_items[model.seen_offsets[row] : model.seen_offsets[row + 1]]] = np.nan
                score[more.get(row, [])] = np.nan
            order = np.argsort(-score, kind="stable")[:N]
            best.append(order)
            values.append(score[order])
        found = np.array(values)
        left = int(np.isfinite(found).any(axis=0).sum())
        ids, scores = model.item_ids[np.array(best)[:, :left]], found[:, :left]
        return (ids, scores) if several else (ids[0], scores[0])

    def _more(self, user_items: Any) -> dict[int, list[int]]:
        if user_items is None:
            return {}
        model, given = self._fitted(), as_ratings(user_items, "last")
        found: dict[int, list[int]] = {}
        u = model.numbers("user", given.user_ids)[given.users]
        v = model.numbers("item", given.item_ids)[given.items]
        for user, item in zip(u.tolist(), v.tolist(), strict=True):
            if item >= 0:
                found.setdefault(user, []).append(item)
        return found

    def similar_items(self, itemid: Any, N: int = 10) -> tuple[Array, NDArray[np.float64]]:  # noqa: N803
        """The items whose factors have the least angle to those of one, itself first: ids and cosines ``[N]``.

        Raises:
            InputError: For an unknown item, one without ratings, and N below 1.
        """
        model = self._fitted()
        at = int(model.numbers("item", [itemid])[0])
        if at < 0:
            raise InputError(f"item {itemid!r} is not in the model; give one of its {model.item_ids.size} items")
        if N < 1:
            raise InputError(f"N={N}: give a number of items from 1 on")
        q = model.q.astype(np.float64)
        length = np.linalg.norm(q, axis=1)
        if length[at] == 0:
            raise InputError(f"item {itemid!r} has no rating in training, so that nothing is known to be like it")
        cosine = np.divide(q @ q[at], length * length[at], out=np.full(length.size, -np.inf), where=length > 0)
        cosine[at] = 1.0
        order = np.argsort(-cosine, kind="stable")
        order = np.concatenate([[at], order[order != at]])[:N]
        order = order[np.isfinite(cosine[order])]
        return model.item_ids[order], cosine[order]

    def save(self, path: Any) -> None:
        """Write the model to an ``.npz``, which :func:`mmsbgen.factorisation.load_model` reads."""
        write_model(path, self)


def given_ratings(X: Any, y: Any, columns: Any = None) -> Ratings:  # noqa: N803
    """Ratings from the arguments of ``fit``: what ``as_ratings`` takes, or pairs ``[E, 2]`` and ratings ``[E]``."""
    if y is None:
        return as_ratings(X, columns=columns)
    if columns is not None:
        raise InputError(f"columns={columns!r}: they are of a file or a table, and pairs with ratings have none")
    return as_ratings((*_columns_of(X), y))


def _columns_of(pairs: Any) -> tuple[Any, Any]:
    """Users and items of pairs; those of a list keep their types, of which an array would make one."""
    array = pairs.to_numpy() if hasattr(pairs, "to_numpy") else pairs
    if isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] == 2:
        return array[:, 0], array[:, 1]
    rows: Any = array if isinstance(array, list | tuple) else [()]
    if not all(isinstance(row, list | tuple | np.ndarray) and len(row) == 2 for row in rows):
        raise InputError(f"a {type(pairs).__name__} is no list of pairs: give an array (S, 2) of user and item")
    return [row[0] for row in rows], [row[1] for row in rows]
