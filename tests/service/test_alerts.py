# SPDX-License-Identifier: Apache-2.0
"""The alerts of a Prometheus in the snapshot and in `check`: those of our rules, none that are old, and why not."""

from __future__ import annotations

import contextlib
import json
import signal
import time

import msgspec
import pytest
import structlog

from tests.support import tools
from tests.support.http_servers import StandIn, answer, free_port
from tests.support.monitoring import process
from tests.support.waiting import SECONDS, until

from vllm_watch.analysis.backtest.rule_set import shipped_thresholds
from vllm_watch.daemon.config.model import LONGEST_TIMEOUT, PrometheusConfig
from vllm_watch.daemon.config.texts import parse_duration
from vllm_watch.daemon.prometheus.answers import parse_alerts
from vllm_watch.daemon.service import alerts
from vllm_watch.daemon.service.alerts import (
    EVERY_SECONDS,
    MAX_AGE,
    SHIPPED_GRAFANA,
    Alerts,
    AlertsThread,
    alerts_view,
    ask,
    our_alerts,
)
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors


SINCE = "2026-11-21T02:14:00.123456789Z"
SINCE_SECONDS = 1795227240.123456
RUNBOOK = "https://runbooks.example.com/VllmEngineStalled.md"


def alert(name="VllmEngineStalled", state="firing", since=SINCE, annotations=None, **labels):
    """Return one alert as Prometheus writes it; a label of `None` is not there."""
    known = {"alertname": name, "severity": "critical", "tier": "core", "server": "a", **labels}
    return {
        "labels": {label: value for label, value in known.items() if value is not None},
        "annotations": {"summary": "It stands.", "runbook_url": RUNBOOK} if annotations is None else annotations,
        "state": state,
        "activeAt": since,
        "value": "1e+00",
    }


WATCHDOG = alert("Watchdog", severity="none", server=None)


def page(*alerts):
    """Return an answer of Prometheus' API with these alerts and the Watchdog."""
    return json.dumps({"status": "success", "data": {"alerts": [WATCHDOG, *alerts]}}).encode()


def listed(*alerts):
    """Return what is made of these alerts."""
    return our_alerts(parse_alerts(page(*alerts)), 0.0).listed


@contextlib.contextmanager
def prometheus(body=None, status="200 OK", **options):
    """Run a stand-in for Prometheus; give its configuration and the stand-in."""
    with StandIn(lambda _: [answer(page() if body is None else body, status)]) as server:
        yield PrometheusConfig(url=f"http://127.0.0.1:{server.port}", timeout=SECONDS, **options), server


