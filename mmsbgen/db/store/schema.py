"""Tables of the tuning database.

Parts of keys (device, toolchain, kernel, problem) are unique by ``key``; runs by ``uuid``; roofs, trials and
quarantined configurations by ``uid``.  The records in :mod:`mmsbgen.db.records.tuning_records` compute ``key`` and
``uid`` from their content.  The tables of jobs belong to :mod:`mmsbgen.jobs` and are not exported.  A change of the
schema needs a migration, whose revision is the new ``REVISION``.  The views ``all_trials`` and ``best_trials``, for
people who ask by SQL, are in the migration that makes them.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from mmsbgen.db.records.canonical_json import canonical_json

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


class Base(DeclarativeBase):
    """Base of all tables; names all constraints, so that migrations can alter them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class DeviceRow(Base):
    """A device as one driver reports it."""

    __tablename__ = "devices"

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    key: Mapped[str] = mapped_column(String(32), unique=True)
    backend: Mapped[str] = mapped_column(Text)
    platform: Mapped[str] = mapped_column(Text)
    vendor: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    architecture: Mapped[str] = mapped_column(Text)
    driver: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)
    compute_units: Mapped[int] = mapped_column(BigInteger)
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    extra: Mapped[Any] = mapped_column(CanonicalJson)


class ToolchainRow(Base):
    """A compiler with its options."""

    __tablename__ = "toolchains"

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    key: Mapped[str] = mapped_column(String(32), unique=True)
    compiler: Mapped[str] = mapped_column(Text)
    version: Mapped[str] = mapped_column(Text)
    options: Mapped[str] = mapped_column(Text)


class KernelRow(Base):
    """A kernel with one template digest."""

    __tablename__ = "kernels"
    __table_args__ = (Index(None, "family", "name"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    key: Mapped[str] = mapped_column(String(32), unique=True)
    family: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    template_digest: Mapped[str] = mapped_column(Text)


class ProblemRow(Base):
    """Sizes and types of a problem."""

    __tablename__ = "problems"

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    key: Mapped[str] = mapped_column(String(32), unique=True)
    family: Mapped[str] = mapped_column(Text)
    params: Mapped[Any] = mapped_column(CanonicalJson)


class RunRow(Base):
    """A tuning run."""

    __tablename__ = "tuning_runs"

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    uuid: Mapped[str] = mapped_column(String(32), unique=True)
    started: Mapped[str] = mapped_column(String(27))
    finished: Mapped[str | None] = mapped_column(String(27))
    strategy: Mapped[str] = mapped_column(Text)
    budget: Mapped[Any] = mapped_column(CanonicalJson)
    seed: Mapped[int] = mapped_column(BigInteger)
    host: Mapped[str] = mapped_column(Text)
    versions: Mapped[Any] = mapped_column(CanonicalJson)
    status: Mapped[str] = mapped_column(Text)
    extra: Mapped[Any] = mapped_column(CanonicalJson)


class RoofRow(Base):
    """A memory rate measured on a device in a run."""

    __tablename__ = "device_roofs"

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("tuning_runs.id"), index=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"), index=True)
    kind: Mapped[str] = mapped_column(Text)
    row_bytes: Mapped[int | None] = mapped_column(BigInteger)
    gbps: Mapped[float] = mapped_column(Double)
    measured_at: Mapped[str] = mapped_column(String(27))


class TrialRow(Base):
    """One trial of a configuration; the computed figures (median, spread, rate, fraction) are stored for queries."""

    __tablename__ = "trials"
    __table_args__ = (
        Index(None, "kernel_id", "device_id", "problem_id"),
        Index(None, "run_id", "config_digest"),
        Index(None, "created_at"),
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("tuning_runs.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    kernel_id: Mapped[int] = mapped_column(ForeignKey("kernels.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    config: Mapped[Any] = mapped_column(CanonicalJson)
    config_digest: Mapped[str] = mapped_column(String(32))
    status: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    times: Mapped[Any] = mapped_column(CanonicalJson)
    median_s: Mapped[float | None] = mapped_column(Double)
    spread_s: Mapped[float | None] = mapped_column(Double)
    bytes_moved: Mapped[int | None] = mapped_column(BigInteger)
    gbps: Mapped[float | None] = mapped_column(Double)
    roof_gbps: Mapped[float | None] = mapped_column(Double)
    roof_fraction: Mapped[float | None] = mapped_column(Double)
    registers: Mapped[int | None] = mapped_column(BigInteger)
    spill_bytes: Mapped[int | None] = mapped_column(BigInteger)
    shared_bytes: Mapped[int | None] = mapped_column(BigInteger)
    compile_s: Mapped[float | None] = mapped_column(Double)
    energy_j: Mapped[float | None] = mapped_column(Double)
    round: Mapped[int] = mapped_column(BigInteger)
    extra: Mapped[Any] = mapped_column(CanonicalJson)
    created_at: Mapped[str] = mapped_column(String(27))


class QuarantineRow(Base):
    """A configuration that was selected for a key and did not compile or launch."""

    __tablename__ = "quarantine"
    __table_args__ = (Index(None, "kernel_id", "device_id", "problem_id"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    kernel_id: Mapped[int] = mapped_column(ForeignKey("kernels.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    config: Mapped[Any] = mapped_column(CanonicalJson)
    recorded: Mapped[Any] = mapped_column(CanonicalJson)
    config_digest: Mapped[str] = mapped_column(String(32))
    recorded_digest: Mapped[str] = mapped_column(String(32))
    status: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    extra: Mapped[Any] = mapped_column(CanonicalJson)
    created_at: Mapped[str] = mapped_column(String(27))


class JobRow(Base):
    """A job: queued, running under a worker's lease, or ended."""

    __tablename__ = "jobs"
    __table_args__ = (Index(None, "state", "id"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    uuid: Mapped[str] = mapped_column(String(32), unique=True)
    request_key: Mapped[str | None] = mapped_column(Text, unique=True)
    kind: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text)
    payload: Mapped[Any] = mapped_column(CanonicalJson)
    inputs: Mapped[Any] = mapped_column(CanonicalJson)
    device: Mapped[str | None] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(BigInteger)
    losses: Mapped[int] = mapped_column(BigInteger)
    max_losses: Mapped[int] = mapped_column(BigInteger)
    worker: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[str | None] = mapped_column(String(27))
    cancel_at: Mapped[str | None] = mapped_column(String(27))
    checkpoint: Mapped[Any] = mapped_column(CanonicalJson, nullable=True)
    progress: Mapped[Any] = mapped_column(CanonicalJson, nullable=True)
    result: Mapped[Any] = mapped_column(CanonicalJson, nullable=True)
    outputs: Mapped[Any] = mapped_column(CanonicalJson)
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[str] = mapped_column(String(27))
    started_at: Mapped[str | None] = mapped_column(String(27))
    finished_at: Mapped[str | None] = mapped_column(String(27))


class JobEventRow(Base):
    """An event of a job: a change of state, progress or a message.  Ids increase and are never reused."""

    __tablename__ = "job_events"
    __table_args__ = (Index(None, "job_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    attempt: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(Text)
    data: Mapped[Any] = mapped_column(CanonicalJson)
    created_at: Mapped[str] = mapped_column(String(27))


class JobFileRow(Base):
    """A part of a job's file, on a server only; ``area`` is 'input', 'checkpoint' or 'output'."""

    __tablename__ = "job_files"
    __table_args__ = (UniqueConstraint("job_id", "area", "name", "part"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    area: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    part: Mapped[int] = mapped_column(BigInteger)
    data: Mapped[bytes] = mapped_column(LargeBinary)
