# SPDX-License-Identifier: Apache-2.0
"""The push over OTLP: an endpoint that is gone, hangs or rejects costs a gap, which is counted, and nothing else."""

from __future__ import annotations

import gzip
import threading

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
import structlog

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from tests.support.http_servers import HandlerServer
from tests.support.waiting import SECONDS, HandClock, until

from vllm_watch.cli.commands.check import check
from vllm_watch.daemon.catalog.codes import OTLP_OUTCOMES
from vllm_watch.daemon.config.model import Config, OtlpConfig
from vllm_watch.daemon.service import otlp
from vllm_watch.daemon.service.otlp import OtlpPush, OtlpThread, Sent
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.support.secret_files import MAX_HEADERS, parse_headers


INTERVAL = 10.0
CONFIG = OtlpConfig(endpoint="http://127.0.0.1:9/v1/metrics", interval=INTERVAL)


class Endpoint:
    """What an endpoint has received, and how it answers."""

    def __init__(self):
        self.status, self.answer, self.headers = 200, b"", {}
        self.received = []
        self.is_hanging = False
        self.may_go = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.received.append((self.path, dict(self.headers), body))
                if endpoint.is_hanging:
                    endpoint.may_go.wait(SECONDS)
                    return
                self.send_response(endpoint.status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(endpoint.answer)))
                self.end_headers()
                self.wfile.write(endpoint.answer)

            def log_message(self, *_):
                """Say nothing."""

        self.handler = Handler


@contextmanager
def endpoint(context=None, **config):
    """Run an endpoint; yield it and a configuration that names it."""
    found = Endpoint()
    with HandlerServer(found.handler, context) as server:
        yield found, OtlpConfig(endpoint=f"{server.origin}/v1/metrics", **{"timeout": SECONDS, **config})
        found.may_go.set()


@contextmanager
def pushing(config):
    """Yield what pushes to an endpoint."""
    push = OtlpPush(config)
    try:
        yield push
    finally:
        push.close()


class StandInPush:
    """A push that ends as told."""

    def __init__(self, clock, outcomes):
        self.clock, self.outcomes, self.sent, self.seconds = clock, outcomes, [], 0.0
        self.is_closed = False

    def send(self, body):
        """Take some time."""
        self.sent.append((self.clock.now(), body))
        self.clock.time += self.seconds
        ended = self.outcomes(self.clock.now())
        return Sent(ended) if isinstance(ended, str) else ended

    def close(self):
        """Note it."""
        self.is_closed = True


@pytest.fixture
def clock():
    """A clock of the test's."""
    return HandClock(1000.0)


def thread_of(clock, outcomes):
    """Return a thread that is not started, and its push."""
    push = StandInPush(clock, outcomes)
    thread = OtlpThread(clock, InternalErrors(), lambda: b"body")
    thread.start = lambda: None
    follow(thread, CONFIG, push)
    return thread, push


