"""The first schema: devices, toolchains, kernels, problems, tuning runs, roofs and trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "devices",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("vendor", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("compute_units", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
        sa.UniqueConstraint("key", name=op.f("uq_devices_key")),
    )
    op.create_table(
        "kernels",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("template_digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernels")),
        sa.UniqueConstraint("key", name=op.f("uq_kernels_key")),
    )
    op.create_index(op.f("ix_kernels_family_name"), "kernels", ["family", "name"])
    op.create_table(
        "problems",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problems")),
        sa.UniqueConstraint("key", name=op.f("uq_problems_key")),
    )
    op.create_table(
        "toolchains",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("compiler", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_toolchains")),
        sa.UniqueConstraint("key", name=op.f("uq_toolchains_key")),
    )
    op.create_table(
        "tuning_runs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("uuid", sa.String(length=32), nullable=False),
        sa.Column("started", sa.String(length=27), nullable=False),
        sa.Column("finished", sa.String(length=27), nullable=True),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning_runs")),
        sa.UniqueConstraint("uuid", name=op.f("uq_tuning_runs_uuid")),
    )
    op.create_table(
        "device_roofs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("device_id", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("row_bytes", sa.BigInteger(), nullable=True),
        sa.Column("gbps", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name=op.f("fk_device_roofs_device_id")),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name=op.f("fk_device_roofs_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_roofs")),
        sa.UniqueConstraint("uid", name=op.f("uq_device_roofs_uid")),
    )
    op.create_index(op.f("ix_device_roofs_device_id"), "device_roofs", ["device_id"])
    op.create_index(op.f("ix_device_roofs_run_id"), "device_roofs", ["run_id"])
    op.create_table(
        "trials",
        sa.Column("id", _ID, nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("device_id", _ID, nullable=False),
        sa.Column("toolchain_id", _ID, nullable=False),
        sa.Column("kernel_id", _ID, nullable=False),
        sa.Column("problem_id", _ID, nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_digest", sa.String(length=32), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("times", sa.Text(), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("spread_s", sa.Double(), nullable=True),
        sa.Column("bytes_moved", sa.BigInteger(), nullable=True),
        sa.Column("gbps", sa.Double(), nullable=True),
        sa.Column("roof_gbps", sa.Double(), nullable=True),
        sa.Column("roof_fraction", sa.Double(), nullable=True),
        sa.Column("registers", sa.BigInteger(), nullable=True),
        sa.Column("spill_bytes", sa.BigInteger(), nullable=True),
        sa.Column("shared_bytes", sa.BigInteger(), nullable=True),
        sa.Column("compile_s", sa.Double(), nullable=True),
        sa.Column("energy_j", sa.Double(), nullable=True),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name=op.f("fk_trials_device_id")),
        sa.ForeignKeyConstraint(["kernel_id"], ["kernels.id"], name=op.f("fk_trials_kernel_id")),
        sa.ForeignKeyConstraint(["problem_id"], ["problems.id"], name=op.f("fk_trials_problem_id")),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name=op.f("fk_trials_run_id")),
        sa.ForeignKeyConstraint(["toolchain_id"], ["toolchains.id"], name=op.f("fk_trials_toolchain_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("uid", name=op.f("uq_trials_uid")),
    )
    op.create_index(op.f("ix_trials_created_at"), "trials", ["created_at"])
    op.create_index(
        op.f("ix_trials_kernel_id_device_id_problem_id"), "trials", ["kernel_id", "device_id", "problem_id"]
    )
    op.create_index(op.f("ix_trials_run_id_config_digest"), "trials", ["run_id", "config_digest"])
