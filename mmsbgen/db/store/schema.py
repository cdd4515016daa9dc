"""Tables of the tuning database.

Parts of keys (device, toolchain, kernel, problem) are unique by ``key``; runs by ``uuid``; roofs, trials and
quarantined configurations by ``uid``.  The records in :mod:`mmsbgen.db.records` declare columns by their fields and
compute ``key`` and ``uid`` from their content.  The tables of jobs belong to :mod:`mmsbgen.jobs` and are not exported.
A change of the schema needs a migration, whose revision is the new ``REVISION``.  The views ``all_trials`` and
``best_trials``, for people who ask by SQL, are in the migration that makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from mmsbgen.db.records.canonical_json import canonical_json
from mmsbgen.db.records.job_records import Job, JobEvent
from mmsbgen.db.records.record_checks import kinds_of
from mmsbgen.db.records.tuning_records import (
    TRIAL_FIGURES,
    DeviceRecord,
    KernelRecord,
    ProblemRecord,
    QuarantineRecord,
    RoofRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)

REVISION = "0005"
"""Schema revision that this version reads and writes."""
VERSION_TABLE = "mmsbgen_schema"
"""The table with the revision of a database; its presence identifies a tuning database."""

_Id = BigInteger().with_variant(Integer, "sqlite")


class CanonicalJson(TypeDecorator[Any]):
    """A column of JSON as canonical text, which preserves digests and floats in every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return canonical text; raises ``ValueError`` for NaN or infinity."""
        return None if value is None else canonical_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value of the text."""
        return None if value is None else json.loads(value)


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""All tables; the names of constraints let migrations alter them."""
_KINDS = {str: Text, int: BigInteger, float: Double, bytes: LargeBinary}
_DIGESTS = ("key", "uid", "uuid", "config_digest", "recorded_digest")
_TIMES = ("started", "finished", "measured_at", "created_at", "started_at", "finished_at", "lease_until", "cancel_at")
_LENGTHS = dict.fromkeys(_DIGESTS, 32) | dict.fromkeys(_TIMES, 27)
_UNIQUE = ("key", "uid", "uuid", "request_key")


def _columns(kinds: Mapping[str, tuple[Any, ...]], *leave_out: str) -> list[Column[Any]]:
    """A column for each name by its types; texts of known lengths have these, and what is composite is JSON."""
    found = []
    for name in [name for name in kinds if name not in leave_out]:
        kind, *other = kinds[name]
        of = String(_LENGTHS[name]) if name in _LENGTHS else _KINDS.get(kind, CanonicalJson)()
        found.append(Column(name, of, nullable=bool(other), unique=name in _UNIQUE or None))
    return found


def _references(tables: Mapping[str, Table], *, index: bool = False) -> list[Column[Any]]:
    """A column ``NAME_id`` for each table, with the id of one of its rows."""
    return [Column(f"{name}_id", ForeignKey(of.c.id), nullable=False, index=index) for name, of in tables.items()]


def _table(name: str, doc: str, *parts: Any, **more: Any) -> Table:
    return Table(name, METADATA, Column("id", _Id, primary_key=True), *parts, info={"doc": doc}, **more)


def _part(name: str, doc: str, record: type[Any], *more: Any) -> Table:
    """The table of a part of keys, which is unique by its digest."""
    return _table(name, doc, *_columns({"key": (str,), **kinds_of(record)}), *more)  # type: ignore[arg-type]


DEVICES = _part("devices", "A device as one driver reports it.", DeviceRecord)
TOOLCHAINS = _part("toolchains", "A compiler with its options.", ToolchainRecord)
KERNELS = _part("kernels", "A kernel with one template digest.", KernelRecord, Index(None, "family", "name"))
PROBLEMS = _part("problems", "Sizes and types of a problem.", ProblemRecord)
PARTS = {"device": DEVICES, "toolchain": TOOLCHAINS, "kernel": KERNELS, "problem": PROBLEMS}
"""The tables of the parts of a :class:`mmsbgen.db.records.tuning_records.Key`, by its fields."""
RUNS = _table("tuning_runs", "A tuning run.", *_columns(kinds_of(RunRecord)))
ROOFS = _table(
    "device_roofs",
    "A memory rate measured on a device in a run.",
    *_columns({"uid": (str,)}),
    *_references({"run": RUNS, "device": DEVICES}, index=True),
    *_columns(kinds_of(RoofRecord), "run", "device"),
)
TRIALS = _table(
    "trials",
    "One trial of a configuration; the computed figures (median, spread, rate, fraction) are stored for queries.",
    *_columns({"uid": (str,)}),
    *_references({"run": RUNS, **PARTS}),
    *_columns(kinds_of(TrialRecord), "run", "key"),
    *_columns({"config_digest": (str,)} | dict.fromkeys(TRIAL_FIGURES, (float, None))),
    Index(None, "kernel_id", "device_id", "problem_id"),
    Index(None, "run_id", "config_digest"),
    Index(None, "created_at"),
)
QUARANTINE = _table(
    "quarantine",
    "A configuration that was selected for a key and did not compile or launch.",
    *_columns({"uid": (str,)}),
    *_references(PARTS),
    *_columns(kinds_of(QuarantineRecord), "key"),
    *_columns(dict.fromkeys(("config_digest", "recorded_digest"), (str,))),
    Index(None, "kernel_id", "device_id", "problem_id"),
)
JOBS = _table(
    "jobs",
    "A job: queued, running under a worker's lease, or ended.",
    *_columns({"uuid": (str,), **kinds_of(Job)}, "id"),
    Index(None, "state", "id"),
)
JOB_EVENTS = _table(
    "job_events",
    "An event of a job: a change of state, progress or a message.  Ids increase and are never reused.",
    *_references({"job": JOBS}),
    *_columns(kinds_of(JobEvent), "id", "job"),
    Index(None, "job_id", "id"),
    sqlite_autoincrement=True,
)
JOB_FILES = _table(
    "job_files",
    "A part of a job's file, on a server only; ``area`` is 'input', 'checkpoint' or 'output'.",
    *_references({"job": JOBS}),
    *_columns({"area": (str,), "name": (str,), "part": (int,), "data": (bytes,)}),
    UniqueConstraint("job_id", "area", "name", "part"),
)
