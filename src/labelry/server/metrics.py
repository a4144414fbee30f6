"""Metrics for Prometheus; with several workers they are sums over all workers."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# If it is set before Prometheus' client is imported, processes share their metrics in this folder.
SHARED = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of a server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self.requests = Counter(
            "labelry_requests", "Requests answered.", ("path", "status"), registry=own
        )
        self.seconds = Histogram(
            "labelry_request_seconds",
            "From the headers of a request to the end of its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=own,
        )
        self.model_seconds = Histogram(
            "labelry_model_seconds", "Calls of the model.", buckets=_SECONDS, registry=own
        )
        self.batch_rows = Histogram(
            "labelry_batch_rows", "Rows of a call of the model.", buckets=_ROWS, registry=own
        )
        self.waiting_rows = Gauge(
            "labelry_waiting_rows",
            "Rows that wait for the model.",
            registry=own,
            multiprocess_mode="livesum",
        )
        self.reloads = Counter(
            "labelry_model_reloads", "New models, by result.", ("result",), registry=own
        )
        for result in ("ok", "failed"):
            self.reloads.labels(result)  # shown from the start, as zero

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if SHARED not in os.environ:
            return generate_latest(self._registry)
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)
