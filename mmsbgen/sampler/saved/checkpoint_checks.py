"""Checks of a checkpoint's content, which may be damaged or forged although its checksums are right.

All functions raise ValueError for what no run writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

import numpy as np

from mmsbgen.base.id_text import plain
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE
from mmsbgen.kernels.family import Array

Kind = Callable[[Any], bool]
"""Whether a value of a description is of a kind."""
#: Distance from 1 of the sum of a row of pi, which rounding to 16 bits may cause.
_ROUNDING = 0.1
#: Relative excess over 1 of a probability by rounding.
_EXCESS = 0.01
_LARGEST = 2**63


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _LARGEST)


def _amount(value: Any) -> bool:
    return _number(value) and 0 <= value < math.inf


def _of(*types: type) -> Kind:
    return lambda value: isinstance(value, types)


_text, _flag, _scalar = _of(str), _of(bool), _of(NoneType, str, int, float)


def _or_none(kind: Kind) -> Kind:
    return lambda value: value is None or kind(value)


def _each(kind: Kind) -> Kind:
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def _list(kind: Kind) -> Kind:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def _record(kinds: Mapping[str, Kind], *optional: str) -> Kind:
    """A dictionary with values of these kinds; others are scalars."""
    return lambda value: (
        isinstance(value, dict)
        and kinds.keys() - value.keys() <= set(optional)
        and all(kinds.get(name, _scalar)(one) for name, one in value.items())
    )


#: Counters of :class:`mmsbgen.sampler.state.chain_state.ChainState`.
COUNTERS = ("iteration", "samples", "averaged", "vertex_updates", "clips", "published_evaluations")
_PHASES = {
    "start": _text,
    "trials": _list(_each(_scalar)),
    "clock_from": _count,
    "clock_at": _amount,
    "refinements": _list(_record({"iteration": _count, "filled": _count})),
    "pruned": _or_none(_record({"iteration": _count, "emptied": _count})),
    "settled_at": _or_none(_count),
    "sampling_from": _or_none(_count),
    "closing_from": _or_none(_count),
    "end": _or_none(_count),
}
_METRICS = ("perplexity", "sample_perplexity", "log_likelihood", "sample_log_likelihood", "auc", "published_perplexity")
_EVALUATION = {
    "iteration": _count,
    "updates_per_vertex": _amount,
    "seconds": _amount,
    "eps": _amount,
    "phase": _text,
    "mean_row_sum": _amount,
    "clips": _count,
    "burnt_in": _flag,
}
#: Of runs whose sweeps several ranks share.
_RANKS = {"rank_seconds": _list(_amount), "exchange": _text, "slow_rank": _text}
_HELD_OUT = {"samples": _count, **dict.fromkeys(_METRICS, _number)}
_META: dict[str, Kind] = {
    "graph": _text,
    "graph_name": _text,
    "version": _text,
    "kept": _flag,
    "held_out": _record({"validation": _count, "test": _count}),
    "options": _of(dict),
    "fingerprint": _each(_text),
    "kernels": _each(lambda value: isinstance(value, dict) and _each(_of(str, int))(value.get("config"))),
    **dict.fromkeys(COUNTERS, _count),
    "course": _record(_PHASES, *_PHASES),
    "stage_seconds": _each(_amount),
    "seconds": _amount,
    "trace": _list(_record(_EVALUATION | _RANKS | _HELD_OUT, *_RANKS, *_HELD_OUT)),
}


def check_meta(meta: Mapping[str, Any]) -> None:
    """Check the types and ranges of a description, and the order of its evaluations."""
    for name, kind in _META.items():
        if not kind(meta[name]):
            raise ValueError(f"its {name} is {plain(meta[name])}")
    done, course = meta["iteration"], meta["course"]
    moments = [row["iteration"] for row in meta["trace"]]
    changed = [*course.get("refinements", []), course.get("pruned") or {}]
    past = [*moments, course.get("clock_from", 0), *(change.get("iteration", 0) for change in changed)]
    if max(past, default=0) > done or moments != sorted(set(moments)):
        raise ValueError(f"its evaluations and phases are not those of {done} iterations")
    if any(row.keys() & _HELD_OUT.keys() and not row.keys() >= _HELD_OUT.keys() for row in meta["trace"]):
        raise ValueError("an evaluation lacks some of its metrics")


def checked(
    arrays: Mapping[str, Array],
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    most: float = math.inf,
    is_positive: bool = False,
) -> Array:
    """The array ``name`` of finite numbers from 0 (above 0 if ``is_positive``) to ``most``."""
    found = arrays[name]
    if found.shape != shape or found.dtype != dtype:
        raise ValueError(f"its {name} is {found.dtype} {found.shape}, this run needs {dtype} {shape}")
    least = found.min(initial=math.inf)
    if not np.isfinite(found).all() or least < 0 or (is_positive and least == 0) or found.max(initial=0) > most:
        raise ValueError(f"its {name} has numbers that no chain has")
    return found


def probabilities(count: int) -> float:
    """The most that ``count`` probabilities sum to."""
    return count * (1.0 + _EXCESS)


def check_rows(rows: Array, name: str, total: float) -> None:
    """Check that rows ``[R, K]`` have finite numbers from 0 on, with sums near ``total``."""
    sums = rows.sum(axis=1, dtype=np.float64)
    if not (rows.min(initial=0) >= 0 and np.isfinite(sums).all() and (abs(sums - total) <= _ROUNDING * total).all()):
        raise ValueError(f"its {name} has rows whose sums are not {total:g}")


def check_entries(communities: Array, values: Array, k: int, floor: float, left_out: Array) -> None:
    """Check sparse rows: distinct communities below ``k``, unused entries last, and sums of rows near 1.

    Only the vertices ``left_out``, ascending, have no entries.
    """
    if communities.shape != values.shape or communities.dtype != np.uint32:
        raise ValueError(f"its communities are {communities.dtype} {communities.shape}")
    used = communities != NONE
    counts = used.sum(axis=1)
    ordered = np.sort(np.where(used, communities.astype(np.int64), k + np.arange(communities.shape[1])), axis=1)
    sums = np.where(used, values, 0.0).sum(axis=1, dtype=np.float64) + (k - counts) * floor
    if (
        not np.array_equal(np.flatnonzero(counts == 0), left_out)
        or (communities[used] >= k).any()
        or (np.diff(ordered, axis=1) == 0).any()
        or (used[:, 1:] > used[:, :-1]).any()
        or (values[~used] != 0).any()
        or (abs(sums[counts > 0] - 1) > _ROUNDING).any()
    ):
        raise ValueError("its entries are not those of rows")