def follow(thread, config, push):
    """Let a thread push to an endpoint with a push of the test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otlp, "OtlpPush", lambda _: push)
        thread.follow(config)


def run_until(thread, clock, end):
    """Let the thread do what it does until a time."""
    while clock.time < end:
        clock.time += thread._turn()


def shown(thread):
    """Return what the series say of exports."""
    return {(each.name.removeprefix("otlp_"), *each.labels): each.value for each in thread.samples(0.0)}


def outcomes(thread):
    """Return how many exports ended in which way."""
    return {labels[0]: count for (name, *labels), count in shown(thread).items() if name == "exports_total"}


class TestInVirtualTime:
    """The thread's work, by a clock that the test moves."""

    def test_gone_for_an_hour(self, clock):
        """While the endpoint is gone each export is counted as a gap, none is kept, and the log says so once."""
        thread, push = thread_of(clock, lambda now: "refused" if 1100 <= now < 4700 else "ok")
        with structlog.testing.capture_logs() as logged:
            run_until(thread, clock, 5000.0)

        assert outcomes(thread) == {"ok": 40, "refused": 360}
        assert [at for at, _ in push.sent] == [1000.0 + INTERVAL * number for number in range(400)]
        assert shown(thread)["last_success_timestamp_seconds",] == 4990.0
        assert [each["event"] for each in logged] == ["otlp.not_exported", "otlp.exported"]
        assert (logged[0]["reason"], logged[0]["meaning"]) == ("refused", OTLP_OUTCOMES["refused"])

    def test_an_export_that_takes_too_long(self, clock):
        """Exports never overlap: those whose time passed meanwhile are counted as missed, and the rhythm stays."""
        thread, push = thread_of(clock, lambda _: "timeout")
        push.seconds = 25.0
        thread._turn()
        push.seconds = 0.0
        clock.time = 1030.0
        thread._turn()

        assert outcomes(thread) == {"ok": 0, "missed": 2, "timeout": 2}
        assert [at for at, _ in push.sent] == [1000.0, 1030.0]
        assert shown(thread)["export_duration_seconds",] == 0.0

    def test_what_an_endpoint_remarks(self, clock):
        """A remark is in the log, once for as long as it is the same, also where everything was accepted."""
        thread, _ = thread_of(clock, lambda now: Sent("ok" if now < 1015 else "partial", remark="too old"))
        with structlog.testing.capture_logs() as logged:
            run_until(thread, clock, 1035.0)

        assert [(each["event"], each.get("remark")) for each in logged] == [
            ("otlp.remark", "too old"),
            ("otlp.not_exported", None),
        ]

    def test_a_reload(self, clock):
        """Another endpoint is pushed to at once, and the one before is closed; without one there is no status."""
        thread, first = thread_of(clock, lambda _: "ok")
        thread._turn()
        second = StandInPush(clock, lambda _: "ok")
        follow(thread, CONFIG, second)
        assert not first.is_closed
        follow(thread, OtlpConfig(endpoint="http://127.0.0.1:9/other", interval=INTERVAL), second)
        thread._turn()
        assert (first.is_closed, len(first.sent), len(second.sent)) == (True, 1, 1)

        thread.follow(None)
        assert (second.is_closed, shown(thread)) == (True, {})


class TestSending:
    """One export to an endpoint on loopback."""

    def test_what_is_sent(self, tmp_path):
        """A request is protobuf in gzip, to the path that is configured, with the headers of the file."""
        (tmp_path / "headers").write_text("# ours\nAuthorization: Bearer abc\nX-Scope-OrgID: team-1\n\n")
        with endpoint(headers_file=str(tmp_path / "headers")) as (found, config), pushing(config) as push:
            assert push.send(b"\x0a\x00").outcome == "ok"
            (tmp_path / "headers").write_text("Authorization: Bearer def\n")
            assert push.send(b"\x0a\x00").outcome == "ok"
        (path, headers, body), (_, later, _) = found.received

        assert (path, gzip.decompress(body)) == ("/v1/metrics", b"\x0a\x00")
        assert (headers["Content-Type"], headers["Content-Encoding"]) == ("application/x-protobuf", "gzip")
        assert (headers["Authorization"], headers["X-Scope-OrgID"]) == ("Bearer abc", "team-1")
        assert (later["Authorization"], "X-Scope-OrgID" in later) == ("Bearer def", False)

    @pytest.mark.parametrize(
        ("status", "outcome"),
        [
            (202, "ok"),
            (307, "redirect"),
            (400, "rejected"),
            (401, "unauthorized"),
            (403, "forbidden"),
            (404, "not_found"),
            (413, "rejected"),
            (429, "overloaded"),
            (500, "server_error"),
            (503, "overloaded"),
        ],
    )
    def test_answers(self, status, outcome):
        """Each status has its outcome; a redirect is not followed, so that no header goes elsewhere."""
        with endpoint() as (found, config), pushing(config) as push:
            found.status, found.headers = status, {"Location": "/elsewhere"}
            assert push.send(b"").outcome == outcome
        assert len(found.received) == 1

    @pytest.mark.parametrize(("points", "outcome"), [(1, "partial"), (0, "ok")])
    def test_values_that_are_rejected(self, points, outcome):
        """An endpoint that accepts a part says so, and that is no success; what it remarks is safe to print."""
        answer = ExportMetricsServiceResponse()
        answer.partial_success.rejected_data_points = points
        answer.partial_success.error_message = "too \x1b[31mold"
        with endpoint() as (found, config), pushing(config) as push:
            found.answer = answer.SerializeToString()
            assert push.send(b"") == Sent(outcome, remark="too \\x1b[31mold")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "# nothing\n",
            "Authorization Bearer abc\n",
            "Authorization:\n",
            "Bad Name: x\n",
            "X: a\x00b\n",
            "X: ü\n",
            "Host: other\n",
            "content-length: 5\n",
            "X: " + "a" * MAX_HEADERS,
        ],
    )
    def test_files_that_are_no_headers(self, text, tmp_path):
        """A file with a line that is no header, or one of the request's own, is not sent at all."""
        assert parse_headers(text.encode()) is None
        (tmp_path / "headers").write_bytes(text.encode())
        with endpoint(headers_file=str(tmp_path / "headers")) as (found, config), pushing(config) as push:
            assert push.send(b"").outcome == "headers_unreadable"
        assert found.received == []


