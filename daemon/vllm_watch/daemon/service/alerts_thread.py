# SPDX-License-Identifier: Apache-2.0
"""
The thread that asks a Prometheus for its alerts.

It has no heartbeat that anybody checks, and nobody waits for its end: whatever the Prometheus or its name's resolution
does, nothing else is held up, and a restart of the daemon would not cure it. An answer that is too old is not shown.
"""

from __future__ import annotations

import threading

import structlog

from vllm_watch.daemon.config.model import PrometheusConfig
from vllm_watch.daemon.service.prometheus_alerts import Alerts, ask, dated
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")

EVERY_SECONDS = 10.0
"""From the end of one request to the next; Prometheus evaluates the rules every 15 s."""

MAX_AGE = 45.0
"""How old an answer may be: over that the thread hangs, since a request and its pause take 30 s at most."""


class AlertsThread(ServiceThread):
    """
    Asks the configured Prometheus again and again; without one it is not started.

    Args:
        clock: The time.
        errors: Counts failures of the daemon itself.
    """

    def __init__(self, clock: Clock, errors: InternalErrors) -> None:
        super().__init__(threading.Thread(target=self._run, name="alerts", daemon=True), clock)
        self._errors = errors
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

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            config = self._config
            if config is not None:
                self._note(config, self._ask(config))
            self._clock.wait(self._wake, EVERY_SECONDS)

    def _ask(self, config: PrometheusConfig) -> Alerts:
        try:
            return dated(ask(config, self._clock.now()), self._clock)
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
