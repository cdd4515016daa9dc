"""One of several processes that open the same database at once: ``writer.py URL NUMBER COUNT``.

Its configurations overlap with its neighbour's.  Prints how many trials were new.
"""

from __future__ import annotations

import sys

from mmsbgen.db.records import DeviceRecord, KernelRecord, Key, ProblemRecord, RunRecord, ToolchainRecord, TrialRecord
from mmsbgen.db.store import open_store


def main(url: str, number: int, count: int) -> None:
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
        for n in range(number * count, (number + 2) * count):
            problem = ProblemRecord("f", {"size": n % 5})
            key = Key(device, ToolchainRecord("c", "1"), KernelRecord("f", "k", "t"), problem)
            added += store.add_trial(TrialRecord(run=run.uuid, key=key, config={"n": n}, status="ok", times=(1.0, 2.0)))
    print(added)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
