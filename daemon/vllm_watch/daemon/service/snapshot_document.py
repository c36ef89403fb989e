# SPDX-License-Identifier: Apache-2.0
"""Servers as JSON, with what was charted of the last hour."""

from __future__ import annotations

import math

from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from vllm_watch import __version__
from vllm_watch.daemon.exposition.json_view import as_document, event_documents
from vllm_watch.daemon.state.latencies import is_wide
from vllm_watch.daemon.state.snapshot import EngineSnapshot, ServerSnapshot


HISTORY_SECONDS = 3600.0
HISTORY_STEP = 10.0
"""Seconds between two points of a chart."""

_TTFT_P95 = ("time_to_first_token", 0.95)
_GAUGES = (
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
)
_NAMES = ("t", *_GAUGES, "ttft_p95")
_POINTS = int(HISTORY_SECONDS / HISTORY_STEP)


class ChartHistory:
    """Keeps the charted values of the last hour, 20 KiB; what is older is dropped."""

    def __init__(self) -> None:
        self._rows = array("d")
        """Moment after moment; NaN is a value that is not known."""

    def add(self, at: float, snapshot: ServerSnapshot) -> None:
        """Add the values of one moment, which is by a clock that nobody sets."""
        gauges = [_over_engines(snapshot, name) for name in _GAUGES]
        slowest = [value for engine in snapshot.engines if (value := _first_token(engine)) is not None]
        values = (at, *gauges, max(slowest, default=None))
        rows = self._rows[-(_POINTS - 1) * len(_NAMES) :]
        rows.extend([math.nan if value is None else value for value in values])
        self._rows = rows  # At once: another thread may be reading.

    def columns(self, ahead: float = 0.0) -> dict[str, list[float | None]]:
        """
        Return the values by name, oldest first, with their times as `t`.

        Args:
            ahead: Seconds by which the clock that is shown is ahead of that of `add`.
        """
        rows = self._rows.tolist()
        columns = {name: rows[number :: len(_NAMES)] for number, name in enumerate(_NAMES)}
        columns["t"] = [at + ahead for at in columns["t"]]
        return {name: [None if math.isnan(value) else value for value in column] for name, column in columns.items()}


def _first_token(engine: EngineSnapshot) -> float | None:
    """Return the p95 of the time to the first token; of a wide bucket the lower bound, which is known."""
    bounds, reading = engine.latencies.quantile_bounds.get(_TTFT_P95), engine.latencies.quantiles.get(_TTFT_P95)
    if bounds is not None and is_wide(bounds):
        return bounds[0]
    return None if reading is None else reading.value


def _over_engines(snapshot: ServerSnapshot, name: str) -> float | None:
    """Return one gauge of all engines: of a ratio the largest, else the sum, if every engine's part is known."""
    values = [engine.gauges[name].value for engine in snapshot.engines if name in engine.gauges]
    if name.endswith("_ratio"):
        return max(values, default=None)
    return sum(values) if values and len(values) == len(snapshot.engines) else None


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
