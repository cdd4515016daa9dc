"""Services that tests share, over each kind of database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.service.running import Service, filled, serving

_FREE = ("--rate", "100000/second", "--write-rate", "100000/second")


@pytest.fixture(scope="session")
def sqlite_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    database = str(folder / "tuning.sqlite3")
    filled(database)
    with serving(database, folder / "data", *_FREE) as service:
        yield service


@pytest.fixture(scope="session")
def postgres_service(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    import psycopg

    name = f"s{uuid.uuid4().hex}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    database = f"{postgres_server}/{name}"
    filled(database)
    folder = tmp_path_factory.mktemp("service")
    with serving(database, folder, *_FREE) as service:
        yield service


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def service(request: pytest.FixtureRequest) -> Service:
    """A service that has records, over each kind of database; shared by many tests."""
    found: Service = request.getfixturevalue(f"{request.param}_service")
    return found


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened
