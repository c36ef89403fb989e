# SPDX-License-Identifier: Apache-2.0
"""
Samples as an OTLP request for metrics. Only with the key `otlp` is this module imported: protobuf takes 10 MiB.

Names are those of /metrics once a receiver has put ``_total`` after those of counters, as Prometheus does. Prometheus
also appends the unit to a name that lacks it, and ``_ratio`` to a gauge of the unit 1: so only the units are sent that
a name has already.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, Metric, NumberDataPoint
from prometheus_client.core import Metric as PrometheusMetric

from vllm_watch import __version__
from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.samples import (
    SERVERS_SERIES,
    AnySample,
    HistogramSample,
    PlainSample,
    for_each_server,
    gpu_samples,
    present_samples,
    total_samples,
)
from vllm_watch.daemon.state.snapshot import ServerSnapshot


_SCOPE = "vllm_watch"
_UNITS = (("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1"))
_NANOSECONDS = 10**9


class Exported(NamedTuple):
    """
    What /metrics shows at one moment.

    Args:
        servers: The servers.
        own: The daemon's samples about itself.
        process: Families about the daemon's process.
        at: The moment, in seconds since the epoch.
    """

    servers: Sequence[ServerSnapshot]
    own: Iterable[PlainSample]
    process: Iterable[PrometheusMetric]
    at: float


def otlp_request(
    exported: Exported, instance: str, daemon_start: float, failed: Callable[[str, Exception], None]
) -> bytes:
    """
    Return the body of a request.

    Args:
        exported: What to push.
        instance: What distinguishes this daemon from others.
        daemon_start: When the daemon began to count, in seconds since the epoch.
        failed: Is called with the name of a server whose snapshot cannot be exported, and the error.
    """
    writer = _RequestWriter(instance)

    def add(server: ServerSnapshot, other_gpus: Container[str]) -> None:
        started = server.start_time.value if server.start_time is not None else None
        parts: list[tuple[list[AnySample], float | None]] = [
            (list(total_samples(server)), started),
            (list(present_samples(server)), daemon_start),
            (list(gpu_samples(server, other_gpus)), None),
        ]
        for samples, start in parts:
            writer.add(samples, _When(server.at, start), server.labels)

    for_each_server(exported.servers, add, failed)
    now = _When(exported.at, daemon_start)
    writer.add(exported.own, now, {})
    writer.add_families(exported.process, now)
    return writer.body()


class _When(NamedTuple):
    """When samples were so, and since when their counters count, if that is known: in seconds since the epoch."""

    at: float
    start: float | None


class _RequestWriter:
    """Collects samples for one request; `instance` distinguishes this daemon from others."""

    def __init__(self, instance: str) -> None:
        self._request = ExportMetricsServiceRequest()
        resource = self._request.resource_metrics.add()
        about = {"service.name": "vllm-watch", "service.version": __version__, "service.instance.id": instance}
        resource.resource.attributes.extend(_attributes(about.items()))
        scope = resource.scope_metrics.add()
        scope.scope.name, scope.scope.version = _SCOPE, __version__
        self._metrics = scope.metrics
        self._by_name: dict[str, Metric] = {}

    def add(self, samples: Iterable[AnySample], when: _When, configured: Mapping[str, str]) -> None:
        """Add samples; those of a server have its configured labels besides those of their series."""
        for sample in samples:
            series = SERIES[sample.name]
            metric = self._metric(PREFIX + series.family, series.help)
            labels = list(zip(series.labels, sample.labels, strict=True))
            if sample.name in SERVERS_SERIES:
                labels += configured.items()
            if isinstance(sample, HistogramSample):
                _add_histogram(metric, sample, labels, when)
            else:
                _add_number(metric, series.type, sample.value, labels, when)

    def add_families(self, families: Iterable[PrometheusMetric], when: _When) -> None:
        """Add gauges and counters of prometheus_client's."""
        for family in families:
            metric = self._metric(family.name, family.documentation)
            for sample in family.samples:
                _add_number(metric, family.type, sample.value, sample.labels.items(), when)

    def body(self) -> bytes:
        """Return the request as it is sent."""
        body: bytes = self._request.SerializeToString()
        return body

    def _metric(self, name: str, text: str) -> Metric:
        metric = self._by_name.get(name)
        if metric is None:
            unit = next((unit for suffix, unit in _UNITS if name.endswith(suffix)), "")
            metric = self._by_name[name] = self._metrics.add(name=name, description=text, unit=unit)
        return metric


def partial_success(answer: bytes) -> tuple[int, str]:
    """Return how many values the answer to a request says were rejected, and its remark; of any other answer none."""
    response = ExportMetricsServiceResponse()
    try:
        response.ParseFromString(answer)
    except DecodeError:  # Some answer in JSON.
        return 0, ""
    return response.partial_success.rejected_data_points, response.partial_success.error_message


def _add_number(metric: Metric, kind: str, value: float, labels: Iterable[tuple[str, str]], when: _When) -> None:
    if kind == "counter":
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
        point: NumberDataPoint = metric.sum.data_points.add()
        point.start_time_unix_nano = _start(when)
    else:
        point = metric.gauge.data_points.add()
    point.time_unix_nano = _nanoseconds(when.at)
    point.as_double = value
    point.attributes.extend(_attributes(labels))


def _add_histogram(metric: Metric, sample: HistogramSample, labels: Iterable[tuple[str, str]], when: _When) -> None:
    """Add a histogram: OTLP has the count of each bucket, and Prometheus those of all up to it."""
    histogram = sample.histogram
    metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    point = metric.histogram.data_points.add()
    point.start_time_unix_nano, point.time_unix_nano = _start(when), _nanoseconds(when.at)
    counts = [int(count) for count in histogram.counts]
    point.explicit_bounds.extend(bound for bound in histogram.bounds if math.isfinite(bound))
    point.bucket_counts.extend(after - before for before, after in zip([0, *counts], counts, strict=False))
    point.count, point.sum = counts[-1], histogram.sum
    point.attributes.extend(_attributes(labels))


def _attributes(labels: Iterable[tuple[str, str]]) -> list[KeyValue]:
    """Return labels as attributes; an empty one is the same as none."""
    return [
        KeyValue(key=name, value=AnyValue(string_value=value.encode(errors="replace").decode()))
        for name, value in labels
        if value
    ]


def _start(when: _When) -> int:
    """Return when a counter was 0: 0 means that nobody knows. It is not after the value, whoever's clock is wrong."""
    return 0 if when.start is None else _nanoseconds(min(when.start, when.at))


def _nanoseconds(seconds: float) -> int:
    return max(int(seconds * _NANOSECONDS), 0)
