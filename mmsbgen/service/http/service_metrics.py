"""Prometheus metrics of a service."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from starlette.types import Scope

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ServiceMetrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        names = ("route", "method", "status")
        self._requests = Counter("mmsbgen_requests", "Requests answered.", names, registry=self.registry)
        self._seconds = Histogram(
            "mmsbgen_request_seconds", "Seconds to answer.", ("route",), buckets=_BUCKETS, registry=self.registry
        )
        self.uploads = Counter("mmsbgen_uploads", "Uploads.", ("what", "outcome"), registry=self.registry)
        self.streams = Gauge("mmsbgen_streams", "Followers of jobs.", registry=self.registry)
        self.jobs = Gauge("mmsbgen_jobs", "Jobs by state.", ("state",), registry=self.registry)
        self.ready = Gauge("mmsbgen_ready", "1 while /ready is 200.", registry=self.registry)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a response by its route's template; all unknown paths share one series."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, jobs: Mapping[str, int]) -> bytes:
        """All metrics in Prometheus' text format, with the number of jobs in each state if known."""
        if not jobs:  # clearing always would take rows from a scrape at the same time
            self.jobs.clear()
        for state, count in jobs.items():
            self.jobs.labels(state).set(count)
        return generate_latest(self.registry)
