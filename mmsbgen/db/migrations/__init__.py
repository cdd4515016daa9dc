"""Alembic migrations of the tuning database, run by :mod:`mmsbgen.db.store.migrate`."""
