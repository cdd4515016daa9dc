"""Prints the configuration that a run would use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.console import shown

if TYPE_CHECKING:
    from mmsbgen.db.store.tuning_store import Store
    from mmsbgen.kernels.family import KernelFamily


def would_use(
    store: Store, spec: str, found: KernelFamily, name: str, problem: dict[str, Any], *, to_stderr: bool
) -> dict[str, Any]:
    """Print the configuration that a run would use; returns the parts of the key that it looks up."""
    from mmsbgen.backends.discovery import discover, select_device
    from mmsbgen.db.records.nearness import parts
    from mmsbgen.db.selection.index import Index
    from mmsbgen.kernels.record_key import key_of
    from mmsbgen.kernels.runtime import look_up
    from mmsbgen.kernels.space import describe

    try:
        info = select_device(spec, *discover())
    except InputError as error:
        raise InputError(f"{error}\n--on takes a device of this machine; --device takes one that has records") from None
    asked, index = found.problem(**problem), Index(store)
    selection = look_up(index, info, found, name, asked)
    key = key_of(info, found.kernel(name), asked)
    click.echo(f"{name} on {info.name} ({info.platform}) would use: {describe(selection.config)}", err=to_stderr)
    click.echo(f"  tier {selection.tier}: {selection.reason}", err=to_stderr)
    sizes = {n: x for n, x in key.problem.params.items() if isinstance(x, int) and n not in problem}
    if sizes:
        told = ", ".join(f"{size}={value}" for size, value in sizes.items())
        click.echo(f"  {'other sizes' if problem else 'sizes'} as by default: {told}", err=to_stderr)
    for failure in store.quarantined(f"{key.kernel.family}/{name}"):
        if failure.key == key:
            click.echo(shown(f"  quarantined here: {describe(failure.config)} ({failure.reason})"), err=to_stderr)
    return parts(key)
