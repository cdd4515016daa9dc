"""The program ``mmsbgen`` for many commands: each is done in a fork of one process that has imported everything.

Imports take half a second of processor time or more, which is most of what many commands take.  What starts processes
that outlive it or listen for signals (``serve``, ``worker``) is started as users start it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
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


@contextlib.contextmanager
def preloaded(folder: Path) -> Iterator[Path]:
    """A folder that has such a program ``mmsbgen``, for the front of PATH; ``folder`` is empty."""
    address = folder / "socket"
    program = folder / "bin" / "mmsbgen"
    program.parent.mkdir()
    installed = str(Path(sys.executable).with_name("mmsbgen"))
    program.write_text(_PROGRAM.format(python=sys.executable, installed=installed, address=str(address)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield program.parent
        server.stdin.close()


def _serve(address: str) -> None:
    """Answer until the standard input ends."""
    for path in sorted(Path(mmsbgen.__file__).parent.rglob("cli/**/*.py")):
        __import__(".".join(path.relative_to(Path(mmsbgen.__file__).parents[1]).with_suffix("").parts))
    for name in ("detection.detect", "db.store.tuning_store", "tuner.run.tune", "report.run.run_page", "algorithms"):
        __import__(f"mmsbgen.{name}")
    for name in ("pyopencl", "scipy.sparse.csgraph", "scipy.sparse.linalg", "sqlalchemy.dialects.sqlite"):
        __import__(name)
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
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    said = b""
    while len(said) < int.from_bytes(length, "little"):
        said += client.recv(1 << 20)
    arguments, folder, environment = json.loads(said)
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
