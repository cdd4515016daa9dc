"""Adds the tables of jobs, their events and their files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of jobs."""
    op.create_table(
        "jobs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("uuid", sa.String(length=32), nullable=False),
        sa.Column("request_key", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("inputs", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("losses", sa.BigInteger(), nullable=False),
        sa.Column("max_losses", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.String(length=27), nullable=True),
        sa.Column("cancel_at", sa.String(length=27), nullable=True),
        sa.Column("checkpoint", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("outputs", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("started_at", sa.String(length=27), nullable=True),
        sa.Column("finished_at", sa.String(length=27), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("uuid", name=op.f("uq_jobs_uuid")),
        sa.UniqueConstraint("request_key", name=op.f("uq_jobs_request_key")),
    )
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"])
    op.create_table(
        "job_events",
        sa.Column("id", _ID, nullable=False),
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_job_events_job_id_id"), "job_events", ["job_id", "id"])
    op.create_table(
        "job_files",
        sa.Column("id", _ID, nullable=False),
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("area", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("part", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_files_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_files")),
        sa.UniqueConstraint("job_id", "area", "name", "part", name=op.f("uq_job_files_job_id_area_name_part")),
    )
