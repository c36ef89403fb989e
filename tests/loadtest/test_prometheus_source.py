# SPDX-License-Identifier: Apache-2.0
"""A history read from a Prometheus over HTTP, real ones and stand-ins: the same as from the recording, or why not."""

from __future__ import annotations

import json
import re
import urllib.request

from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.http_servers import StandIn, answer, free_port
from tests.support.monitoring import filled_prometheus, get_json, get_text, process, series_of
from tests.support.recordings import RECORDINGS, recording
from tests.support.waiting import SECONDS, until

from vllm_watch.analysis.loadtest import prometheus_source
from vllm_watch.analysis.loadtest.energy_and_cost import used_energy
from vllm_watch.analysis.loadtest.prometheus_source import COUNTERS, MAX_POINTS, PrometheusQuery, read_prometheus
from vllm_watch.analysis.loadtest.replayed_history import read_recording
from vllm_watch.analysis.loadtest.report_sources import read_report
from vllm_watch.analysis.loadtest.source_names import parse_source
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.config.server_config import TlsConfig
from vllm_watch.daemon.prometheus.api import PrometheusTarget
from vllm_watch.daemon.support.errors import PrometheusError


RANGE = TimeRange(1000.0, 1600.0)
NAME = "dp1"
"""A recording of a server with two engines, with drafts, and with scrapes that fail at its start."""


WATTS = {"GPU-1": 500, "GPU-2": 100}

# Stand-ins.


def matrix(*series):
    """Return an answer to a range query: for each series its labels and values."""
    result = [{"metric": labels, "values": [[at, str(value)] for at, value in values]} for labels, values in series]
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
    return answer(body, Content_Type="application/json")


def asked(head):
    """Return the path and the parameters of a request."""
    target = urlsplit(head.split()[1])
    return target.path, {name: values[0] for name, values in parse_qs(target.query).items()}


def target_of(server, **options):
    """Return a stand-in as a Prometheus."""
    return PrometheusTarget(server.url.removesuffix("/metrics"), **options)


def sentence(server, name="a", **options):
    """Return why there is no history, without the address."""
    with pytest.raises(PrometheusError) as caught:
        read_prometheus(PrometheusQuery(target_of(server, **options), name, RANGE))
    return str(caught.value).removeprefix(f"{target_of(server).url}: ")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("401 Unauthorized", b"", "it requires a token (401): its file is named by PROMETHEUS_TOKEN_FILE"),
        ("403 Forbidden", b"", "it denies access (403)"),
        ("404 Not Found", b"404 page not found", "no Prometheus API there (404): check the URL's path"),
        ("302 Found", b"", "it redirects: give the final URL"),
        ("503 Service Unavailable", b"", "it answered with an error (503)"),
        (
            "422 Unprocessable Entity",
            b'{"status":"error","errorType":"execution","error":"query timed out"}',
            "it rejects a query: query timed out",
        ),
        (
            "200 OK",
            b"<html>",
            "the answer is not that of a Prometheus: JSON is malformed: invalid character (byte 0)",
        ),
    ],
)
def test_what_it_answers_is_said(status, body, expected):
    """Each kind of rejection is one sentence that says what to do."""
    with StandIn(lambda _: [answer(body, status)]) as server:
        assert sentence(server) == expected


def test_a_token_is_sent_and_its_rejection_names_the_file(tmp_path):
    """The token of the file is in each request; without one in it nothing is sent."""
    file, empty = tmp_path / "token", tmp_path / "empty"
    file.write_text("secret\n")
    empty.write_text("")
    with StandIn(lambda _: [answer(b"", "401 Unauthorized")]) as server:
        assert sentence(server, token_file=str(file)) == f"it rejects the token in {file} (401)"
        assert "Authorization: Bearer secret" in server.requests[0]
        assert sentence(server, token_file=str(empty)) == f"{empty}: cannot be read, or has no token"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("present", "ever", "expected"),
    [
        (["b", "c"], [], 'no values of "a" in this time; there are "b", "c"'),
        ([], ["b", "a"], 'no values of "a" in this time; there were "a", "b"'),
        ([], [], "no series of vllm-watch: is it scraped by this Prometheus?"),
        ([f"s{n:02}" for n in range(22)], [], "s19" + '" and 2 more'),
    ],
)
def test_what_there_is_instead_is_named(present, ever, expected):
    """Of a server without values it is said when that was, and which ones there are, in this time or at all."""

    def pieces(head):
        path, parameters = asked(head)
        if path.endswith("/label/server/values"):
            return [answer(json.dumps({"status": "success", "data": ever}).encode())]
        if parameters["query"].startswith("group"):
            return [matrix(*(({"server": name}, [(1600, 1)]) for name in present))]
        return [matrix()]

    with StandIn(pieces) as server:
        said = sentence(server)
    assert said.startswith("prom:http://127.0.0.1:")
    assert said.endswith(expected)


