"""A PostgreSQL server whose tables lie on a small file system, and tuning runs that fill it.

    full_server.py FOLDER PROGRAMS

For a process that may mount, which is root in a mount name space of its own.  What the runs said and what the database
has after each lies in FOLDER.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path

import psycopg

from mmsbgen.db.store.tuning_store import open_store

#: The catalogs of a new database take 7 to 8 MB, which are in the table space too.
_SIZE = "24m"
#: What is left: tables and indexes grow by pages of 8 kB each, and the trials take 300 kB in all.
_LEFT = 245 << 10
_TUNE = Path(__file__).with_name("tuning_process.py")


def main(folder: Path, programs: Path) -> None:
    """Mount, serve, fill, make room."""
    user = pwd.getpwnam("postgres")
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(disk)], check=True)
    for path in (folder, disk):
        os.chown(path, user.pw_uid, user.pw_gid)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(name: str, *arguments: str) -> None:
        command = ["runuser", "-u", "postgres", "--", str(programs / name), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, check=True, timeout=60)

    call("initdb", "-U", "tester", "--auth=trust", "--encoding=UTF8", "--no-sync")
    options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off -c full_page_writes=off"
    call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        server = f"postgresql://tester@127.0.0.1:{port}"
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")  # type: ignore[arg-type]
            connection.execute("CREATE DATABASE tuning TABLESPACE small")
        url = f"{server}/tuning"
        with open_store(url):
            pass
        room = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_bsize - _LEFT))
        tuned(url, folder, "first")
        (disk / "filler").unlink()
        tuned(url, folder, "second")
    finally:
        call("pg_ctl", "-m", "immediate", "stop")


def tuned(url: str, folder: Path, name: str) -> None:
    """Tune, and list what is stored then."""
    done = subprocess.run([sys.executable, str(_TUNE), url], capture_output=True, text=True, timeout=200)
    (folder / f"{name}.code").write_text(f"{done.returncode}\n")
    (folder / f"{name}.err").write_text(done.stderr)
    command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "db", "--database", url, "trials"]
    with (folder / f"{name}.json").open("w") as file:
        subprocess.run([*command, "--limit", "1000", "--json"], stdout=file, check=True, timeout=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