class TestSelection:
    """Which alerts are shown, and in which order."""

    def test_an_alert_is_whole(self):
        """Each alert has its name, severity, state, server, engine, since when, what is wrong and where to read on."""
        (found,) = listed(alert(engine="1", instance="h:9468"))

        assert msgspec.structs.asdict(found) == {
            "alertname": "VllmEngineStalled",
            "severity": "critical",
            "state": "firing",
            "server": "a",
            "engine": "1",
            "instance": "h:9468",
            "active_since": pytest.approx(SINCE_SECONDS, abs=1e-3),
            "summary": "It stands.",
            "runbook_url": RUNBOOK,
            "dashboard_url": None,
        }

    def test_critical_ones_come_first(self):
        """The order is by severity, what fires before what is pending, and the oldest first."""
        later = "2026-11-21T03:00:00Z"
        alerts = [
            alert("VllmDemandNearMaximum", severity="info"),
            alert("VllmQueueStanding", severity="warning"),
            alert("VllmEngineDown", state="pending"),
            alert("VllmEngineDown", since=later, server="b"),
            alert("VllmEngineStalled"),
        ]

        assert [(each.alertname, each.state) for each in listed(*alerts)] == [
            ("VllmEngineStalled", "firing"),
            ("VllmEngineDown", "firing"),
            ("VllmEngineDown", "pending"),
            ("VllmQueueStanding", "firing"),
            ("VllmDemandNearMaximum", "firing"),
        ]

    def test_those_of_other_rules_are_not_shown(self):
        """Alerts of other rules, and the Watchdog, which always fires, are left out."""
        assert listed(alert("HostOutOfMemory"), alert("VllmEngineDown", tier=None)) == ()

    def test_without_our_rules_nothing_is_known(self):
        """A Prometheus that does not evaluate the rules has no alerts, which says nothing; nor has another Watchdog."""
        other = {"data": {"alerts": [alert("Watchdog", severity="none", tier=None), alert("HostOutOfMemory")]}}

        assert our_alerts(parse_alerts(json.dumps(other).encode()), 0.0) is None

    def test_texts_are_harmless(self):
        """Texts are bounded and printable, and a link that is no URL of the web is left out."""
        hostile = {
            "summary": "\x1b[31m" + "x" * 10_000,
            "runbook_url": "javascript:alert(1)",
            "dashboard_url": "x" * 9999,
        }
        (found,) = listed(alert(annotations=hostile, engine="e" * 9999))

        assert found.summary.startswith("\\x1b[31m")
        assert len(found.summary) < 600
        assert len(found.engine) == 500
        assert found.runbook_url is found.dashboard_url is None

    @pytest.mark.parametrize("host", ["http://localhost:3000", "https://grafana.example.com"])
    def test_only_a_grafana_that_was_set_is_linked(self, host):
        """The rules are shipped with an address of Grafana that nobody has set: there need not be one."""
        link = f"{host}/d/vllm-watch-server?var-server=a"
        (found,) = listed(alert(annotations={"dashboard_url": link}))

        assert found.dashboard_url == (None if host == SHIPPED_GRAFANA else link)
        assert shipped_thresholds()["grafana"] == SHIPPED_GRAFANA

    def test_only_servers_that_are_watched(self):
        """Of other servers' alerts nothing is shown; those about vllm-watch have no server and are."""
        alerts = Alerts(100.0, listed(alert(), alert(server="elsewhere"), alert("VllmWatchUnwell", server=None)))
        view = alerts_view(alerts, {"a"}, 5.0)

        assert {(each["alertname"], each.get("server")) for each in view["alerts"]} == {
            ("VllmEngineStalled", "a"),
            ("VllmWatchUnwell", None),
        }
        assert view["prometheus"] == {"up": True, "last_reading": 105.0, "alerts_left_out": 0}


class TestFailures:
    """Why alerts are not known, in words."""

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b'{"data": {"alerts": []}}', "200 OK", "it answers, but evaluates none of vllm-watch's rules"),
            (b"<html>", "200 OK", "the answer is not that of a Prometheus"),
            (b'{"status": "error", "data": {"alerts": []}}', "200 OK", "not that of a Prometheus"),
            (b'{"data": {"alerts": [{"labels": {}, "state": "odd"}]}}', "200 OK", "not that of a Prometheus"),
            pytest.param(b'{"x":' * 100_000, "200 OK", "not that of a Prometheus", id="nested"),
            (b"", "401 Unauthorized", "it requires a token (401): its file is named by bearer_token_file"),
            (b"404 page not found", "404 Not Found", "no Prometheus API there (404): check the URL's path"),
            (b"", "302 Found", "it redirects: give the final URL"),
            pytest.param(
                b"x" * (16 * 1024 * 1024 + 1),
                "200 OK",
                "an answer is over 16 MiB: too many alerts are active there",
                id="too large",
            ),
        ],
    )
    def test_answers(self, body, status, words):
        """Each answer that is none has its sentence with the address, and no list."""
        with prometheus(body, status) as (config, _):
            found = ask(config, 1.0)

        assert found.listed is None
        assert found.problem.startswith(f"{config.url}: ")
        assert words in found.problem

    def test_no_answer(self):
        """Where nothing listens, and where nothing comes within the time, that is said."""
        with StandIn(lambda _: [b"HTTP/1.1 200 OK\r\n"] * 100, pause=0.05) as server:
            url = f"http://127.0.0.1:{server.port}"
            late = ask(PrometheusConfig(url=url, timeout=0.2), 1.0)
        gone = ask(PrometheusConfig(url=url), 1.0)

        assert late.problem == f"{url}: no whole answer within 0.2 s"
        assert gone.problem == f"{url}: nothing listens at this address"

    def test_a_token_is_sent(self, tmp_path):
        """The token is that of the file at each request; one that cannot be read is said, and nothing is sent."""
        token = tmp_path / "token"
        with prometheus(bearer_token_file=str(token)) as (config, server):
            assert ask(config, 1.0).problem == f"{token}: cannot be read, or has no token"
            assert server.requests == []
            token.write_text("one")
            assert ask(config, 1.0).listed == ()
            token.write_text("two")
            ask(config, 1.0)

        assert ["Bearer one", "Bearer two"] == [
            line.partition(": ")[2]
            for head in server.requests
            for line in head.splitlines()
            if line.startswith("Authorization")
        ]
        assert {head.split()[1] for head in server.requests} == {"/api/v1/alerts"}


