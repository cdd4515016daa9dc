"""The model, and label propagation, as scikit-learn style estimators."""

from __future__ import annotations

from mmsbgen.estimator.mmsb import MMSB, InterruptedFit

__all__ = ["MMSB", "InterruptedFit"]
