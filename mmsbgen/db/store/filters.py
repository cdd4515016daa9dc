"""Filters for queries of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from sqlalchemy import Connection, Select, Table, select

from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.store import record_rows
from mmsbgen.db.store.schema import DEVICES, PARTS, PROBLEMS, RUNS, TRIALS


def of_key(query: Select[Any], key: Key) -> Select[Any]:
    """Restricts a query of trials to exactly this key."""
    for name, table in PARTS.items():
        wanted = select(table.c.id).where(table.c.key == getattr(key, name).key).scalar_subquery()
        query = query.where(TRIALS.c[f"{name}_id"] == wanted)
    return query


class TrialFilters(TypedDict, total=False):
    """Filters of trials, all of which must hold; None is none.

    ``kernel`` is a name or ``family/name``.  ``device`` is a part of backend, name, platform, vendor or architecture,
    ignoring case.  ``problem`` has values of some parameters.  ``failed`` is any ``status`` but ``ok``.  ``run`` is a
    uuid.
    """

    kernel: str | None
    device: str | None
    problem: Mapping[str, Any] | None
    status: str | None
    run: str | None


def of_parts(query: Select[Any], connection: Connection, filters: TrialFilters, table: Table = TRIALS) -> Select[Any]:
    """Restricts a query of trials, or of what is in quarantine, which has neither status nor run."""
    if (kernel := filters.get("kernel")) is not None:
        query = query.where(table.c.kernel_id.in_(record_rows.kernels_named(kernel)))
    if (device := filters.get("device")) is not None:
        devices = [i for i, d in record_rows.read_parts(connection, DEVICES) if d.matches(device)]
        query = query.where(table.c.device_id.in_(devices))
    if problem := filters.get("problem"):
        problems = [i for i, p in record_rows.read_parts(connection, PROBLEMS) if problem.items() <= p.params.items()]
        query = query.where(table.c.problem_id.in_(problems))
    if (status := filters.get("status")) is not None:
        query = query.where(TRIALS.c.status != "ok" if status == "failed" else TRIALS.c.status == status)
    if (run := filters.get("run")) is not None:
        query = query.where(TRIALS.c.run_id.in_(record_rows.ids_of(connection, RUNS, "uuid", [run]).values()))
    return query
