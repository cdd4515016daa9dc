"""Differences between two keys, and the distance between two problems."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from mmsbgen.db.records.tuning_records import Key

PROBLEM_PREFIX = "problem."
_DEVICE_PARTS = ("device", "platform", "vendor", "backend", "kind", "architecture", "compute units")
_IMPLIED_BY_DEVICE = ("driver", "compiler", "compiler version", "compiler options")


@dataclass(frozen=True)
class Difference:
    """A part of a key with its wanted and found values; None if a key lacks the part."""

    part: str
    wanted: Any
    found: Any


def parts(key: Key) -> dict[str, Any]:
    """All parts of a key by name; problem parameters are named ``problem.NAME``."""
    device, toolchain = key.device, key.toolchain
    return {
        "device": device.name,
        "platform": device.platform,
        "vendor": device.vendor,
        "backend": device.backend,
        "kind": device.kind,
        "architecture": device.architecture,
        "compute units": device.compute_units,
        "driver": device.driver,
        "compiler": toolchain.compiler,
        "compiler version": toolchain.version,
        "compiler options": toolchain.options,
        "template digest": key.kernel.template_digest,
        **{PROBLEM_PREFIX + name: value for name, value in sorted(key.problem.params.items())},
    }


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[Difference]:
    """The differences between two results of :func:`parts`."""
    names = [*wanted, *(name for name in found if name not in wanted)]
    pairs = ((name, wanted.get(name), found.get(name)) for name in names)
    return [Difference(name, a, b) for name, a, b in pairs if not _same(a, b)]


def problem_distance(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    irrelevant: Collection[str] = (),
    weights: Mapping[str, float] | None = None,
    implied: Mapping[str, Any] | None = None,
) -> float:
    """Weighted sum of ``abs(log(x / y))`` over the numeric parameters of two problems.

    It is 0 for equal problems.  It is infinite if one problem lacks a parameter of the other, if a text or boolean
    differs (such as a data type), or if numbers differ and one is zero or negative.

    Args:
        a: Parameters of one problem.
        b: Parameters of the other.
        irrelevant: Names of parameters to leave out.
        weights: Weights of some parameters; the others have weight 1.
        implied: Values of parameters that a problem may leave out.
    """
    total, a, b = 0.0, {**(implied or {}), **a}, {**(implied or {}), **b}
    for name in a.keys() | b.keys():
        if name in irrelevant:
            continue
        x, y = a.get(name), b.get(name)
        if _same(x, y):
            continue
        if not (_is_positive(x) and _is_positive(y)):
            return math.inf
        total += (weights or {}).get(name, 1.0) * abs(math.log(x) - math.log(y))
    return total


def sentence(found: Collection[Difference]) -> str:
    """``no record for A, B: nearest has C, D``; differences in the device count as one."""
    device = [d for d in found if d.part in _DEVICE_PARTS]
    named = [d for d in device if d.part == "device"] or device[:1]
    rest = [d for d in found if d.part not in _DEVICE_PARTS and not (device and d.part in _IMPLIED_BY_DEVICE)]
    shown = [*named, *rest]
    wanted = ", ".join(phrase(d.part, d.wanted) for d in shown)
    return f"no record for {wanted}: nearest has {', '.join(phrase(d.part, d.found) for d in shown)}"


def phrase(part: str, value: Any) -> str:
    """A part with its value for messages: ``driver 550.54`` or, for a problem parameter, ``N=1024``."""
    if part.startswith(PROBLEM_PREFIX):
        return f"{part.removeprefix(PROBLEM_PREFIX)}={'(none)' if value is None else value}"
    return f"{part} {'(none)' if value in (None, '') else value}"


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _is_positive(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
