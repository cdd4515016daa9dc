"""The child process that does one job, started by :mod:`mmsbgen.jobs.worker.job_child`.

It does not write to the queue, and may die at any moment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.base.processes import parent_connection
from mmsbgen.jobs.worker.task import JobOutcome, JobReporter, StoppedError, Task

_WORK = {"detect": "mmsbgen.jobs.worker.detection_job", "tune": "mmsbgen.jobs.worker.tuning_job"}


def _done(task: Task, tells: JobReporter) -> JobOutcome:
    if task.kind == "device":
        from mmsbgen.backends import open_device
        from mmsbgen.kernels.record_key import device_record

        with open_device(task.device) as device:
            return JobOutcome(
                {"record": device_record(device.info), "hardware": device.hardware, "spec": device.info.spec}
            )
    if task.kind == "detect":
        from mmsbgen.base.libraries import import_lightly

        import_lightly()
    found: JobOutcome = importlib.import_module(_WORK[task.kind]).run(task, tells)
    return found


def serve(connection: Connection) -> None:
    """Receive one task and do it; the last message is ('done', outcome), ('stopped',) or ('error', text, retry)."""
    task: Task = connection.recv()
    try:
        answer: tuple[Any, ...] = ("done", _done(task, JobReporter(connection.send)))
    except (StoppedError, KeyboardInterrupt):
        answer = ("stopped",)
    except MmsbgenError as error:
        _print_traceback()
        # Errors of the user's input (exit code 2) would recur; a device or a database that failed may work next time.
        answer = ("error", str(error).replace(f"{task.folder}{os.sep}", ""), error.exit_code != 2)
    except MemoryError as error:
        answer = ("error", f"it does not fit into this machine's memory ({error})", False)
    except Exception as error:
        _print_traceback()
        answer = ("error", f"internal error, please report it: {type(error).__name__}: {error}", False)
    connection.send(answer)


def _print_traceback() -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep the answer from the worker
        traceback.print_exc()


def main() -> None:
    """Serve the connection to the parent."""
    connection = parent_connection()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    serve(connection)


if __name__ == "__main__":
    main()
