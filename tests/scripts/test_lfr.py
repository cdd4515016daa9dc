"""The benchmark's graphs of Lancichinetti and Fortunato."""

from __future__ import annotations

import importlib

import numpy as np
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("share", "memberships"), [(0.0, 1), (0.5, 3)])
def test_properties_of_the_graphs(monkeypatch, scripts, share, memberships):
    monkeypatch.syspath_prepend(str(scripts / "bench"))
    n, degree, mixing = 2000, 10.0, 0.3
    links, members = importlib.import_module("_lfr").lfr(n, degree, 50, (60, 120), mixing, share, memberships, seed=3)
    assert (links[:, 0] < links[:, 1]).all()
    assert len(np.unique(links, axis=0)) == len(links)
    counts = np.bincount(np.concatenate(members), minlength=n)
    assert set(counts.tolist()) == {1, memberships}
    assert (counts > 1).sum() == share * n
    assert all(len(np.unique(one)) == one.size for one in members)
    assert min(one.size for one in members[:-1]) >= 60
    assert max(one.size for one in members) <= 121
    degrees = np.bincount(links.ravel(), minlength=n)
    assert degrees.max() <= 51, "rounding at random may add a link"
    # Degrees are from 4 to 50 with the probabilities d^-2: mean 10.6, standard deviation 8.7.
    values = np.arange(4, 51)
    p = values**-2.0 / (values**-2.0).sum()
    mean = values @ p
    error = np.sqrt((values**2 @ p - mean**2) / n)
    assert abs(degrees.mean() - mean) < 4 * error + 0.1, "and a hundredth of the stubs find no partner"
    sets = [set(one.tolist()) for one in members]
    own = [{community for community, one in enumerate(sets) if vertex in one} for vertex in range(n)]
    across = np.mean([not own[a] & own[b] for a, b in links.tolist()])
    # Rounding to whole links shifts the mixing of a vertex of degree d by up to 1/(2 d), on average by none.
    assert abs(across - mixing) < 4 * np.sqrt(mixing * (1 - mixing) / len(links)) + 0.02
