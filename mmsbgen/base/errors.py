"""Errors that a user can cause and fix, and warnings at the user's line.

The command line prints the message of any :class:`MmsbgenError` without a traceback.  A message names
the offending value and the remedy.  Errors that are not subclasses are bugs.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

_PACKAGE = __name__.partition(".")[0]


class MmsbgenError(Exception):
    """Base of all errors raised on purpose.  ``exit_code`` is what the command line returns."""

    exit_code = 1


class InputError(MmsbgenError):
    """A value given by the user cannot be used: a file, an option, an argument."""

    exit_code = 2


class ParameterError(InputError, ValueError):
    """An estimator has no parameter of that name, or cannot take that value now."""


class NotFittedError(InputError, ValueError, AttributeError):
    """An estimator is not fitted yet; has the same bases as scikit-learn's error of that name."""


class MissingDependencyError(MmsbgenError):
    """A library, driver or compiler that this call needs is not installed; the message says how to get it."""

    exit_code = 2


class DeviceMemoryError(InputError):
    """The state does not fit into the memory of the device or of the control group; raised before allocating."""


class ConfigError(InputError):
    """A kernel configuration is refused by a constraint; the message states which and why."""


class CompileError(MmsbgenError):
    """A kernel did not compile; the message holds kernel, configuration and the compiler's log."""


class LaunchError(MmsbgenError):
    """A compiled kernel could not be launched or failed while running."""


class LaunchLimitError(LaunchError):
    """A block is larger, or needs more shared memory, than the compiled kernel allows on this device."""


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """``; did you mean NAME?`` for the one or two names that are most like ``word`` in lower case; "" if none is."""
    known = {name.lower(): name for name in names}
    near = [known[name] for name in difflib.get_close_matches(word.lower(), known, 2, 0.7)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning at the innermost stack frame outside this package."""
    level, frame = 1, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)
