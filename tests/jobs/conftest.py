"""A queue on each kind of database, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.jobs.queue import Queue


@dataclass
class Clock:
    """Tells a time that goes on when a test says so."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 31, 12, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def queue(store: Store, clock: Clock) -> Queue:
    return Queue(store, clock=clock)
