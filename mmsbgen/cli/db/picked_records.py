"""The records that a command of ``mmsbgen db`` reads, what marks them, and why there may be none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mmsbgen.base.errors import InputError
from mmsbgen.cli.shared.logs import is_quiet

if TYPE_CHECKING:
    from mmsbgen.cli.db.printed_rows import Marks
    from mmsbgen.db.exchange.jsonl import Bundle
    from mmsbgen.db.store.tuning_store import Store


def current_best(bundle: Bundle, most: int) -> Bundle:
    """The best records of each problem, without those of kernels that have changed since.

    Raises ``InputError`` if none are left.
    """
    from mmsbgen.db.exchange import formats
    from mmsbgen.tuner.run.changed_keys import Present

    present = Present()
    current = [trial for trial in bundle.trials if not present.program_changed(trial)]
    found = formats.best(replace(bundle, trials=current), most)
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
    if store.missing and not is_quiet(ctx):
        click.echo(f"There is no tuning database at {store.location} yet: mmsbgen tune makes one.", err=True)
    return store
