# SPDX-License-Identifier: Apache-2.0
"""The push of the series over OTLP: one export, and the thread that makes one after the other."""

from __future__ import annotations

import gzip
import importlib.util

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, get_args

import requests
import structlog

from vllm_watch.daemon.catalog.codes import OTLP_OUTCOMES, OtlpOutcome
from vllm_watch.daemon.config.model import OtlpConfig
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.sources.http_client import HttpClient, RequestError, body_pieces
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.support.printable import printable
from vllm_watch.daemon.support.secret_files import read_headers


log = structlog.get_logger("vllm_watch.service")

MAX_ANSWER = 64 * 1024
"""Of a longer answer the status is enough."""

_PIECE = 16 * 1024
_MAX_REMARK = 200
_QUICKLY = 1
"""How much zlib tries."""

_HEADERS: Final = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
_OF_STATUS: dict[int, OtlpOutcome] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "not_found",
    429: "overloaded",
    503: "overloaded",
}


class Sent(NamedTuple):
    """
    How an export ended.

    Args:
        outcome: The code.
        remark: What the endpoint says of values that it rejects or of the request as a whole.
    """

    outcome: OtlpOutcome
    remark: str = ""


class OtlpPush:
    """
    Sends requests to the configured endpoint; `close` may be called from any thread.

    Args:
        config: The endpoint.
    """

    def __init__(self, config: OtlpConfig) -> None:
        self._headers_file = config.headers_file
        self._endpoint = config.endpoint
        self._client = HttpClient(config.timeout, config.tls)

    def close(self) -> None:
        """End an export that is running."""
        self._client.close()

    def send(self, body: bytes) -> Sent:
        """Send a request; return how that ended."""
        from vllm_watch.daemon.exposition.otlp import partial_success  # noqa: PLC0415 - Imports protobuf.

        headers = {} if self._headers_file is None else read_headers(self._headers_file)
        if headers is None:
            return Sent("headers_unreadable")
        packed = gzip.compress(body, _QUICKLY, mtime=0)
        try:
            with (
                self._client.within_time(),
                self._client.send("POST", self._endpoint, {**headers, **_HEADERS}, packed) as response,
            ):
                answer = _body(response)
        except RequestError as error:
            return Sent(_outcome(error.reason))
        status = response.status_code
        if 200 <= status < 300:
            rejected, remark = partial_success(answer)
            return Sent("partial" if rejected else "ok", remark=printable(remark)[:_MAX_REMARK])
        return Sent(_OF_STATUS.get(status, _outcome_of_class(status)))


def _body(response: requests.Response) -> bytes:
    try:
        return b"".join(body_pieces(response, _PIECE, MAX_ANSWER))
    except RequestError as error:
        if error.reason != "too_large":
            raise
        return b""


def _outcome_of_class(status: int) -> OtlpOutcome:
    if 300 <= status < 400:
        return "redirect"
    return "rejected" if status < 500 else "server_error"


def _outcome(reason: str) -> OtlpOutcome:
    known: OtlpOutcome | None = next((each for each in get_args(OtlpOutcome) if each == reason), None)
    return known or "unreachable"


def is_installed() -> bool:
    """Return whether the extra is."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.metrics") is not None
    except ModuleNotFoundError:
        return False


class OtlpThread(ServiceThread):
    """
    Pushes at regular times; without an endpoint it is not started.

    Nobody waits for its end or checks its heartbeat: whatever the endpoint or its name's resolution does, nothing else
    is held up. What could not be sent is not kept: the next export has the counters' present values, and the gap is
    counted.

    Args:
        body: Returns the body of a request with what /metrics shows now.
    """

    is_awaited = False

    def __init__(self, clock: Clock, errors: InternalErrors, body: Callable[[], bytes]) -> None:
        super().__init__("otlp", clock, errors)
        self._body = body
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
        before, self._push = self._push, None if config is None else OtlpPush(config)
        self._config, self._due = config, self._clock.now()
        if before is not None:
            before.close()
        self._wake.set()
        if config is not None:
            self.start()

    def samples(self, at: float) -> Iterator[PlainSample]:
        """Yield how the exports went, nothing if no endpoint is configured; any thread may call it."""
        if self._config is None:
            return
        for outcome, count in self._outcomes.items():
            yield PlainSample("otlp_exports_total", (outcome,), count, at)
        if self._succeeded_at is not None:
            succeeded_at = self._clock.wall(self._succeeded_at)
            yield PlainSample("otlp_last_success_timestamp_seconds", (), succeeded_at, at)
        if self._seconds is not None:
            yield PlainSample("otlp_export_duration_seconds", (), self._seconds, at)

    def request_stop(self) -> None:
        """Make it end soon, also in the middle of an export."""
        super().request_stop()
        push = self._push
        if push is not None:
            push.close()

    def _turn(self) -> float:
        config, push = self._config, self._push
        if config is None or push is None:
            return 3600.0
        begin = self._clock.now()
        if begin < self._due:
            return self._due - begin
        sent = self._export(push)
        end = self._clock.now()
        if self._stop.is_set() or push is not self._push:
            return 0.0
        # What an export takes beyond the interval are exports that never were.
        missed = int((end - self._due) // config.interval)
        self._count("missed", missed)
        self._due += (missed + 1) * config.interval
        self._seconds = end - begin
        self._note(sent, end, config.endpoint)
        return self._due - end

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
        if sent.outcome == "ok":
            self._succeeded_at = at
            if before.outcome != "ok":
                log.info("otlp.exported", endpoint=endpoint)
        elif sent.outcome != before.outcome:
            log.warning(
                "otlp.not_exported", endpoint=endpoint, reason=sent.outcome, meaning=OTLP_OUTCOMES[sent.outcome]
            )
        if sent.remark and sent.remark != before.remark:
            log.warning("otlp.remark", endpoint=endpoint, remark=sent.remark)
