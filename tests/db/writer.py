"""Many processes that open one database at the same moment: ``writer.py URL WRITERS COUNT``.

The configurations of each overlap with its neighbour's.  Each prints how many trials were new; the exit status is the
number of those that failed.  They are forked once everything is imported, and begin together.
"""

from __future__ import annotations

import os
import sys
import traceback

import alembic.command  # noqa: F401
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    QuarantineRecord,
    RoofRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.store.tuning_store import open_store


def write(url: str, number: int, count: int) -> None:
    device = DeviceRecord(
        backend="opencl",
        platform="p",
        vendor="v",
        name="n",
        architecture="a",
        driver="1",
        kind="cpu",
        compute_units=2,
        memory_bytes=1,
    )
    run = RunRecord(uuid="1" * 32, strategy="shared")
    added = 0
    with open_store(url) as store:
        store.begin_run(run)
        store.add_roofs([RoofRecord(run=run.uuid, device=device, kind="copy", gbps=1.0 + number)])
        for n in range(number * count, (number + 2) * count):
            problem = ProblemRecord("f", {"size": n % 5})
            key = Key(device, ToolchainRecord("c", "1"), KernelRecord("f", "k", "t"), problem)
            added += store.add_trial(TrialRecord(run=run.uuid, key=key, config={"n": n}, status="ok", times=(1.0, 2.0)))
        config = {"failed": number}
        store.quarantine(QuarantineRecord(key=key, config=config, recorded=config, status="launch_error", message=""))
    os.write(1, f"{added}\n".encode())


def main(url: str, writers: int, count: int) -> int:
    ready, go = os.pipe()
    children = []
    for number in range(writers):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(go)
                os.read(ready, 1)  # returns when the parent closes its end
                write(url, number, count)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    os.close(go)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
