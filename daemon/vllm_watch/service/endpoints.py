# SPDX-License-Identifier: Apache-2.0
"""What the daemon answers over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder

from vllm_watch import __version__
from vllm_watch.exposition.collector import SnapshotCollector
from vllm_watch.exposition.http_sd import target_groups
from vllm_watch.exposition.json_view import server_view
from vllm_watch.exposition.self_metrics import SelfStatus, self_metrics
from vllm_watch.exposition.text_format import prometheus_text
from vllm_watch.service.fleet import Fleet
from vllm_watch.service.liveness import Liveness
from vllm_watch.service.monitor import ServerMonitor
from vllm_watch.support.clock import Clock, wall_time
from vllm_watch.web.endpoints import PLAIN_TEXT, Response, accepts_gzip, compressed


class DaemonEndpoints:
    """
    Answers for the web server: series, JSON, targets, health.

    Args:
        fleet: The servers to show.
        clock: The time.
        liveness: Which threads give signs of life.
        self_status: Returns what the daemon knows about itself.
    """

    def __init__(self, fleet: Fleet, clock: Clock, liveness: Liveness, self_status: Callable[[], SelfStatus]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._liveness = liveness
        self._collector = SnapshotCollector(
            fleet.snapshots, lambda: self_metrics(self_status()), failed=fleet.note_failure
        )
        self._process_collector = ProcessCollector(registry=None)

    def metrics(self, accept: str, accept_encoding: str) -> Response:
        """Return all series, in the format that the client accepts."""
        _, content_type = choose_encoder(accept)
        collected, of_process = self._collector.collect(), self._process_collector.collect()
        text = prometheus_text(collected, of_process, for_openmetrics="openmetrics" in content_type)
        answer = Response(text, content_type)
        return compressed(answer) if accepts_gzip(accept_encoding) else answer

    def snapshot(self, histories: Collection[str] | None = None) -> Response:
        """Return everything that is known as JSON, with the last hour of every server, or of these."""

        def show(server: ServerMonitor) -> msgspec.Raw:
            view = server_view(server.snapshot())
            if histories is None or server.name in histories:
                view["history"] = server.history.columns()
            return msgspec.Raw(msgspec.json.encode(view))  # Each by itself: one that cannot be encoded hides no other.

        servers = self._fleet.each(show)
        at = wall_time(self._clock, self._clock.now())
        body = msgspec.json.encode({"version": __version__, "at": at, "servers": servers})
        return Response(body, "application/json")

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
