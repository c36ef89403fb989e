# SPDX-License-Identifier: Apache-2.0
"""What the daemon answers over HTTP."""

from __future__ import annotations

import socket
import threading
import zlib

from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from typing import NamedTuple

import msgspec

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder

from vllm_watch.daemon.exposition.collector import TextCollector
from vllm_watch.daemon.exposition.http_sd import target_groups
from vllm_watch.daemon.exposition.self_metrics import SelfStatus, self_metrics
from vllm_watch.daemon.exposition.text_format import prometheus_text
from vllm_watch.daemon.service.fleet import Fleet
from vllm_watch.daemon.service.liveness import Liveness
from vllm_watch.daemon.service.prometheus_alerts import Alerts
from vllm_watch.daemon.service.snapshot_document import fleet_document
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.web.endpoints import PLAIN_TEXT, Response, accepts_gzip


_QUICKLY = 1
"""How much zlib tries: harder, it takes twice as long for an eighth less."""
_GZIP = zlib.MAX_WBITS + 16


class _Form(NamedTuple):
    """The form in which a client wants the series."""

    content_type: str
    is_compressed: bool


class DaemonEndpoints:
    """
    Answers for the web server: series, JSON, targets, health.

    Args:
        fleet: The servers to show.
        clock: The time.
        liveness: Which threads give signs of life.
        self_status: Returns what the daemon knows about itself.
        alerts: Returns what the Prometheus has answered last, `None` if none is configured.
    """

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        liveness: Liveness,
        self_status: Callable[[], SelfStatus],
        alerts: Callable[[], Alerts | None] = lambda: None,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._liveness = liveness
        self._self_status = self_status
        self._alerts = alerts
        self._metrics_lock = threading.Lock()
        self._metrics_of: list[ServerSnapshot] = []
        """The snapshots from which these were made:"""
        self._metrics: dict[_Form, Response] = {}
        self._collector = TextCollector()
        self._process_collector = ProcessCollector(registry=None)
        self._started_at = clock.wall(clock.now())

    def metrics(self, accept: str, accept_encoding: str) -> Response:
        """Return all series, in the format that the client accepts; clients that ask together share one response."""
        _, content_type = choose_encoder(accept)
        form = _Form(content_type, accepts_gzip(accept_encoding))
        with self._metrics_lock:
            shown = self._fleet.snapshots()
            if shown is not self._metrics_of:
                self._metrics_of, self._metrics = shown, {}  # Frees megabytes before others are made.
            if form not in self._metrics:
                self._metrics[form] = self._write_metrics(form, shown)
            return self._metrics[form]

    def otlp_body(self) -> bytes:
        """Return all series as the body of an OTLP request; for one thread at a time."""
        from vllm_watch.daemon.service.otlp_request import Shown, otlp_request  # noqa: PLC0415 - Imports protobuf.

        at = self._clock.wall(self._clock.now())
        own, process = self_metrics(self._self_status()), self._process_collector.collect()
        shown = Shown(self._fleet.snapshots(), own, process, at)
        instance = f"{socket.gethostname()}:{self._fleet.config.port}"
        return otlp_request(shown, instance, self._started_at, self._fleet.note_failure)

    def snapshot(self, histories: Collection[str] | None = None) -> Response:
        """Return everything that is known as JSON, with the last hour of every server, or of these."""
        return Response(fleet_document(self._fleet, self._clock, histories, self._alerts()), "application/json")

    def targets(self) -> Response:
        """Return the watched servers for Prometheus' http_sd."""
        return Response(msgspec.json.encode(target_groups(self._fleet.config.servers)), "application/json")

    def healthy(self) -> Response:
        """Return 503 while a thread has no heartbeat."""
        stale = self._liveness.stale()
        if stale:
            return Response(f"no heartbeat: {', '.join(stale)}\n".encode(), PLAIN_TEXT, 503)
        return Response(b"healthy\n", PLAIN_TEXT)

    def ready(self) -> Response:
        """Return 503 until each log was polled and each /metrics scraped once."""
        if self._fleet.is_ready:
            return Response(b"ready\n", PLAIN_TEXT)
        return Response(b"not every source has been read yet\n", PLAIN_TEXT, 503)

    def _write_metrics(self, form: _Form, shown: Sequence[ServerSnapshot]) -> Response:
        texts = self._collector.texts(shown, lambda: self_metrics(self._self_status()), failed=self._fleet.note_failure)
        for_openmetrics = "openmetrics" in form.content_type
        families = prometheus_text(texts, self._process_collector.collect(), for_openmetrics=for_openmetrics)
        if not form.is_compressed:
            body = BytesIO()
            body.writelines(families)  # `join` would first make all of them: as many megabytes again.
            return Response(body.getvalue(), form.content_type)
        packer = zlib.compressobj(_QUICKLY, wbits=_GZIP)
        packed = [packer.compress(family) for family in families]
        return Response(b"".join([*packed, packer.flush()]), form.content_type, encoding="gzip")
