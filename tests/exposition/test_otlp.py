# SPDX-License-Identifier: Apache-2.0
"""What is pushed over OTLP is what /metrics shows at the same moment."""

from __future__ import annotations

import math
import subprocess
import sys

from functools import cache

import pytest

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.exposition import exported
from tests.support.gpus import gpu, uuid
from tests.support.recordings import snapshots
from tests.support.waiting import SECONDS

from vllm_watch.daemon.exposition.otlp import Exported, otlp_request, partial_success
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.state.gpu_report import ServerGpu


AT, DAEMON_START = 2000.0, 1500.0


OWN = [
    PlainSample("build_info", ("1.0", "3.11"), 1, AT),
    PlainSample("otlp_exports_total", ("ok",), 3, AT),
    PlainSample("otlp_exports_total", ("refused",), 2, AT),
    PlainSample("otlp_export_duration_seconds", (), 0.25, AT),
]
"""What the daemon says about itself."""


@cache
def shown(name, second):
    """Return the servers at a second of a recording; the first has labels of its own."""
    found = next(snapshot for moment, snapshot in snapshots(name) if moment >= second)
    return found._replace(labels={"rack": "r1"}), found._replace(name="other")


def pushed(servers, *, process=()):
    """Return the decoded request about some servers."""
    failures = []
    body = otlp_request(
        Exported(servers, OWN, process, AT),
        "host:9468",
        DAEMON_START,
        lambda *failed: failures.append(failed),
    )
    assert failures == []
    return ExportMetricsServiceRequest.FromString(body)


def metrics_of(request):
    """Return the metrics of a request."""
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return scope.metrics


def attributes_of(point):
    """Return a point's labels."""
    return {each.key: each.value.string_value for each in point.attributes}


def as_prometheus_writes(metric):
    """Yield each sample of a metric as a receiver writes it: name, labels, value."""
    if metric.WhichOneof("data") == "histogram":
        for point in metric.histogram.data_points:
            labels, total = attributes_of(point), 0
            for bound, count in zip([*point.explicit_bounds, math.inf], point.bucket_counts, strict=True):
                total += count
                yield f"{metric.name}_bucket", labels | {"le": "+Inf" if math.isinf(bound) else repr(bound)}, total
            yield f"{metric.name}_count", labels, point.count
            yield f"{metric.name}_sum", labels, point.sum
        return
    is_sum = metric.WhichOneof("data") == "sum"
    for point in metric.sum.data_points if is_sum else metric.gauge.data_points:
        yield f"{metric.name}_total" if is_sum else metric.name, attributes_of(point), point.as_double


def by_series(samples):
    """Return values by series; an empty label is none."""
    return {
        (name, frozenset((label, text) for label, text in labels.items() if text)): value
        for name, labels, value in samples
    }


@pytest.mark.parametrize(("name", "second"), [("dp1", 90), ("stall", 130)])
def test_page_and_push_are_equal(name, second):
    """Every series of the page is pushed under its name with its labels and value, and no other."""
    servers = shown(name, second)
    page = exported(*servers, own=OWN).decode()
    on_page = by_series((s.name, s.labels, s.value) for family in parse_text(page) for s in family.samples)
    found = by_series(each for metric in metrics_of(pushed(servers)) for each in as_prometheus_writes(metric))

    assert len(on_page) > 500
    assert found == on_page


def test_units_add_nothing_to_names():
    """A unit is sent only where the name has it already, so that Prometheus appends nothing."""
    units = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}
    sent = {metric.name: metric.unit for metric in metrics_of(pushed(shown("dp1", 90))) if metric.unit}

    assert {"s", "1"} <= set(sent.values())
    assert all(name.endswith(units[unit]) for name, unit in sent.items())


def test_when_counters_began():
    """A server's counts begin with the server, the daemon's with it; of those of GPUs nobody knows it."""
    known, unknown = shown("dp1", 90)
    assert known.start_time is not None
    unknown = unknown._replace(
        start_time=None, gpus=(ServerGpu(uuid(0), "pid", is_shared=False, memory=None, reading=gpu(0)),)
    )
    starts = {
        (metric.name, attributes_of(point).get("server")): point.start_time_unix_nano / 1e9
        for metric in metrics_of(pushed((known, unknown)))
        for point in (*metric.sum.data_points, *metric.histogram.data_points)
    }

    for name in ("vllm_watch_generation_tokens", "vllm_watch_time_to_first_token_seconds"):
        assert starts[name, "dp1"] == pytest.approx(known.start_time.value)
        assert starts[name, "other"] == 0
    for name in ("vllm_watch_gpu_energy_joules", "vllm_watch_gpu_ecc_errors", "vllm_watch_gpu_nvlink_bytes"):
        assert starts[name, None] == 0
    assert starts["vllm_watch_log_lines", "dp1"] == DAEMON_START
    assert starts["vllm_watch_otlp_exports", None] == DAEMON_START


def test_the_process_is_pushed_too():
    """Families of the daemon's process are as on the page."""
    family = CounterMetricFamily("process_cpu_seconds", "Seconds.", value=7.0)
    found = {metric.name: metric for metric in metrics_of(pushed((), process=[family]))}

    assert list(as_prometheus_writes(found["process_cpu_seconds"])) == [("process_cpu_seconds_total", {}, 7.0)]


def test_a_server_that_fails_hides_no_other():
    """A server that cannot be exported is reported, and the others are pushed."""
    good, bad = shown("dp1", 90)
    failures = []
    body = otlp_request(
        Exported((bad._replace(engines=None), good), [], [], AT), "x", 1.0, lambda *f: failures.append(f)
    )

    assert [name for name, _ in failures] == ["other"]
    points = [p for m in metrics_of(ExportMetricsServiceRequest.FromString(body)) for p in m.gauge.data_points]
    assert {attributes_of(point)["server"] for point in points} == {"dp1"}


def test_what_an_answer_rejects():
    """The number of rejected values and the remark are read of an answer; one that is not protobuf says nothing."""
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 3
    answer.partial_success.error_message = "too old"

    assert partial_success(answer.SerializeToString()) == (3, "too old")
    assert [partial_success(other) for other in (b"", b"{}", b"\xff" * 9)] == [(0, "")] * 3


def test_nothing_is_imported_without_the_key():
    """The daemon's modules load neither protobuf nor OpenTelemetry."""
    code = (
        "import sys, vllm_watch.daemon.service.supervisor, vllm_watch.cli.commands.check\n"
        "print([name for name in sys.modules if name.split('.')[0] in {'google', 'opentelemetry'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS)

    assert done.stdout.strip() == "[]"