def test_an_answer_that_is_not_whole_is_an_error():
    """A cluster of Thanos or VictoriaMetrics must not leave out what its broken nodes have: each has its own option."""
    with StandIn(lambda _: [matrix()]) as server:
        sentence(server)
        ranges = [asked(head)[1] for head in server.requests if "query_range" in head]

    assert ranges
    assert all((each["deny_partial_response"], each["partial_response"]) == ("1", "false") for each in ranges)


@pytest.mark.slow
def test_no_query_has_more_moments_than_prometheus_answers(monkeypatch):
    """A month is asked for in parts, with a step so long that all points together are below the limit."""
    monkeypatch.setattr(prometheus_source, "MAX_POINTS", MAX_POINTS // 10)
    month = TimeRange(1_700_000_000.0, 1_702_592_000.0)
    moments = []

    def pieces(head):
        parameters = asked(head)[1]
        start, end, step = (float(parameters[name]) for name in ("start", "end", "step"))
        moments.append((end - start) / step + 1)
        if parameters["query"].startswith("max without"):
            every = [start + step * index for index in range(int((end - start) / step) + 1)]
            return [matrix(({"job": "x"}, [(at, at) for at in every]))]
        return [matrix()]

    with StandIn(pieces) as server:
        found = read_prometheus(PrometheusQuery(target_of(server), "a", month))

    assert max(moments) <= MAX_POINTS // 10
    assert 1000 < len(found.points) <= MAX_POINTS // 10
    assert max(moments[1:]) <= 1000


# The names.


@pytest.mark.parametrize(
    ("address", "url", "server"),
    [
        ("http://p:9090/a", "http://p:9090", "a"),
        ("http://p:8481/select/0/prometheus/a", "http://p:8481/select/0/prometheus", "a"),
        ("http://p:9090", "http://p:9090", None),
        ("http://[::1]:9090/", "http://[::1]:9090", None),
        ("https://p/prometheus/", "https://p/prometheus", None),
        ("http://p/team%2Fqwen:8000", "http://p", "team/qwen:8000"),
    ],
)
def test_what_is_after_the_last_slash_is_the_server(address, url, server):
    """The path of the URL is kept; the environment has token and authorities; the name can be given again."""
    environment = {"PROMETHEUS_TOKEN_FILE": "t", "PROMETHEUS_CA_FILE": "c"}
    asked = parse_source(f"prom:{address}@2026-11-20T14:00Z/14:10", 0.0, environment)

    assert asked.target == PrometheusTarget(url, "t", TlsConfig(ca_file="c"))
    assert (asked.server, tuple(asked.times)) == (server, (1_795_183_200, 1_795_183_800))
    assert parse_source(asked.source, 0.0, environment) == asked


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["a", "b"], 'there are several servers, name one as in prom:URL/SERVER@FROM/TO: "a", "b"'),
        (["a"], 'no values of "a" in this time'),
    ],
)
def test_without_a_server_it_is_the_only_one(present, expected):
    """Of one server the name may be left out; of several, one has to be named."""

    def pieces(head):
        path, parameters = asked(head)
        if path.endswith("/label/server/values"):
            return [answer(json.dumps({"status": "success", "data": ["a"]}).encode())]
        is_list = parameters["query"].startswith("group")
        return [matrix(*(({"server": name}, [(1600, 1)]) for name in present if is_list))]

    with StandIn(pieces) as server:
        assert expected in sentence(server, None)


# Real ones.


@contextmanager
def real_victoria_metrics(folder, series):
    """Run a VictoriaMetrics that has this file's series; give its address."""
    url = f"http://127.0.0.1:{free_port()}"
    options = (
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr={url.removeprefix('http://')}",
        "-retentionPeriod=100y",
    )
    lines = [line for line in series.read_text().splitlines() if not line.startswith("#")]
    in_milliseconds = [re.sub(r" (\S+)$", lambda found: f" {1000 * float(found[1]):.0f}", line) for line in lines]
    with process(["victoria-metrics", *options], folder / "log", f"{url}/health"):
        data = "\n".join(in_milliseconds).encode()
        urllib.request.urlopen(f"{url}/api/v1/import/prometheus", data, timeout=SECONDS).close()
        get_text(f"{url}/internal/force_flush")
        until(lambda: get_json(f"{url}/api/v1/label/server/values?start=0")["data"], 10)
        yield url