class TestThread:
    """The thread that asks: nothing waits for it, and what it has not heard again is not shown."""

    @pytest.fixture
    def thread(self, monkeypatch):
        """A thread whose pauses are short."""
        monkeypatch.setattr(alerts, "EVERY_SECONDS", 0.05)
        thread = AlertsThread(SystemClock(), InternalErrors())
        yield thread
        thread.request_stop()
        thread.join()

    def test_alerts_come_and_go(self, thread):
        """The list is that of the last answer; after a failure there is none, and the log says so once."""
        bodies = [page(alert())]
        with prometheus() as (config, server), structlog.testing.capture_logs() as logged:
            server.pieces = lambda _: [answer(bodies[0])]
            assert thread.alerts() is None
            thread.follow(config)
            until(lambda: thread.alerts().listed)
            bodies[0] = page()
            until(lambda: thread.alerts().listed == ())
            bodies[0] = b"{}"
            until(lambda: thread.alerts().problem)
            asked = len(server.requests)
            until(lambda: len(server.requests) > asked + 2)
            assert thread.alerts().listed is None
            bodies[0] = page()
            until(lambda: thread.alerts().listed == ())
            thread.follow(None)

        assert thread.alerts() is None
        assert ["alerts.unknown", "alerts.known"] == [each["event"] for each in logged]

    def test_an_old_answer_is_none(self, thread, monkeypatch):
        """An answer that no other has followed for a while is not shown as the present one."""
        with prometheus(page(alert())) as (config, _):
            thread.follow(config)
            until(lambda: thread.alerts().listed)
            monkeypatch.setattr(alerts, "EVERY_SECONDS", 3600.0)
            monkeypatch.setattr(alerts, "MAX_AGE", 0.1)
            until(lambda: thread.alerts().listed is None)

            assert thread.alerts().problem.startswith(f"{config.url}: no answer for ")
        assert MAX_AGE > EVERY_SECONDS + parse_duration(LONGEST_TIMEOUT)


RULES = """\
groups:
- name: ours
  interval: 1s
  rules:
  - {alert: Watchdog, expr: vector(1), labels: {severity: none, tier: core}}
  - alert: VllmEngineDown
    expr: label_replace(vector(1), "server", "a", "", "")
    for: 1h
    labels: {severity: critical, tier: core}
    annotations: {summary: It is down., runbook_url: https://runbooks.example.com/}
"""


@pytest.mark.slow
@pytest.mark.needs_tool("prometheus")
def test_a_real_prometheus(tmp_path):
    """What Prometheus itself answers is read: first without rules, then with an alert that is pending."""
    config = tmp_path / "prometheus.yml"
    config.write_text("rule_files: [rules.yml]\n")
    (tmp_path / "rules.yml").write_text("")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        *(tools.find("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"),
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with process(command, tmp_path / "log", f"{url}/-/ready") as running:
        config = PrometheusConfig(url=url, timeout=SECONDS)
        assert ask(config, 1.0).problem.endswith("evaluates none of vllm-watch's rules")
        (tmp_path / "rules.yml").write_text(RULES)
        running.send_signal(signal.SIGHUP)
        (found,) = until(lambda: ask(config, 1.0).listed)

    assert (found.alertname, found.server, found.state) == ("VllmEngineDown", "a", "pending")
    assert found.summary == "It is down."
    assert abs(found.active_since - time.time()) < 600
