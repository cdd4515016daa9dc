"""``mmsbgen serve``: the tuning database, kernels and jobs over HTTP."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.cli.shared.command_options import NamedPath, option
from mmsbgen.cli.shared.configuration import shared_option
from mmsbgen.cli.shared.declared_flags import declared_flags
from mmsbgen.cli.shared.logs import log_options
from mmsbgen.service.http.service_settings import RequestLimits

log = logging.getLogger("mmsbgen.service")


@click.command()
@option("--host", default="127.0.0.1", help="Address; any but the loopback's needs a token.")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes a free one.")
@option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Another name; by it reads need the token.")
@shared_option("database", "Tuning database; else MMSBGEN_DATABASE_URL or the user's own.", metavar="URL")
@option("--data", type=NamedPath(file_okay=False), help="Folder of the service's own files.")
@option("--token-file", type=NamedPath(), help="File with the token; else MMSBGEN_TOKEN.")
@option("--workers", type=click.IntRange(0), default=1, help="Job workers beside it.")
@option("--worker-device", "devices", multiple=True, metavar="SPEC", help="Device of a worker; may be repeated.")
@declared_flags(RequestLimits)
@log_options
def serve(
    host: str,
    port: int,
    hosts: tuple[str, ...],
    database: str | None,
    data: Path | None,
    token_file: Path | None,
    workers: int,
    devices: tuple[str, ...],
    **given: Any,
) -> None:
    """Serve the tuning database, the kernels and jobs over HTTP, with a page for browsers.

    It listens on the loopback interface; any other --host needs a token from --token-file or MMSBGEN_TOKEN. Requests
    need the token if they change something, come by a name of --allow-host, or come through a proxy. If no token is
    given, one is made and stored in the data folder. Jobs are done by the service's own workers and by every 'mmsbgen
    worker' on the same database. Ctrl-C ends the service; running jobs are returned to the queue and resume when it
    is started again.
    """
    from mmsbgen.service.http.service_settings import ServiceSettings, is_loopback
    from mmsbgen.service.http.tokens import VARIABLE, given_token, kept_token, own_folder

    token = given_token(token_file, os.environ)
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host} lets other machines in, which needs a token that you choose: give --token-file FILE or set "
            f"{VARIABLE} (openssl rand -hex 32 makes one), or leave --host out to serve this machine alone"
        )
    try:
        from limits import parse

        from mmsbgen.service.server import listening
        from mmsbgen.service.server import serve as run
    except ImportError as error:
        raise MissingDependencyError(
            f"the service needs {error.name}, which is not installed: pip install 'mmsbgen[serve]'"
        ) from error
    for name in ("rate", "write_rate"):
        try:
            parse(given[name])
        except ValueError:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} {given[name]!r}: write it as 100/second, 20/minute or 500/hour") from None
    limits = RequestLimits(**given)
    with listening(host, port) as opened:  # first, as what fails here leaves no file
        folder = own_folder(data or _folder())
        place: Path | None = None
        if token is None:
            token, place, _ = kept_token(folder)
        settings = ServiceSettings(database=database, data=folder, token=token, host=host, hosts=hosts, limits=limits)
        from mmsbgen.db.store.tuning_store import open_store

        with open_store(database) as store:
            where = store.place
        if where.path is None and where.url is None:
            raise InputError(
                "a database in memory would not be that of the processes that take uploads and do jobs: give a file or "
                "a server with --database"
            )
        if where.path is not None and where.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            log.warning(
                "other users may read the database %s, which gets the graphs that are uploaded: chmod 600 %s",
                *(where.path, where.path),
            )
        with _alone(folder):
            address = f"[{host}]" if ":" in host else host
            port = opened.getsockname()[1]
            click.echo(f"mmsbgen serves http://{address}:{port}/ from the database {where}", err=True)
            if place is not None:
                click.echo(f"The token is in {place}", err=True)
                if sys.stderr.isatty():  # a log must not get it
                    click.echo(f"Open this to be signed in: http://{address}:{port}/#token={token}", err=True)
            if not is_loopback(host):
                click.echo(
                    "Slow clients can take all connections unless a proxy is before it: see 'Serve behind nginx' in "
                    "the documentation",
                    err=True,
                )
            run(settings, opened, workers, devices)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the data folder, because a starting service deletes the uploads left in it."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "service.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"another service uses the folder {folder}: name another by --data") from None
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be written: {error.strerror or error}; give --data") from error
    try:
        yield
    finally:
        lock.release()


def _folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("mmsbgen") / "service"