class TestDaemon:
    """The daemon with an endpoint."""

    def test_it_pushes_and_its_page_says_so(self):
        """What a running daemon pushes has its own series, and its page counts the export."""
        with endpoint(interval=3600.0) as (found, config):
            service = Supervisor(Config(listen="127.0.0.1:0", otlp=config), SystemClock())
            try:
                service.start()
                until(lambda: ("last_success_timestamp_seconds",) in shown(service.otlp))
                page = service.endpoints.metrics("").body.decode()
            finally:
                service.stop()
        request = ExportMetricsServiceRequest.FromString(gzip.decompress(found.received[0][2]))
        names = {metric.name for metric in request.resource_metrics[0].scope_metrics[0].metrics}

        assert {"vllm_watch_build_info", "vllm_watch_otlp_exports", "process_cpu_seconds"} <= names
        assert 'vllm_watch_otlp_exports_total{outcome="ok"} 1.0' in page

    def test_it_stops_in_the_middle_of_an_export(self):
        """An export that hangs delays no scrape and not the daemon's end."""
        with endpoint(interval=3600.0, timeout=60.0) as (found, config):
            found.is_hanging = True
            service = Supervisor(Config(listen="127.0.0.1:0", otlp=config), SystemClock())
            try:
                service.start()
                until(lambda: found.received)
                assert 'vllm_watch_otlp_exports_total{outcome="ok"} 0.0' in service.endpoints.metrics("").body.decode()
            finally:
                service.stop()
            until(lambda: not service.otlp._thread.is_alive())

    def test_check(self, monkeypatch):
        """``check`` sends an export without values, and fails with a sentence where that is not accepted."""
        with endpoint() as (found, config):
            (line,) = [each for each in check(Config(otlp=config)) if each.text.startswith("otlp")]
            assert (line.is_wrong, line.text.endswith("ok: the endpoint has accepted everything.")) == (False, True)
            assert gzip.decompress(found.received[0][2]) == b""
        (line,) = [each for each in check(Config(otlp=CONFIG)) if each.text.startswith("otlp")]
        assert (line.is_wrong, line.text.endswith("FAILED: nothing listens at this address.")) == (True, True)
        monkeypatch.setattr("vllm_watch.cli.commands.check.is_installed", lambda: False)
        (line,) = [each for each in check(Config(otlp=CONFIG)) if each.text.startswith("otlp")]
        assert "pip install '.[otlp]'" in line.text
