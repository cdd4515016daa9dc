"""Settings and request limits of a service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Limits of requests; sizes are bytes."""

    upload: int = 64 * MIB
    """Size of an upload as it is sent."""
    graph: int = 256 * MIB
    """Size of a graph's edge list, unpacked."""
    records: int = 64 * MIB
    """Size of an upload of records, unpacked."""
    body: int = 64 << 10
    """Size of the body of any other request."""
    head: int = 16 << 10
    """Size of the request line and the headers together."""
    vertices: int = 2_000_000
    links: int = 20_000_000
    communities: int = 4096
    jobs: int = 20
    """Jobs that wait or run."""
    stored: int = 4096 * MIB
    """Size of the files of all jobs; above it none is taken."""
    hours: float = 24.0
    """Time of a job on the service's own workers."""
    streams: int = 32
    """Event streams of jobs at once."""
    connections: int = 256
    intake_seconds: float = 120.0
    """Time to check an upload."""
    intake_memory: int = 4096 * MIB
    """Address space of the process that checks uploads, bytes."""
    rate: str = "1000/second"
    """Requests of one client address."""
    write_rate: str = "120/minute"
    """Requests of one client address that change something."""
    costly_rate: str = "10/second"
    """Requests of one client address that render sources."""
    refused_rate: str = "30/minute"
    """Requests of one client address with a wrong token."""


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
