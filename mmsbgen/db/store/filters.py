"""Filters for queries of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from sqlalchemy import Connection, Select, select

from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.store import record_rows
from mmsbgen.db.store.schema import DeviceRow, KernelRow, ProblemRow, RunRow, ToolchainRow, TrialRow


def of_key(query: Select[Any], key: Key) -> Select[Any]:
    """Restricts a query of trials to exactly this key."""
    for column, table, part in (
        (TrialRow.device_id, DeviceRow, key.device),
        (TrialRow.toolchain_id, ToolchainRow, key.toolchain),
        (TrialRow.kernel_id, KernelRow, key.kernel),
        (TrialRow.problem_id, ProblemRow, key.problem),
    ):
        query = query.where(column == select(table.id).where(table.key == part.key).scalar_subquery())
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


def of_parts(query: Select[Any], connection: Connection, filters: TrialFilters) -> Select[Any]:
    """Restricts a query of trials."""
    if (kernel := filters.get("kernel")) is not None:
        family, _, name = kernel.rpartition("/")
        kernels = select(KernelRow.id).where(KernelRow.name == name)
        query = query.where(TrialRow.kernel_id.in_(kernels.where(KernelRow.family == family) if family else kernels))
    if (device := filters.get("device")) is not None:
        devices = [i for i, d in record_rows.read_parts(connection, DeviceRow) if d.matches(device)]
        query = query.where(TrialRow.device_id.in_(devices))
    if problem := filters.get("problem"):
        problems = [i for i, p in record_rows.read_parts(connection, ProblemRow) if problem.items() <= p.params.items()]
        query = query.where(TrialRow.problem_id.in_(problems))
    if (status := filters.get("status")) is not None:
        query = query.where(TrialRow.status != "ok" if status == "failed" else TrialRow.status == status)
    if (run := filters.get("run")) is not None:
        query = query.where(TrialRow.run_id.in_(record_rows.ids_of(connection, RunRow, "uuid", [run]).values()))
    return query
