# SPDX-License-Identifier: Apache-2.0
"""What is pushed over OTLP: what /metrics shows at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client.core import Metric

from vllm_watch.daemon.exposition.gpu_samples import gpu_parts
from vllm_watch.daemon.exposition.line_starts import configured_labels
from vllm_watch.daemon.exposition.otlp import OtlpWriter, When
from vllm_watch.daemon.exposition.sample_values import AnySample, PlainSample
from vllm_watch.daemon.exposition.samples import sample_parts
from vllm_watch.daemon.state.snapshot import ServerSnapshot


COUNTED_BY_THE_SERVER = "totals"
"""The part of a snapshot's samples whose counters begin again with the server."""
COUNTED_BY_THE_DRIVER = "gpu"
"""The part whose counters begin with the driver or the card, nobody knows when. All others begin with the daemon."""


class Shown(NamedTuple):
    """
    What /metrics shows at one moment.

    Args:
        servers: The servers.
        own: The daemon's samples about itself.
        process: Families about the daemon's process.
        at: The moment, in seconds since the epoch.
    """

    servers: Sequence[ServerSnapshot]
    own: Iterable[PlainSample]
    process: Iterable[Metric]
    at: float


def otlp_request(shown: Shown, instance: str, daemon_start: float, failed: Callable[[str, Exception], None]) -> bytes:
    """
    Return the body of a request.

    Args:
        shown: What to push.
        instance: What distinguishes this daemon from others.
        daemon_start: When the daemon began to count, in seconds since the epoch.
        failed: Is called with the name of a server whose snapshot cannot be exported, and the error.
    """
    writer = OtlpWriter(instance)
    configured = configured_labels({server.name: server.labels for server in shown.servers})
    gpus: set[str] = set()
    for server in shown.servers:
        try:
            parts = _parts_of(server, gpus)
        except Exception as error:  # noqa: BLE001 - One server must not hide the others; `failed` logs the error.
            failed(server.name, error)
            continue
        gpus.update([each.gpu for each in server.gpus if each.reading is not None])
        started = server.start_time.value if server.start_time is not None else None
        starts: dict[object, float | None] = {COUNTED_BY_THE_SERVER: started, COUNTED_BY_THE_DRIVER: None}
        for part, samples in parts:
            start = starts.get(part, daemon_start)
            writer.add(samples, When(server.at, start), configured.of_server.get(server.name, {}))
    own = When(shown.at, daemon_start)
    writer.add(shown.own, own, {})
    writer.add_families(shown.process, own)
    return writer.body()


def _parts_of(server: ServerSnapshot, gpus: set[str]) -> list[tuple[object, list[AnySample]]]:
    """Return the samples of a server and of its GPUs but for these, each part with its name."""
    parts = (*sample_parts(server), *gpu_parts(server, gpus))
    return [(part.name[0], list(part.samples())) for part in parts]
