"""Autotuned kernels of SG-MCMC on the assortative mixed-membership stochastic blockmodel (a-MMSB).

The public names are imported when first used, so that importing the package loads no GPU library and takes no
time: :class:`MMSB` is an estimator and :func:`detect` a function that find communities, :func:`update` follows a graph
that changes, :class:`LabelPropagation` spreads known labels, :func:`tune` finds configurations, :func:`open_store`
opens the tuning database, :func:`render` prints a kernel's source.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mmsbgen.base.version import __version__

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.detection.detect import Detection, detect
    from mmsbgen.detection.update import update
    from mmsbgen.estimator import MMSB
    from mmsbgen.estimator.label_propagation import LabelPropagation
    from mmsbgen.kernels.render import render
    from mmsbgen.tuner.run.tune import tune

__all__ = ["MMSB", "Detection", "LabelPropagation", "__version__", "detect", "open_store", "render", "tune", "update"]

_PUBLIC = {
    "MMSB": "mmsbgen.estimator",
    "Detection": "mmsbgen.detection.detect",
    "LabelPropagation": "mmsbgen.estimator.label_propagation",
    "detect": "mmsbgen.detection.detect",
    "open_store": "mmsbgen.db.store.tuning_store",
    "render": "mmsbgen.kernels.render",
    "tune": "mmsbgen.tuner.run.tune",
    "update": "mmsbgen.detection.update",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
