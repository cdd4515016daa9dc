"""Jobs in the tuning database: a queue whose jobs are leased to workers, and the files that travel with them.

It knows states, leases and bytes; what a job's payload means is known by who runs it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Queue"]


def __getattr__(name: str) -> Any:
    # The child process that does a job imports this package without need of a database.
    if name != "Queue":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mmsbgen.jobs.queue import Queue

    return Queue