def with_gpus(series, recorded):
    """Add two GPUs to a file of series, which another exporter reads, and one that another server uses."""
    start = round(recorded.started)
    moments = range(start, start + round(recorded.seconds), 2)
    users = dict.fromkeys(WATTS, NAME) | {"GPU-3": "other"}
    lines = [
        f'vllm_watch_server_gpu_info{{server="{server}",gpu="{gpu}",how="config",shared="false"}} 1 {at}'
        for gpu, server in users.items()
        for at in moments
    ]
    lines += [
        f'vllm_watch_gpu_energy_joules_total{{gpu="{gpu}",job="dcgm"}} {WATTS.get(gpu, 50) * (at - start)} {at}'
        for gpu in users
        for at in moments
    ]
    lines += [
        f'vllm_watch_gpu_memory_{name}_bytes{{gpu="{gpu}",job="dcgm"}} {size} {at}'
        for gpu in users
        for name, size in (("used", WATTS.get(gpu, 999)), ("total", 1000))
        for at in moments
    ]
    lines += [f'vllm_watch_server_cost_per_hour{{server="{NAME}"}} 2.4 {at}' for at in moments]
    series.write_text("\n".join([*series.read_text().splitlines()[:-1], *lines, "# EOF\n"]))
    return series


SERVERS = [
    pytest.param(filled_prometheus, marks=pytest.mark.needs_tool("prometheus", "promtool"), id="prometheus"),
    pytest.param(real_victoria_metrics, marks=pytest.mark.needs_tool("victoria-metrics"), id="victoria-metrics"),
]


@pytest.mark.parametrize("server", SERVERS)
def test_what_was_loaded_comes_back(tmp_path, server):
    """
    A recording that is loaded into a Prometheus has the history that it has itself.

    Every scrape that was answered is a point at its own time with the same state, gauges, histograms and acceptance,
    and with the same counters, but for those that the daemon does not export and requests that the log has by then.
    """
    recorded = recording(NAME)
    series = with_gpus(series_of(RECORDINGS[NAME], tmp_path), recorded)
    expected = read_recording(recorded, NAME, NAME)
    times = TimeRange(recorded.started - 60, recorded.started + recorded.seconds + 60)
    before = TimeRange(times.start - 90_000, times.end - 90_000)

    with server(tmp_path, series) as url:
        query = PrometheusQuery(PrometheusTarget(url), NAME, times)
        found = read_prometheus(query)
        (run,) = read_report([query]).runs
        with pytest.raises(PrometheusError, match=f'no values of "other" in this time; there are "{NAME}"'):
            read_prometheus(PrometheusQuery(PrometheusTarget(url), "other", times))
        with pytest.raises(PrometheusError, match=f'no values of "{NAME}" in this time'):
            read_prometheus(PrometheusQuery(PrometheusTarget(url), NAME, before))

    fresh = [point for point in found.points if point.is_fresh]
    wanted = [point for point in expected.points if point.is_fresh]
    assert [point.at for point in fresh] == pytest.approx([point.at for point in wanted], abs=0.002)
    exported = {name for name in wanted[-1].counters if name.partition(".")[0] in COUNTERS}
    exported -= {name for name in exported if re.search(r"\.\d+$", name) or name.startswith("http_requests")}
    assert len(exported) > 5
    for point, want in zip(fresh, wanted, strict=True):
        assert point.state == want.state
        memory = {name: point.gauges[name] for name in ("gpu_memory_used_ratio",) if name in point.gauges}
        assert point.gauges == pytest.approx({**want.gauges, **memory}, rel=1e-9)
        assert memory in ({}, {"gpu_memory_used_ratio": 0.5})
        assert point.position_acceptance == pytest.approx(want.position_acceptance, rel=1e-9)
        assert point.process == want.process
        for name in exported & want.counters.keys():
            assert point.counters[name] == want.counters[name]
        assert point.histograms.keys() == want.histograms.keys()
        for name, histogram in want.histograms.items():
            assert point.histograms[name].bounds == histogram.bounds
            assert point.histograms[name].counts == histogram.counts
            assert point.histograms[name].sum == pytest.approx(histogram.sum, rel=1e-9)
    assert (found.model, found.version, found.facts) == (expected.model, expected.version, expected.facts)
    assert found.config.items() <= expected.config.items()
    assert [event.text for event in found.events] == [event.text for event in expected.events]
    assert found.has_metrics
    (recorded_run,) = read_report([str(RECORDINGS[NAME])]).runs
    assert run.source == (query.source,)
    assert query.source.startswith(f"prom:{url}/{NAME}@20")
    assert run.server == NAME
    assert run.result.total_output_tokens == recorded_run.result.total_output_tokens > 0
    assert run.result.ttft_ms.mean == pytest.approx(recorded_run.result.ttft_ms.mean)
    assert run.result.duration_s == pytest.approx(recorded_run.result.duration_s, abs=0.1)
    assert "gpu_memory_used_ratio" in fresh[10].gauges
    assert used_energy(found.points).watts == pytest.approx(sum(WATTS.values()))
    assert found.cost_per_hour == run.cost_per_hour == 2.4
