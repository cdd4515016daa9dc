"""What a service is told when it starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from mmsbgen.base.errors import InputError

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """What a client may ask for; sizes are bytes.  Raises ``InputError`` for a limit below 1."""

    upload: int = 64 * MIB
    """Of an upload as it is sent."""
    graph: int = 256 * MIB
    """Of a graph's edge list, unpacked."""
    records: int = 64 * MIB
    """Of an upload of records, unpacked."""
    body: int = 64 << 10
    """Of any other request."""
    head: int = 16 << 10
    """Of the request line and the headers together."""
    vertices: int = 2_000_000
    links: int = 20_000_000
    communities: int = 4096
    jobs: int = 20
    """Jobs that wait or run."""
    streams: int = 32
    """Followers of jobs at once."""
    connections: int = 256
    intake_seconds: float = 120.0
    """To check an upload."""
    intake_memory: int = 4096 * MIB
    """Address space of the process that checks uploads."""
    rate: str = "1000/second"
    """Requests of one client address."""
    write_rate: str = "120/minute"
    """Of these, the ones that change something."""
    costly_rate: str = "10/second"
    """Of these, the ones that render sources."""
    refused_rate: str = "30/minute"
    """Requests of one client address with a wrong token."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, str) and value < 1:
                raise InputError(f"the limit {name}={value}: it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Where a service listens, what it keeps where, and who may use it.

    ``hosts`` are names besides loopback's and the address it listens on by which clients may call it.
    """

    database: str | None = None
    """URL or path; None for ``MMSBGEN_DATABASE_URL`` or the user's own."""
    data: Path
    """Folder for the token and for uploads while they are checked."""
    token: str
    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    limits: RequestLimits = field(default_factory=RequestLimits)
    refresh_seconds: float = 1.0
    """How often the store is asked for what others added."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether ``host`` is an address or the name of this machine's loopback."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
