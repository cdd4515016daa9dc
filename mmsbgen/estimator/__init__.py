"""The model as a scikit-learn style estimator."""

from __future__ import annotations

from mmsbgen.estimator.mmsb import MMSB, InterruptedFit

__all__ = ["MMSB", "InterruptedFit"]
