"""The model as an estimator in the manner of scikit-learn."""

from __future__ import annotations

from mmsbgen.estimator.mmsb import MMSB, InterruptedFit

__all__ = ["MMSB", "InterruptedFit"]
