"""scikit-learn's parameter conventions, without importing it."""

from __future__ import annotations

import inspect
from typing import Any, Self

from mmsbgen.base.errors import ParameterError


class Parameters:
    """``get_params``, ``set_params`` and a ``repr`` that shows the non-default parameters.

    The parameters are the arguments of the class's constructor, which only stores them.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = list(inspect.signature(cls).parameters.values())
        return {parameter.name: parameter.default for parameter in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; ``deep`` has no effect, as no parameter is an estimator."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; returns the estimator.

        Raises :class:`mmsbgen.base.errors.ParameterError` (a ValueError) for an unknown name, and sets none then.
        """
        known = self._defaults()
        odd = next((name for name in params if name not in known), None)
        if odd is not None:
            raise ParameterError(f"{type(self).__name__} has no parameter {odd!r}; there are {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, default in self._defaults().items()
            if not _same(getattr(self, name), default)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
