"""Locates and opens the database; runs transactions and retries them after conflicts."""

from __future__ import annotations

import contextlib
import math
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.base.progress import stage
from mmsbgen.db.store.default_location import URL_VARIABLE, default_location
from mmsbgen.db.store.store_errors import damaged, explained, is_transient

BUSY_TIMEOUT_S = 20.0
"""Timeout of one attempt to get SQLite's lock."""
GIVE_UP_S = 60.0
"""Time after which a transaction is not tried again."""
QUICK_CHECK_BYTES = 16 << 20
"""Size of a database file up to which commands that only read check its pages."""
_CHOOSE = f"choose another place with --database or {URL_VARIABLE}"

T = TypeVar("T")


@dataclass(frozen=True)
class Location:
    """The location of a database: a file, a server, or memory (``path`` and ``url`` None)."""

    path: Path | None = None
    url: URL | None = None

    def __str__(self) -> str:
        """The location for messages, without a password."""
        if self.path is not None:
            return str(self.path)
        if self.url is None:
            return "in memory"
        secret = [name for name in self.url.query if name.endswith("password")]
        return self.url.difference_update_query(secret).render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Whether the file exists; true for servers and memory.  Raises ``InputError`` if it cannot be checked."""
        try:
            return self.path is None or self.path.exists()
        except OSError as error:
            raise InputError(f"the database {self} cannot be used: {error.strerror}; {_CHOOSE}") from error


def locate(url: str | Path | None = None) -> Location:
    """The location from ``url``, else from the environment, else in the user's data folder.

    Raises ``InputError`` for an invalid URL or an unsupported kind of database.
    """
    if url is None:
        url = default_location()
    if isinstance(url, Path) or "://" not in url:
        return Location(path=Path(url).expanduser().absolute())
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(
            "the database URL cannot be read; write it as sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    match parsed.get_backend_name():
        case "sqlite" if parsed.database in (None, "", ":memory:"):
            return Location()
        case "sqlite":
            return Location(path=Path(str(parsed.database)).expanduser().absolute())
        case "postgresql":
            driver = "postgresql+psycopg" if parsed.drivername == "postgresql" else parsed.drivername
            return Location(url=parsed.set(drivername=driver))
        case "postgres":
            return Location(url=parsed.set(drivername="postgresql+psycopg"))
        case other:
            raise InputError(f"databases of kind {other!r} are not supported: use SQLite or PostgreSQL")


class Database:
    """Connections to one database by its ``engine``, or what makes that at the first use, and transactions on them."""

    def __init__(self, location: Location, engine: Engine | Callable[[], Engine]) -> None:
        self.location = location
        self._engine = engine
        self._opening = threading.Lock()

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine; its first use may raise the errors of opening."""
        with self._opening:
            if not isinstance(self._engine, Engine):
                self._engine = self._engine()
            return self._engine

    def read(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work`` in a read transaction with a consistent view; raises ``StoreError``.

        What ``work`` raises on content that no version writes is a ``StoreError`` too.
        """
        engine = self.engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        try:
            return self._attempt(engine, work)
        except (ValueError, LookupError, TypeError) as error:
            raise damaged(str(self.location), f"a record cannot be read: {error!r:.200}") from error

    def write(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work`` in a write transaction, retried after conflicts; raises ``StoreError``."""
        return self._attempt(self.engine.execution_options(write=True), work)

    def _attempt(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        deadline, longest = time.monotonic() + GIVE_UP_S, 0.02
        with explained(str(self.location)):
            while True:
                try:
                    with engine.begin() as connection:
                        return work(connection)
                except Exception as error:
                    if not is_transient(error) or time.monotonic() >= deadline:
                        raise
                time.sleep(random.uniform(0.0, longest))
                longest = min(1.0, 2 * longest)

    def close(self) -> None:
        """Close all connections, if there are any."""
        if isinstance(self._engine, Engine):
            self._engine.dispose()


def connect(location: Location, *, read_only: bool = False) -> Database:
    """Open a database; checks that its file can be used or created, or that its server answers.

    Raises ``InputError`` for an unusable location, ``MissingDependencyError`` without a driver.
    """
    if location.url is not None:
        engine = _server_engine(location.url, read_only=read_only)
    elif location.path is None:
        engine = _sqlite_engine(lambda: sqlite3.connect(":memory:", check_same_thread=False), StaticPool)
    else:
        engine = _file_engine(location.path, read_only=read_only)
    return Database(location, engine)


def check_pages(database: Database, *, at_most: float = math.inf) -> None:
    """Raise ``StoreError`` if pages of an SQLite file of up to ``at_most`` bytes are damaged.

    Takes 7 ms a megabyte.
    """
    path = database.location.path
    if path is None or not path.exists() or path.stat().st_size > at_most:
        return
    with stage(f"checking {path.name}"):
        found = database.read(lambda connection: connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all())
    if found != ["ok"]:
        raise damaged(str(path), " ".join(str(found[0]).split()))


def _file_engine(path: Path, *, read_only: bool) -> Engine:
    _check_file(path, read_only=read_only)
    mode = "ro" if read_only else "rwc"
    if read_only and not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        mode = "ro&immutable=1"  # SQLite cannot make the -shm file that reading a WAL database needs
    if not read_only and not path.exists():
        with contextlib.suppress(OSError):  # SQLite will tell
            path.touch(mode=0o600)  # it may hold graphs of users
    uri = f"file:{quote(str(path))}?mode={mode}"
    return _sqlite_engine(
        lambda: sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False), QueuePool
    )


def _check_file(path: Path, *, read_only: bool) -> None:
    """Raise ``InputError`` for a path that is no usable SQLite file; create its folder unless ``read_only``."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a database file; {_CHOOSE}")
        if path.exists():
            with path.open("rb") as file:
                start = file.read(16)
            if start not in (b"", b"SQLite format 3\0"):
                raise InputError(f"{path} is not an SQLite database; {_CHOOSE}")
        elif not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the database {path} cannot be used: {error.strerror or error}; {_CHOOSE}") from error
    if not read_only and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"the database {path} cannot be written; {_CHOOSE}")


def _sqlite_engine(creator: Callable[[], sqlite3.Connection], pool: type[QueuePool] | type[StaticPool]) -> Engine:
    engine = create_engine("sqlite://", creator=creator, poolclass=pool)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A write transaction takes the lock at once, as upgrading a read lock may fail without waiting.
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    _own_process(engine)
    return engine


def _server_engine(url: URL, *, read_only: bool) -> Engine:
    arguments: dict[str, Any] = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
    try:
        engine = create_engine(
            url,
            connect_args=arguments,
            pool_pre_ping=True,
            hide_parameters=True,
            execution_options={"postgresql_readonly": True} if read_only else {},
        )
    except (ImportError, NoSuchModuleError) as error:
        raise MissingDependencyError(
            f"no driver for {url.drivername}: install it with pip install 'mmsbgen[postgres]' ({error})"
        ) from error
    _own_process(engine)
    try:
        engine.connect().close()
    except SQLAlchemyError as error:
        engine.dispose()
        text = " ".join(str(getattr(error, "orig", error)).split())
        if url.password:
            text = text.replace(str(url.password), "***")
        place = f"{url.host or 'the local socket'}:{url.port or 5432}"
        raise InputError(f"cannot connect to the database server {place}, database {url.database!r}: {text}") from error
    return engine


def _own_process(engine: Engine) -> None:
    """Make the pool discard connections that were opened by the parent of a forked process."""

    @event.listens_for(engine, "connect")
    def note(_connection: object, entry: ConnectionPoolEntry) -> None:
        entry.info["pid"] = os.getpid()

    @event.listens_for(engine, "checkout")
    def check(_connection: object, entry: Any, proxy: Any) -> None:
        if entry.info["pid"] != os.getpid():
            entry.dbapi_connection = proxy.dbapi_connection = None
            raise DisconnectionError("this connection belongs to the parent process")
