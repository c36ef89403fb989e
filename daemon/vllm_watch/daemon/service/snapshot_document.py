# SPDX-License-Identifier: Apache-2.0
"""The document at ``/api/v1/snapshot``: everything that is known of each server, as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from vllm_watch import __version__
from vllm_watch.daemon.exposition.json_view import as_document, event_documents
from vllm_watch.daemon.service.fleet import Fleet
from vllm_watch.daemon.service.history import ChartHistory
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.prometheus_alerts import Alerts, alerts_view
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.clock import Clock, seconds_ahead


def fleet_document(
    fleet: Fleet, clock: Clock, hours: Collection[str] | None = None, alerts: Alerts | None = None
) -> bytes:
    """
    Return all servers, with what the last hour of every server was, or of these, and the alerts of a Prometheus.

    Where the servers are not watched now but replayed, it says so, and how fast.
    """
    known = {snapshot.name: snapshot for snapshot in fleet.snapshots()}
    ahead = seconds_ahead(clock)

    def show(server: ServerMonitor) -> msgspec.Raw:
        with_hour = hours is None or server.name in hours
        return server_document(known[server.name], server.history if with_hour else None, ahead)

    servers = fleet.each(show, [server for server in fleet.servers if server.name in known])
    shown = {} if alerts is None else alerts_view(alerts, known, ahead)
    if clock.replay_speed is not None:
        shown["replay"] = {"speed": clock.replay_speed}
    return document(clock.now() + ahead, servers, shown)


def server_document(snapshot: ServerSnapshot, hour: ChartHistory | None, ahead: float = 0.0) -> msgspec.Raw:
    """
    Return one server, encoded by itself, so that one that cannot be encoded hides no other.

    Args:
        snapshot: The server.
        hour: Its last hour, if that is wanted.
        ahead: Seconds by which the snapshot's clock is ahead of the hour's.
    """
    server = as_document(snapshot)
    if hour is not None:
        server.history = hour.columns(ahead)
        server.events = event_documents(snapshot.events)
    return msgspec.Raw(msgspec.json.encode(server))


def document(at: float, servers: Sequence[msgspec.Raw], shown: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Return the servers of a moment, and what else is shown with them."""
    return msgspec.json.encode({"version": __version__, "at": at, **shown, "servers": servers})
