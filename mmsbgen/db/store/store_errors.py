"""Converts errors of database drivers into errors that name the database and the remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError

from mmsbgen.base.errors import InputError, MmsbgenError


class StoreError(MmsbgenError):
    """A database operation failed: locked too long, disk full, read-only, server unreachable."""


class UnusableError(StoreError):
    """The database cannot be opened or written, or is damaged."""

    exit_code = 2


_SQLITE_CAUSES: tuple[tuple[str, type[MmsbgenError], str], ...] = (
    ("is not a database", InputError, "is not an SQLite database; name another file"),
    ("malformed", UnusableError, "is damaged; restore it from an export or a copy"),
    ("Could not decode to UTF-8", UnusableError, "is damaged; restore it from an export or a copy"),
    ("readonly database", UnusableError, "cannot be written; check the rights of the file and of its folder"),
    ("unable to open database", UnusableError, "cannot be opened; check the rights of the file and of its folder"),
    ("disk is full", StoreError, "cannot grow because the disk is full; free some space and repeat the command"),
    ("disk I/O error", StoreError, "met an input/output error of the disk; check its space and health"),
    ("locked", StoreError, "stayed locked by another process; repeat the command when that one is done"),
)


_SERVER_CAUSES = {
    "53100": "cannot grow because its disk is full; free some space there and repeat the command",
    "42501": "may not be used so by this user; ask its owner for the right",
}
"""Remedies by SQLSTATE."""


def damaged(location: str, reason: str) -> UnusableError:
    """The error for a database whose content cannot be read."""
    return UnusableError(f"the database {location} is damaged; restore it from an export or a copy ({reason})")


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed when retried."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if (state := getattr(error.orig, "sqlstate", None)) is not None:
        return state in ("40001", "40P01", "55P03")
    return isinstance(error, OperationalError) and "locked" in str(error.orig)


@contextmanager
def explained(location: str) -> Iterator[None]:
    """Convert a driver's error into ``InputError`` or :class:`StoreError` that names ``location``."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        text = " ".join(str(cause).split())
        for sign, kind, remedy in _SQLITE_CAUSES:
            if sign in text:
                raise kind(f"the database {location} {remedy} ({text})") from error
        if remedy := _SERVER_CAUSES.get(getattr(cause, "sqlstate", None) or "", ""):
            raise StoreError(f"the database {location} {remedy} ({text})") from error
        if isinstance(error, OperationalError | InterfaceError | InternalError | sqlite3.OperationalError):
            raise StoreError(f"the database {location} failed: {text}") from error
        raise
