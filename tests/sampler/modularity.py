"""Modularity, by which the tests judge labels."""

from __future__ import annotations

import numpy as np


def modularity(links: np.ndarray, labels: np.ndarray, resolution: float = 1.0) -> float:
    """Modularity of ``labels`` ``[N]`` for ``links`` ``[E, 2]`` (Newman and Girvan 2004); 0 without links."""
    if not len(links):
        return 0.0
    degrees = np.bincount(labels[links.ravel()])
    inside = np.count_nonzero(labels[links[:, 0]] == labels[links[:, 1]])
    return float(inside / len(links) - resolution * ((degrees / (2 * len(links))) ** 2).sum())
