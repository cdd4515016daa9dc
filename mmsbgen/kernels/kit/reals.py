"""The real type of a problem, by its parameter ``dtype``: float64, or else float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mmsbgen.kernels.problem import Problem


def real_type(problem: Problem) -> type[np.floating[Any]]:
    """The NumPy type."""
    return np.float64 if problem.get("dtype") == "float64" else np.float32


def real_name(problem: Problem) -> str:
    """The name in CUDA C and OpenCL C."""
    return "double" if problem.get("dtype") == "float64" else "float"


def real_bytes(problem: Problem) -> int:
    """Bytes of a number."""
    return 8 if problem.get("dtype") == "float64" else 4


def literal_of(problem: Problem) -> Callable[[float], str]:
    """A function that formats a number as a literal of the type."""
    if real_bytes(problem) == 8:
        return lambda x: repr(float(x))

    def single(x: float) -> str:
        text = str(np.float32(x))
        return (text if any(c in text for c in ".en") else text + ".0") + "f"

    return single
