# SPDX-License-Identifier: Apache-2.0
"""
The alerts of vllm-watch's rules in a Prometheus, and the thread that asks for them.

A list without alerts means something only if the rules are loaded there. Their Watchdog always fires, so that a list
without any of their alerts says that they are not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import closing
from typing import Any, NamedTuple

import msgspec
import structlog

from vllm_watch.daemon.catalog.alert_needs import alert_needs
from vllm_watch.daemon.catalog.codes import severity_rank
from vllm_watch.daemon.config.model import PrometheusConfig
from vllm_watch.daemon.exposition.document import AlertDocument
from vllm_watch.daemon.prometheus.answers import PromAlert
from vllm_watch.daemon.prometheus.api import PrometheusApi, PrometheusTarget
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.sources.http_reader import HttpLimits
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import PrometheusError
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.support.printable import printable


log = structlog.get_logger("vllm_watch.service")

EVERY_SECONDS = 10.0
"""From the end of one request to the next; Prometheus evaluates the rules every 15 s."""

MAX_AGE = 45.0
"""How old an answer may be: over that the thread hangs, since a request and its pause take 30 s at most."""

MAX_ALERTS = 1000
"""How many are shown, the worst first; all of them travel to each status page every two seconds."""

MAX_TEXT = 500
"""Characters of one text of an alert."""

MAX_MEBIBYTES = 16
"""The longest answer, which has the alerts of all rules; one of them takes about a kilobyte."""

MAX_URL = 2000
"""Characters of a link; a longer one is left out."""

SHIPPED_GRAFANA = "http://localhost:3000"
"""`grafana` of alerts/thresholds.yml as it is shipped."""

_WATCHDOG = "Watchdog"
_NO_RULES = "it answers, but evaluates none of vllm-watch's rules"
_TOO_MANY = "too many alerts are active there"


class Alerts(NamedTuple):
    """
    What a Prometheus has answered, or that it has not.

    Args:
        at: When, by `Clock.now`.
        listed: The alerts, the worst first; `None` if they are not known.
        problem: Why they are not known, as a sentence without a full stop.
    """

    at: float
    listed: tuple[AlertDocument, ...] | None
    problem: str = ""

    def about(self, servers: Container[str]) -> list[AlertDocument]:
        """Return those about these servers or about vllm-watch itself: a Prometheus may have more servers."""
        return [alert for alert in self.listed or () if alert.server is None or alert.server in servers]


def ask(config: PrometheusConfig, at: float) -> Alerts:
    """Return the alerts of vllm-watch's rules in a Prometheus, or why they are not known; `at` is the time."""
    target = PrometheusTarget(config.url, config.bearer_token_file, config.tls, "bearer_token_file")
    try:
        with closing(PrometheusApi(target, HttpLimits(config.timeout, MAX_MEBIBYTES, _TOO_MANY))) as api:
            return our_alerts(api.alerts(), at) or Alerts(at, None, problem=f"{api.url}: {_NO_RULES}")
    except PrometheusError as error:
        return Alerts(at, None, problem=str(error))


def our_alerts(alerts: Iterable[PromAlert], at: float) -> Alerts | None:
    """Return the alerts of vllm-watch's rules among all, or `None` if these rules are not loaded there."""
    # Other rules may have one of these names (there is more than one Watchdog), but not this label.
    ours = [alert for alert in alerts if alert.labels.get("alertname") in alert_needs() and "tier" in alert.labels]
    if not ours:
        return None
    shown = (_alert(each) for each in ours if each.labels["alertname"] != _WATCHDOG)
    return Alerts(at, tuple(sorted(shown, key=_rank)))


def _alert(alert: PromAlert) -> AlertDocument:
    labels, texts = alert.labels, alert.annotations
    return AlertDocument(
        labels["alertname"],
        _short(labels.get("severity", "")),
        alert.state,
        labels.get("server"),
        _short(labels["engine"]) if "engine" in labels else None,
        _short(labels["instance"]) if "instance" in labels else None,
        alert.active_at.timestamp() if alert.active_at is not None and alert.active_at.year > 1 else None,
        _short(texts.get("summary", "")),
        _link(texts.get("runbook_url")),
        _dashboard(texts.get("dashboard_url")),
    )


