"""Makes the tables of a database, under a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy import Connection, inspect, text

from mmsbgen.base.errors import InputError
from mmsbgen.db.store.connect import Database
from mmsbgen.db.store.schema import METADATA, REVISION, VERSION_TABLE
from mmsbgen.db.store.store_errors import StoreError, explained

LOCK_TIMEOUT_S = 120.0
_ADVISORY_LOCK = 0x6D6D73_6267656E


def revision(database: Database) -> str | None:
    """The schema revision of ``database``, or None if it is empty.

    Raises ``InputError`` if it has tables of another program, or the schema of another version.
    """
    return database.read(lambda connection: _revision(connection, str(database.location)))


def migrate(database: Database) -> None:
    """Create all tables; several processes may call this at once.

    Raises ``InputError`` as :func:`revision` does, ``StoreError`` when the database cannot be written.
    """
    if revision(database) == REVISION:
        return
    with _file_lock(database.location.path):
        if database.location.path is not None:
            with explained(str(database.location)), database.engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                driver.execute("PRAGMA journal_mode = WAL")
        database.write(lambda connection: _upgrade(connection, str(database.location)))


def _revision(connection: Connection, location: str) -> str | None:
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        if found is None or found == REVISION:
            return found
        remedy = "upgrade mmsbgen, or name another database"
        if found < REVISION:
            remedy = (
                "name another one, and import there what the mmsbgen that made this one writes by mmsbgen db export"
            )
        raise InputError(
            f"the database {location} has schema {found}, this version of mmsbgen needs {REVISION}: {remedy}"
        )
    foreign = tables if connection.dialect.name == "sqlite" else tables & set(METADATA.tables)
    if foreign:
        raise InputError(
            f"the database {location} holds tables of another program ({', '.join(sorted(foreign)[:3])}); "
            "name another database"
        )
    return None


def _upgrade(connection: Connection, location: str) -> None:
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    if _revision(connection, location) == REVISION:
        return
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parents[1] / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _file_lock(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    try:
        with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
            yield
    except Timeout as error:
        raise StoreError(f"another process has been preparing the database {path} for {LOCK_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise InputError(f"the folder of the database {path} cannot be written: {error}") from error
