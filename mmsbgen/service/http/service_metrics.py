"""Prometheus metrics of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
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
        self.ready = Gauge("mmsbgen_ready", "1 while /ready is 200.", registry=self.registry)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a response by its route's template; all unknown paths share one series."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def jobs(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Register a metric of the jobs in each state; ``counts`` is called whenever metrics are read."""
        self.registry.register(_Jobs(counts))

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _Jobs:
    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        """The metric's name only: registration does not query the database."""
        return [GaugeMetricFamily("mmsbgen_jobs", "Jobs by state.", labels=("state",))]

    def collect(self) -> Iterable[Metric]:
        """The current number of jobs in each state."""
        family = GaugeMetricFamily("mmsbgen_jobs", "Jobs by state.", labels=("state",))
        for state, count in self._counts().items():
            family.add_metric([state], count)
        return [family]
