"""Settings and request limits of a service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from mmsbgen.base.declared_options import check_options, option

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Limits of requests: options of ``mmsbgen serve``, of which some are in MiB, and others, whose sizes are bytes."""

    max_upload: int = option(64, "As sent.", "everybody", least=1, metavar="MIB")
    max_graph: int = option(256, "Unpacked.", "everybody", least=1, metavar="MIB")
    max_vertices: int = option(2_000_000, "Of a graph.", "everybody", least=2)
    max_links: int = option(20_000_000, "Of a graph.", "everybody", least=1)
    max_communities: int = option(4096, "Of a detection.", "everybody", least=2)
    max_jobs: int = option(20, "Jobs that wait or run.", "everybody", least=1)
    max_stored: int = option(4096, "Files of all jobs.", "everybody", least=1, metavar="MIB")
    max_hours: float = option(
        24.0, "Of an attempt at a job on the service's own workers; then the job fails.", "everybody", above=0
    )
    rate: str = option("1000/second", "Most requests of one client.", "everybody")
    write_rate: str = option("120/minute", "Of these, those that change something.", "everybody")
    records: int = 64 * MIB
    """Size of an upload of records, unpacked."""
    body: int = 64 << 10
    """Size of the body of any other request."""
    head: int = 16 << 10
    """Size of the request line and the headers together."""
    streams: int = 32
    """Event streams of jobs at once."""
    connections: int = 256
    intake_seconds: float = 120.0
    """Time to check an upload."""
    intake_memory: int = 4096 * MIB
    """Address space of the process that checks uploads, bytes."""
    costly_rate: str = "10/second"
    """Requests of one client address that render sources."""
    refused_rate: str = "30/minute"
    """Requests of one client address with a wrong token."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Address, storage and access of a service.

    ``hosts`` are further host names that requests may use, besides those of loopback and ``host``.
    """

    database: str | None = None
    """URL or path; None for ``MMSBGEN_DATABASE_URL`` or the user's own."""
    data: Path
    """Folder for the token and for uploads while they are checked."""
    token: str
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    limits: RequestLimits = field(default_factory=RequestLimits)

    @property
    def loopback(self) -> bool:
        """Whether the service is reachable from this machine only."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address or name."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
