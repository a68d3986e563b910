"""What Prometheus reads: decisions by route, latency, LC rate, fallbacks, refusals, the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from prerouter.core.records import Route
from prerouter.serving.wire import FallbackReason, Routed

# From a tree on metadata (a millisecond) to six steps written on a CPU (a minute).
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The figures of one service, in a registry of its own."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._decisions = Counter(
            "prerouter_decisions",
            "Decisions answered, fallbacks among them",
            ["route"],
            registry=self._registry,
        )
        self._fallbacks = Counter(
            "prerouter_fallbacks",
            "Decisions that are the fallback route because the router gave none",
            ["reason"],
            registry=self._registry,
        )
        self._refused = Counter(
            "prerouter_refused_requests", "Requests refused", ["status"], registry=self._registry
        )
        self._seconds = Histogram(
            "prerouter_request_seconds",
            "From the arrival of a request to its answer",
            buckets=_SECONDS,
            registry=self._registry,
        )
        for route in Route:
            self._decisions.labels(route.value)
        for reason in FallbackReason:
            self._fallbacks.labels(reason.value)
        self._answered = self._lc = 0
        rate = Gauge(
            "prerouter_lc_rate", "Share of LC among all decisions answered", registry=self._registry
        )
        rate.set_function(self._lc_rate)
        length = Gauge(
            "prerouter_queue_length", "Cases that wait for a batch", registry=self._registry
        )
        length.set_function(waiting)

    def answered(self, decisions: Sequence[Routed], seconds: float) -> None:
        self._seconds.observe(seconds)
        for decision in decisions:
            self._decisions.labels(decision.route.value).inc()
            self._answered += 1
            self._lc += decision.route is Route.LC
            if decision.fallback_reason:
                self._fallbacks.labels(decision.fallback_reason.value).inc()

    def refused(self, status: int) -> None:
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _lc_rate(self) -> float:
        """NaN, Prometheus' own word for a figure that there isn't, before the first decision."""
        return self._lc / self._answered if self._answered else float("nan")
