"""Filter options of ``mmsbgen db``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mmsbgen.base.errors import InputError, did_you_mean
from mmsbgen.cli.db.named_records import picked_device
from mmsbgen.cli.shared.common import pairs

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import Store

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(command: F) -> F:
    """Add ``--kernel``, ``--device`` and ``--problem``."""
    for option in (
        click.option("--problem", multiple=True, metavar="NAME=VALUE", help="A problem parameter; repeatable."),
        click.option("--device", metavar="TEXT", help="Part of a recorded device's name or platform, or one here."),
        click.option("--kernel", metavar="NAME", help="A kernel, as NAME or FAMILY/NAME."),
    ):
        command = option(command)
    return command


def filters(store: Store, given: dict[str, Any]) -> dict[str, Any]:
    """The filters of records that the options of a command name, checked."""
    device, problem = picked_device(store, given["device"]), checked_parameters(store, given["problem"])
    return {"kernel": checked_kernel(store, given["kernel"]), "device": device, "problem": problem}


def parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Problem parameters from ``NAME=VALUE``; a value is JSON, or else the text itself.

    Raises ``InputError`` for a text without a name or ``=``, and for a name with two values.
    """
    found: dict[str, Any] = {}
    for name, value in pairs(texts, "--problem"):
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def checked_kernel(store: Store, kernel: str | None) -> str | None:
    """``kernel`` (a name or ``FAMILY/NAME``), unchanged, after a check that it is known.

    Raises ``InputError`` if neither a family of this package nor a record in ``store`` has it. Records may be of other
    families and versions.
    """
    from mmsbgen import families

    def has(kernels: set[tuple[str, str]]) -> bool:
        return any(name == wanted and family in ("", of) for of, name in kernels)

    if kernel is None:
        return None
    family, _, wanted = kernel.rpartition("/")
    ours = {(of, name) for of in families.names() for name in families.family(of).kernels}
    if has(ours) or has(recorded := {(found.family, found.name) for found in store.kernels()}):
        return kernel
    there = [*sorted(name for _, name in ours), *sorted(f"{of}/{name}" for of, name in recorded - ours)]
    raise InputError(
        f"--kernel {kernel!r}: there is no such kernel, and no record of one in {store.location}"
        f"{(not family and did_you_mean(kernel, there)) or '; there are ' + ', '.join(there)}"
    )


def checked_parameters(store: Store, texts: Sequence[str]) -> dict[str, Any]:
    """Problem parameters, as :func:`parameters`, after a check of their names.

    Raises ``InputError`` also for a name that neither a family of this package nor a problem in ``store`` has.
    """
    from mmsbgen import families

    found = parameters(texts)
    declared = [parameter.name for of in families.names() for parameter in families.family(of).parameters]
    known = list(dict.fromkeys(declared))
    if set(found) <= set(known):
        return found
    known += sorted({name for problem in store.problems() for name in problem.params} - set(known))
    for name, value in found.items():
        if name not in known:
            raise InputError(
                f"--problem {name}={value}: there is no such parameter, and no record with it in {store.location}"
                f"{did_you_mean(name, known) or '; there are ' + ', '.join(known)}"
            )
    return found
