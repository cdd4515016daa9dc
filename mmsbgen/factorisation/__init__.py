"""Matrix factorisation of ratings from Python: ``MatrixFactorization`` by SGD, ``ALS`` by least squares."""

from __future__ import annotations

from mmsbgen.factorisation.als_estimator import ALS
from mmsbgen.factorisation.fitted_factors import ModelFactors
from mmsbgen.factorisation.model_files import load_model
from mmsbgen.factorisation.sgd_estimator import MatrixFactorization

__all__ = ["ALS", "MatrixFactorization", "ModelFactors", "load_model"]
