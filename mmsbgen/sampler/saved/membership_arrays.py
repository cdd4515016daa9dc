"""Memberships as the arrays of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mmsbgen.sampler.calibration.curve import from_array, to_array
from mmsbgen.sampler.diagnostics.explained_links import Array
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.posterior.draws import Draws
from mmsbgen.sampler.posterior.moments import Posterior

#: Arrays of one chain in files, and the fields that hold them.
_ARRAYS = {
    "communities": "indices",
    "shares": "values",
    "beta": "beta",
    "rest": "rest",
    "spread": "spread",
    "columns": "columns",
    "codes": "codes",
}


def named_arrays(found: Memberships) -> dict[str, Array]:
    """The arrays of ``found`` for a file, without ids; those of other chains have the prefix ``chain1_`` and so on."""
    arrays = {"unlinked": found.unlinked, "calibration": to_array(found.curve)}
    for number, one in enumerate((found, *found.others)):
        prefix = f"chain{number}_" if number else ""
        arrays |= {prefix + name: getattr(one, attribute) for name, attribute in _ARRAYS.items()}
        for part in (one.posterior, one.draws):
            arrays |= {} if part is None else {prefix + name: array for name, array in part.arrays().items()}
    return arrays


def of_arrays(ids: Array, arrays: Mapping[str, Array], delta: float) -> Memberships:
    """The inverse of :func:`named_arrays`; raises ValueError or KeyError for arrays that do not fit together."""
    unlinked = arrays["unlinked"]
    _check_numbers(unlinked=(unlinked, "iu"))
    if unlinked.size and (unlinked.min() < 0 or unlinked.max() >= len(ids) or (np.diff(unlinked) <= 0).any()):
        raise ValueError("its vertices without links are not among its vertices")
    chains: list[Memberships] = []
    kinds = {"communities": "iu", "columns": "iu", "codes": "u"}
    while not chains or f"chain{len(chains)}_beta" in arrays:
        prefix = f"chain{len(chains)}_" if chains else ""
        given: dict[str, Any] = {attribute: arrays[prefix + name] for name, attribute in _ARRAYS.items()}
        _check_numbers(**{name: (given[attribute], kinds.get(name, "f")) for name, attribute in _ARRAYS.items()})
        chain = Memberships(ids, delta=delta, unlinked=unlinked, **given, draws=Draws.of_arrays(arrays, prefix))
        _check_shapes(chain)
        chains.append(replace(chain, posterior=Posterior.of_arrays(arrays, prefix, chain.indices, chain.width)))
    return replace(chains[0], others=tuple(chains[1:]), curve=from_array(arrays["calibration"]))


def _check_numbers(**arrays: tuple[Array, str]) -> None:
    """Raise ValueError for arrays that are not of their NumPy kinds, not finite or, of reals, negative."""
    for name, (array, kinds) in arrays.items():
        if array.dtype.kind not in kinds:
            raise ValueError(f"its {name} are {array.dtype}")
        if kinds == "f" and not (np.isfinite(array).all() and array.min(initial=0.0) >= 0):
            raise ValueError(f"its {name} have numbers that no run has")


def _check_shapes(m: Memberships) -> None:
    n, indices = len(m.ids), m.indices
    fitting = (
        indices.ndim == 2
        and indices.shape == m.values.shape
        and len(indices) == n == m.rest.size
        and m.beta.shape == m.columns.shape == m.spread.shape
        and m.codes.shape in ((0, 0), (n, m.beta.size))
    )
    if not fitting or (indices.size and (indices.min() < 0 or indices.max() >= m.beta.size)):
        raise ValueError("its memberships do not fit together")
