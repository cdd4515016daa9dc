"""The records that a command of ``mmsbgen db`` reads: its filters, what marks them, and why there may be none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from mmsbgen.base.errors import InputError, did_you_mean
from mmsbgen.base.id_text import moment_text
from mmsbgen.cli.shared.command_options import option
from mmsbgen.cli.shared.common import pairs
from mmsbgen.cli.shared.logs import tell

if TYPE_CHECKING:
    from mmsbgen.cli.db.printed_rows import Marks
    from mmsbgen.db.exchange.jsonl import Bundle
    from mmsbgen.db.store.tuning_store import Store

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(command: F) -> F:
    """Add ``--kernel``, ``--device`` and ``--problem``."""
    for add in (
        option("-p", "--problem", multiple=True, metavar="NAME=VALUE", help="A problem parameter; repeatable."),
        option("--device", metavar="TEXT", help="Part of a recorded device's name or platform, or one here."),
        option("--kernel", metavar="NAME", help="A kernel, as NAME or FAMILY/NAME."),
    ):
        command = add(command)
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


def picked_device(store: Store, text: str | None, *, shipped: bool = False) -> str | None:
    """The filter of records for ``--device``.

    A part of a recorded device's name is returned unchanged; a device of this machine, such as ``opencl:0``, as its
    label. If no device is recorded, ``text`` is returned unchanged.

    Args:
        store: The database.
        text: The option's value, or None.
        shipped: Whether devices of the records that come with the package count as recorded.

    Raises:
        InputError: If no recorded device matches, and none or several of this machine do. The message lists all.
    """
    if text is None:
        return None
    known = store.devices()
    if shipped:
        from mmsbgen.db.selection.index import shipped_groups

        known += {group.key.device.key: group.key.device for of in shipped_groups().values() for group in of}.values()
    number = re.fullmatch(r"([a-z]+:)?[0-9]+", text.strip().lower())
    if not known or (not number and any(device.matches(text) for device in known)):
        return text
    from mmsbgen.backends.discovery import discover, matching
    from mmsbgen.kernels.record_key import device_record

    here = discover()[0]
    found = {device_record(info).label: info.spec for info in matching(text, here)}
    if len(found) == 1:
        return next(iter(found))
    lines = [*dict.fromkeys(f"  {device.label}" for device in known)]
    lines += [f"  {info.spec}  {info.name} ({info.platform}), of this machine" for info in here]
    what = f"may be several devices: {', '.join(found.values())}" if found else "is no device of the records or here"
    raise InputError("\n".join([f"--device {text!r} {what}; there are:", *lines]))


def picked_run(store: Store, text: str | None) -> str | None:
    """The uuid of the tuning run whose uuid is ``text`` or starts with it.

    Raises ``InputError`` if none or several match; the message lists the newest runs.
    """
    if text is None:
        return None
    from mmsbgen.db.store.paging import run_named

    try:
        return run_named(store, text).uuid
    except InputError as error:
        newest = [f"  {run.uuid}  {moment_text(run.started)}  {run.status}" for run in store.runs()[:5]]
        told = ["; the newest are (mmsbgen db runs has all):", *newest] if newest else ["; there are none"]
        raise InputError(f"--run: {error}" + "\n".join(told)) from None


def current_best(bundle: Bundle, most: int) -> Bundle:
    """The best records of each problem, without those of kernels that have changed since.

    Raises ``InputError`` if none are left.
    """
    from mmsbgen.db.exchange import jsonl
    from mmsbgen.tuner.run.changed_keys import of_program

    current = [trial for trial in bundle.trials if not of_program(trial)]
    found = jsonl.best(replace(bundle, trials=current), most)
    if not found.trials:
        raise InputError("no record was made with the kernels of this version: tune, then export")
    return found


def marks_of(store: Store) -> Marks:
    """Marks of quarantined trials, and of trials that are stale on this machine with this version."""
    from mmsbgen.cli.db.printed_rows import Marks
    from mmsbgen.tuner.run.changed_keys import Present

    return Marks(store.quarantined(), Present().differences)


def none(store: Store, otherwise: str = "") -> str:
    """Why a query has no rows: ``otherwise`` where there are records, empty if :func:`reading` told that none are."""
    if store.missing:
        return ""
    if not store.trials(limit=1):
        return f"{store.location} has no records yet: mmsbgen tune makes some."
    return otherwise or f"No record of {store.location} matches."


def reading(ctx: click.Context) -> Store:
    """Open the database read-only; print a note on standard error if there is none.

    Raises ``InputError`` if there is none where the command line says.
    """
    from mmsbgen.db.store.tuning_store import open_store

    store = open_store(ctx.obj, read_only=True)
    group = ctx.parent
    if store.missing and group is not None and group.get_parameter_source("database") is ParameterSource.COMMANDLINE:
        raise InputError(
            f"there is no tuning database at {store.location}: name another with --database, or leave it out"
        )
    if store.missing:
        tell(f"There is no tuning database at {store.location} yet: mmsbgen tune makes one.")
    return store
