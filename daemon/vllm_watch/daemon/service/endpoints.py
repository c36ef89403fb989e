# SPDX-License-Identifier: Apache-2.0
"""What the daemon answers over HTTP."""

from __future__ import annotations

import socket

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypedDict
from urllib.parse import urlsplit

import msgspec

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.exposition.samples import PlainSample, for_each_server, server_samples
from vllm_watch.daemon.exposition.text_format import TextWriter
from vllm_watch.daemon.service.alerts import Alerts
from vllm_watch.daemon.service.fleet import Fleet, fleet_document
from vllm_watch.daemon.service.service_thread import Liveness
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.web.routes import Response, plain_text


class DaemonEndpoints:
    """
    Answers for the web server: series, JSON, targets, health.

    Args:
        fleet: The servers to show.
        clock: The time.
        liveness: Which threads give signs of life.
        own_samples: Returns what the daemon knows about itself.
        alerts: Returns what the Prometheus has answered last, `None` if none is configured.
    """

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        liveness: Liveness,
        own_samples: Callable[[], Iterable[PlainSample]],
        alerts: Callable[[], Alerts | None] = lambda: None,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._liveness = liveness
        self._own_samples = own_samples
        self._alerts = alerts
        self._process_collector = ProcessCollector(registry=None)
        self._started_at = clock.wall(clock.now())

    def metrics(self, accept: str) -> Response:
        """Return all series, in the format that the client accepts."""
        encoder, content_type = choose_encoder(accept)
        servers = self._fleet.snapshots()
        writer = TextWriter({server.name: server.labels for server in servers})
        for_each_server(
            servers, lambda server, other_gpus: writer.add(server_samples(server, other_gpus)), self._fleet.note_failure
        )
        writer.add(self._own_samples())  # Last: it counts what has failed just now.
        families = writer.families(for_openmetrics="openmetrics" in content_type)
        return Response(b"".join([*families, encoder(self._process_collector)]), content_type)

    def otlp_body(self) -> bytes:
        """Return all series as the body of an OTLP request; for one thread at a time."""
        from vllm_watch.daemon.exposition.otlp import Exported, otlp_request  # noqa: PLC0415 - Imports protobuf.

        at = self._clock.wall(self._clock.now())
        exported = Exported(self._fleet.snapshots(), self._own_samples(), self._process_collector.collect(), at)
        instance = f"{socket.gethostname()}:{self._fleet.config.port}"
        return otlp_request(exported, instance, self._started_at, self._fleet.note_failure)

    def snapshot(self, histories: Collection[str] | None = None) -> Response:
        """Return everything that is known as JSON, with the last hour of every server, or of these."""
        return Response(fleet_document(self._fleet, self._clock, histories, self._alerts()), "application/json")

    def targets(self) -> Response:
        """Return the watched servers for Prometheus' http_sd."""
        return Response(msgspec.json.encode(target_groups(self._fleet.config.servers)), "application/json")

    def healthy(self) -> Response:
        """Return 503 while a thread has no heartbeat."""
        stale = self._liveness.stale()
        return plain_text(f"no heartbeat: {', '.join(stale)}", 503) if stale else plain_text("healthy", 200)

    def ready(self) -> Response:
        """Return 503 until each log was polled and each /metrics scraped once."""
        return (
            plain_text("ready", 200) if self._fleet.is_ready else plain_text("not every source has been read yet", 503)
        )


class TargetGroup(TypedDict):
    """Targets with the labels they share, with the names that Prometheus gives them."""

    targets: list[str]
    labels: dict[str, str]


def target_groups(servers: Iterable[ServerConfig]) -> list[TargetGroup]:
    """
    Return one group for each server whose /metrics is watched, as Prometheus finds targets over HTTP.

    So Prometheus can scrape vLLM itself, too. Tokens and certificates, which it also needs, are in its configuration.

    A URL's query is left out: it may hold a secret, and Prometheus shows labels to everybody.
    """
    return [_group(server.metrics.url, server.name, server.labels) for server in servers if server.metrics is not None]


def _group(url: str, name: str, labels: Mapping[str, str]) -> TargetGroup:
    parts = urlsplit(url)
    # Without a port Prometheus takes the one of the scheme, as the daemon does.
    return {
        "targets": [parts.netloc],
        "labels": {**labels, "server": name, "__scheme__": parts.scheme, "__metrics_path__": parts.path},
    }
