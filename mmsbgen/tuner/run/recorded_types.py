"""Checks imported records against the types that today's kernels declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.families import family
from mmsbgen.kernels.record_key import recorded_traits

_EXPECTED = {bool: "true or false is", int: "a whole number is", str: "a text is"}


def check_types(bundle: Bundle, name: str) -> None:
    """Raise InputError if a value of a configuration or problem has another type than its axis or parameter.

    Axes and parameters that today's kernels lack are skipped: records of other versions have them.  ``name`` is that of
    the file, for the message.
    """
    try:
        keys = [*(trial.key for trial in bundle.trials), *(failure.key for failure in bundle.quarantine)]
        for key in dict.fromkeys(keys):
            _check_device(key)
            _check_problem(key)
        for trial in bundle.trials:
            _check_config(trial.key, trial.config)
        for failure in bundle.quarantine:
            _check_config(failure.key, failure.config)
            _check_config(failure.key, failure.recorded)
    except InputError as error:
        raise InputError(f"{name}: {error}; export the records again, or leave this one out") from None


def _check_device(key: Key) -> None:
    try:
        recorded_traits(key.device)
    except (TypeError, ValueError) as error:
        raise InputError(f"the limits of {plain(key.device.name)} in 'extra' are no whole numbers ({error})") from None


def _check_problem(key: Key) -> None:
    try:
        parameters = family(key.kernel.family).parameters
    except InputError:  # of another program
        return
    _compare(key, key.problem.params, ((one.name, one.default) for one in parameters))


def _check_config(key: Key, config: Mapping[str, Any]) -> None:
    try:
        kernels = family(key.kernel.family).kernels
    except InputError:
        return
    if key.kernel.name in kernels:
        _compare(key, config, ((axis.name, axis.values[0]) for axis in kernels[key.kernel.name].space.axes))


def _compare(key: Key, values: Mapping[str, Any], declared: Iterable[tuple[str, Any]]) -> None:
    for name, example in declared:
        if name in values and type(values[name]) is not type(example):
            raise InputError(f"{name}={values[name]!r} of {key.kernel.name}: {_EXPECTED[type(example)]} expected")
