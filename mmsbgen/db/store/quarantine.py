"""Active failures: those of configurations without a later successful trial."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, func, select

from mmsbgen.db.records.tuning_records import QuarantineRecord
from mmsbgen.db.store import record_rows
from mmsbgen.db.store.schema import KernelRow, QuarantineRow, TrialRow


def active(
    connection: Connection, parts: record_rows.Parts, *, family: str | None = None, kernel: str | None = None
) -> list[QuarantineRecord]:
    """The active failures, newest first; at most one for each key and configuration.

    A later trial of the same key with status 'ok' ends a failure, for the configuration as used or as recorded.
    """
    wanted = select(KernelRow.id)
    if family is not None:
        wanted = wanted.where(KernelRow.family == family)
    if kernel is not None:
        wanted = wanted.where(KernelRow.name == kernel)
    query = record_rows.select_quarantined().where(QuarantineRow.kernel_id.in_(wanted))
    query = query.order_by(QuarantineRow.created_at.desc(), QuarantineRow.id.desc())
    failures = [record_rows.quarantine_record(row, parts) for row in connection.execute(query)]
    if not failures:
        return []
    columns = (*record_rows.KEY_COLUMNS, TrialRow.config_digest)
    later = (
        select(*columns, func.max(TrialRow.created_at))
        .where(TrialRow.status == "ok", TrialRow.kernel_id.in_(select(QuarantineRow.kernel_id)))
        .group_by(*columns)
    )
    succeeded: dict[tuple[str, str], str] = {}
    for row in connection.execute(later):
        values: tuple[Any, ...] = tuple(row)
        device, toolchain, kernel_id, problem, digest, moment = values
        succeeded[parts.key(device, toolchain, kernel_id, problem).key, digest] = moment
    return unlifted(failures, succeeded)


def unlifted(failures: Iterable[QuarantineRecord], succeeded: dict[tuple[str, str], str]) -> list[QuarantineRecord]:
    """The first active one of ``failures`` for each key and configuration.

    ``succeeded`` has the time of the last trial with status 'ok', by key and digest of the configuration.
    """
    left: dict[tuple[str, str], QuarantineRecord] = {}
    for failure in failures:
        key = failure.key.key
        moments = (succeeded.get((key, digest), "") for digest in (failure.config_digest, failure.recorded_digest))
        if max(moments) <= failure.created_at:
            left.setdefault((key, failure.config_digest), failure)
    return list(left.values())
