"""The program ``mmsbgen`` as forks of one process that has imported everything.

Imports take one or two seconds of processor time, which is most of what many commands take.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import mmsbgen

_PROGRAM = """#!{python} -ISB
import json, os, socket, sys
if sys.argv[1:2] in (["serve"], ["worker"]):
    os.execv({installed!r}, [{installed!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(said).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(said)
    status = server.recv(1)
sys.exit(status[0] if status else "mmsbgen was killed")
"""


class _Preloaded:
    """The process that has imported everything; it ends with this one."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mmsbgen-")
        self.address = os.path.join(self._folder.name, "socket")
        command = [sys.executable, __file__, self.address]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        atexit.register(self._close)

    def _close(self) -> None:
        self._server.communicate()
        self._folder.cleanup()

    def program(self) -> Path:
        """A folder with a program ``mmsbgen`` for shells; ``serve`` and ``worker``, which get signals, are no forks."""
        path = Path(self._folder.name) / "bin" / "mmsbgen"
        if not path.exists():
            path.parent.mkdir()
            installed = str(Path(sys.executable).with_name("mmsbgen"))
            path.write_text(_PROGRAM.format(python=sys.executable, installed=installed, address=self.address))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path.parent


@functools.cache
def preloaded() -> _Preloaded:
    """The one of this process."""
    return _Preloaded()


def _serve(address: str) -> None:
    """Answer until the standard input ends."""
    root = Path(mmsbgen.__file__).parent
    for path in sorted(root.rglob("cli/**/*.py")):
        __import__(".".join(path.relative_to(root.parent).with_suffix("").parts))
    for name in ("detection.detect", "db.store.tuning_store", "tuner.run.tune", "report.run.run_page", "algorithms"):
        __import__(f"mmsbgen.{name}")
    for name in ("mmsbgen.service.app", "mmsbgen.jobs.worker.supervisor", "uvicorn", "scipy.sparse.linalg"):
        __import__(name)
    for name in ("scipy.sparse.csgraph", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "psycopg"):
        __import__(name)
    # Not pyopencl: its library, loaded here, crashes in a fork that opens a device.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"ready\n")
        while listening in select.select([listening, 0], [], [])[0]:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            client, _ = listening.accept()
            with client:
                if os.fork() == 0:
                    listening.close()
                    _answer(client)


def _answer(client: socket.socket) -> None:
    """Do one command in this process, and end it."""
    length, streams, *_ = socket.recv_fds(client, 8, 3)
    said = b""
    while len(said) < int.from_bytes(length, "little"):
        said += client.recv(1 << 20)
    arguments, folder, environment = json.loads(said)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["mmsbgen", *arguments]
    # As an interpreter makes them that starts now.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    status = 1
    try:
        from mmsbgen.__main__ import main

        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        client.sendall(bytes([status & 255]))
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
