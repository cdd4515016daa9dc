"""Runs migrations on the connection and in the transaction of :mod:`mmsbgen.db.store.migrate`."""

from __future__ import annotations

from alembic import context

from mmsbgen.db.store.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
