# SPDX-License-Identifier: Apache-2.0
"""Watches a running vllm-watch for a while: its /metrics, again and again."""

from __future__ import annotations

import threading

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from vllm_watch.analysis.loadtest.prometheus_history import (
    COUNTERS,
    HISTOGRAMS,
    LAST_READING,
    PLAIN,
    SERVER_GPU,
    Answers,
    PrometheusHistory,
)
from vllm_watch.analysis.loadtest.server_history import GPU_MEMORY, ServerHistory
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.daemon.catalog.series import PREFIX
from vllm_watch.daemon.prometheus.answers import PromSeries
from vllm_watch.daemon.sources.daemon_client import DaemonClient, DaemonTarget
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import DaemonError


EVERY_SECONDS = 5.0
"""Time between two looks at /metrics."""

_LAST_READING = PREFIX + LAST_READING
_NAMES = frozenset(
    PREFIX + name
    for name in (*PLAIN, *COUNTERS, *(f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum")))
)


class DaemonQuery(NamedTuple):
    """Which vllm-watch is watched, and for how many seconds."""

    target: DaemonTarget
    seconds: float


def watch_daemon(query: DaemonQuery, clock: Clock, progress: Progress = lambda _share: None) -> list[ServerHistory]:
    """Return what each server does from now on; raise `DaemonError` if that cannot be read."""
    with closing(DaemonClient(query.target)) as client:
        try:
            return _watch(client, query, clock, progress)
        except DaemonError as error:
            raise DaemonError(f"{client.url}: {error}") from None


def _watch(client: DaemonClient, query: DaemonQuery, clock: Clock, progress: Progress) -> list[ServerHistory]:
    histories: dict[str, PrometheusHistory] = defaultdict(lambda: PrometheusHistory(EVERY_SECONDS))
    start, never = clock.now(), threading.Event()
    while True:
        now = clock.now()
        families = _families(client.metrics().decode(errors="replace"))
        for name, series in families.items():
            histories[name].add(_answers(series, clock.wall(now)))
        if not histories:
            raise DaemonError("it watches no server")
        progress(min((now - start) / query.seconds, 1.0))
        if now - start >= query.seconds:
            break
        clock.wait(never, EVERY_SECONDS)
    return [history.build(f"{client.url}: {name}", name) for name, history in histories.items()]


def _families(text: str) -> dict[str, list[Sample]]:
    by_server: dict[str, list[Sample]] = defaultdict(list)
    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, IndexError):  # What the parser makes of a text that is none.
        raise DaemonError("/metrics is not what a vllm-watch answers") from None
    for sample in samples:
        if "server" in sample.labels and sample.name.startswith(PREFIX):
            by_server[sample.labels["server"]].append(sample)
    used, whole = (
        {each.labels["gpu"]: each.value for each in samples if each.name == f"{PREFIX}gpu_memory_{name}_bytes"}
        for name in ("used", "total")
    )
    for found in by_server.values():
        gpus = {each.labels["gpu"] for each in found if each.name == PREFIX + SERVER_GPU}
        shares = [used[gpu] / whole[gpu] for gpu in gpus & used.keys() & whole.keys()]
        found.extend(Sample(GPU_MEMORY, {}, share) for share in sorted(shares)[-1:])
    return by_server


def _answers(samples: Sequence[Sample], now: float) -> Answers:
    at = max([now, *(sample.value for sample in samples if sample.name == _LAST_READING)])
    series = (
        PromSeries({**sample.labels, "__name__": sample.name}, ((at, sample.value),))
        for sample in samples
        if sample.name in _NAMES
    )
    memory = (PromSeries({}, ((at, sample.value),)) for sample in samples if sample.name == GPU_MEMORY)
    return Answers((PromSeries({}, ((at, at),)),), tuple(series), memory=tuple(memory))
