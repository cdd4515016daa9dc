"""Adds the table of quarantined configurations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table of quarantined configurations."""
    op.create_table(
        "quarantine",
        sa.Column("id", _ID, nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("device_id", _ID, nullable=False),
        sa.Column("toolchain_id", _ID, nullable=False),
        sa.Column("kernel_id", _ID, nullable=False),
        sa.Column("problem_id", _ID, nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("recorded", sa.Text(), nullable=False),
        sa.Column("config_digest", sa.String(length=32), nullable=False),
        sa.Column("recorded_digest", sa.String(length=32), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name=op.f("fk_quarantine_device_id")),
        sa.ForeignKeyConstraint(["kernel_id"], ["kernels.id"], name=op.f("fk_quarantine_kernel_id")),
        sa.ForeignKeyConstraint(["problem_id"], ["problems.id"], name=op.f("fk_quarantine_problem_id")),
        sa.ForeignKeyConstraint(["toolchain_id"], ["toolchains.id"], name=op.f("fk_quarantine_toolchain_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantine")),
        sa.UniqueConstraint("uid", name=op.f("uq_quarantine_uid")),
    )
    op.create_index(
        op.f("ix_quarantine_kernel_id_device_id_problem_id"), "quarantine", ["kernel_id", "device_id", "problem_id"]
    )