def _short(text: str) -> str:
    return printable(text[:MAX_TEXT])


def _link(url: str | None) -> str | None:
    return url if url is not None and len(url) <= MAX_URL and url.startswith(("http://", "https://")) else None


def _dashboard(url: str | None) -> str | None:
    """Return a link to Grafana; in the rules as they are shipped it leads to an address that nobody has set."""
    return None if url is not None and url.startswith(f"{SHIPPED_GRAFANA}/") else _link(url)


def _rank(alert: AlertDocument) -> tuple[int, bool, float, str, str, str]:
    severity, since = severity_rank(alert.severity), alert.active_since or 0.0
    return severity, alert.state != "firing", since, alert.server or "", alert.alertname, alert.engine or ""


def alerts_view(alerts: Alerts, servers: Container[str], ahead: float) -> dict[str, Any]:
    """
    Return what is known of the alerts of these servers, and of vllm-watch, for JSON.

    Args:
        alerts: What the Prometheus has answered.
        servers: The servers that are watched.
        ahead: Seconds by which the wall clock is ahead of `Alerts.at`.
    """
    if alerts.listed is None:
        return {"prometheus": {"up": False, "explanation": alerts.problem}}
    shown = alerts.about(servers)
    return {
        "prometheus": {
            "up": True,
            "last_reading": alerts.at + ahead,
            "alerts_left_out": max(len(shown) - MAX_ALERTS, 0),
        },
        "alerts": msgspec.to_builtins(shown[:MAX_ALERTS]),
    }


class AlertsThread(ServiceThread):
    """
    Asks the configured Prometheus again and again; without one it is not started.

    Nobody waits for its end or checks its heartbeat: whatever the Prometheus or its name's resolution does, nothing
    else is held up, and a restart of the daemon would not cure it. An answer that is too old is not shown.
    """

    is_awaited = False

    def __init__(self, clock: Clock, errors: InternalErrors) -> None:
        super().__init__("alerts", clock, errors)
        self._config: PrometheusConfig | None = None
        self._answer: tuple[PrometheusConfig, Alerts] | None = None
        """The last answer, and of which Prometheus it is."""

    def follow(self, config: PrometheusConfig | None) -> None:
        """Ask this Prometheus from now on, or none."""
        self._config = config
        self._wake.set()
        if config is not None:
            self.start()

    @property
    def has_asked(self) -> bool:
        """Whether the configured Prometheus has answered, or has failed to, at least once; also without one."""
        config, answer = self._config, self._answer
        return config is None or (answer is not None and answer[0] == config)

    def alerts(self) -> Alerts | None:
        """Return what the configured Prometheus has answered last, `None` without one; any thread may call it."""
        config, answer = self._config, self._answer
        if config is None:
            return None
        if answer is None or answer[0] != config:
            return Alerts(self._clock.now(), None, problem=f"{config.url}: it has not answered yet")
        age = self._clock.now() - answer[1].at
        if age > MAX_AGE:
            return Alerts(answer[1].at, None, problem=f"{config.url}: no answer for {age:.0f} s")
        return answer[1]

    def _turn(self) -> float:
        config = self._config
        if config is not None:
            self._note(config, self._ask(config))
        return EVERY_SECONDS

    def _ask(self, config: PrometheusConfig) -> Alerts:
        try:
            return ask(config, self._clock.now())
        except Exception:  # Whatever it answers, the next request is sent.
            log.exception("alerts.failed")
            self._errors.count("alerts")
            problem = f"{config.url}: its answer cannot be read: see the log of vllm-watch"
            return Alerts(self._clock.now(), None, problem=problem)

    def _note(self, config: PrometheusConfig, alerts: Alerts) -> None:
        """Keep an answer, and log when it becomes one without alerts, or one with them again."""
        before = self._answer[1].problem if self._answer is not None and self._answer[0] == config else ""
        self._answer = (config, alerts)
        if alerts.problem and alerts.problem != before:
            log.warning("alerts.unknown", reason=alerts.problem)
        elif before and not alerts.problem:
            log.info("alerts.known")
