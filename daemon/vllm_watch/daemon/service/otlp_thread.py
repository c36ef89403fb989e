# SPDX-License-Identifier: Apache-2.0
"""
The thread that pushes the series over OTLP.

It has no heartbeat that anybody checks, and nobody waits for its end: whatever the endpoint or its name's resolution
does, nothing else is held up. What could not be sent is not kept: the next export has the counters' present values, and
the gap is counted.
"""

from __future__ import annotations

import importlib.util
import threading

from collections.abc import Callable

import structlog

from vllm_watch.daemon.catalog.codes import OTLP_OUTCOMES, OtlpOutcome
from vllm_watch.daemon.config.model import OtlpConfig
from vllm_watch.daemon.exposition.self_metrics import OtlpStatus
from vllm_watch.daemon.service.otlp_push import OtlpPush, Sent
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")

GOOD: frozenset[OtlpOutcome] = frozenset({"ok"})


def is_installed() -> bool:
    """Return whether the extra is."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.metrics") is not None
    except ModuleNotFoundError:
        return False


class OtlpThread(ServiceThread):
    """
    Pushes at regular times; without an endpoint it is not started.

    Args:
        clock: The time.
        errors: Counts failures of the daemon itself.
        body: Returns the body of a request with what /metrics shows now.
        connect: Returns what sends to an endpoint.
    """

    def __init__(
        self,
        clock: Clock,
        errors: InternalErrors,
        body: Callable[[], bytes],
        connect: Callable[[OtlpConfig], OtlpPush] = OtlpPush,
    ) -> None:
        super().__init__(threading.Thread(target=self._run, name="otlp", daemon=True), clock)
        self._errors = errors
        self._body = body
        self._connect = connect
        self._config: OtlpConfig | None = None
        self._push: OtlpPush | None = None
        self._due = 0.0
        self._outcomes: dict[OtlpOutcome, int] = {"ok": 0}
        self._last = Sent("ok")
        self._succeeded_at: float | None = None
        self._seconds: float | None = None

    def follow(self, config: OtlpConfig | None) -> None:
        """Push to this endpoint from now on, or to none."""
        if config == self._config:
            return
        before, self._push = self._push, None if config is None else self._connect(config)
        self._config, self._due = config, self._clock.now()
        if before is not None:
            before.close()
        self._wake.set()
        if config is not None:
            self.start()

    def status(self) -> OtlpStatus | None:
        """Return how the exports went, `None` if no endpoint is configured; any thread may call it."""
        if self._config is None:
            return None
        at = self._succeeded_at
        return OtlpStatus(self._outcomes, None if at is None else self._clock.wall(at), self._seconds)

    def request_stop(self) -> None:
        """Make it end soon, also in the middle of an export."""
        super().request_stop()
        push = self._push
        if push is not None:
            push.close()

    def turn(self) -> float:
        """Push if it is time to; return for how many seconds there is nothing to do."""
        config, push = self._config, self._push
        if config is None or push is None:
            return 3600.0
        begin = self._clock.now()
        if begin < self._due:
            return self._due - begin
        sent = self._export(push)
        end = self._clock.now()
        if self._stop.is_set() or push is not self._push:
            push.close()  # That of others may have come before the connection was opened.
            return 0.0
        # What an export takes beyond the interval, and what the endpoint asks to wait, are exports that never were.
        missed = int((end + sent.wait - self._due) // config.interval)
        self._count("missed", missed)
        self._due += (missed + 1) * config.interval
        self._seconds = end - begin
        self._note(sent, end, config.endpoint)
        return self._due - end

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._clock.wait(self._wake, self.turn())

    def _export(self, push: OtlpPush) -> Sent:
        if not is_installed():
            return Sent("not_installed")
        try:
            return push.send(self._body())
        except Exception:  # Whatever it is, the next export is tried.
            if not self._stop.is_set():
                log.exception("otlp.failed")
                self._errors.count("otlp")
            return Sent("internal_error")

    def _count(self, outcome: OtlpOutcome, exports: int) -> None:
        if exports:
            self._outcomes = {**self._outcomes, outcome: self._outcomes.get(outcome, 0) + exports}

    def _note(self, sent: Sent, at: float, endpoint: str) -> None:
        """Count an outcome, and log when it becomes a failure or another one, what is remarked, and when it is over."""
        self._count(sent.outcome, 1)
        before, self._last = self._last, sent
        if sent.outcome in GOOD:
            self._succeeded_at = at
            if before.outcome not in GOOD:
                log.info("otlp.exported", endpoint=endpoint)
        elif sent.outcome != before.outcome:
            log.warning(
                "otlp.not_exported", endpoint=endpoint, reason=sent.outcome, meaning=OTLP_OUTCOMES[sent.outcome]
            )
        if sent.remark and sent.remark != before.remark:
            log.warning("otlp.remark", endpoint=endpoint, remark=sent.remark)
