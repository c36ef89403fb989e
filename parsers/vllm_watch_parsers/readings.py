# SPDX-License-Identifier: Apache-2.0
"""What one scrape says of each engine and of the whole server; what it does not have is absent: missing is not zero."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from vllm_watch_parsers.exposition import EngineKey, Pairs, Problem
from vllm_watch_parsers.flags import Flags
from vllm_watch_parsers.front_ends import EngineKind, ForeignProgram, PageProblem
from vllm_watch_parsers.kv_transfer import NO_KV, KvReading
from vllm_watch_parsers.metric_names import ServerSeries


class Histogram(NamedTuple):
    """
    A histogram at one moment.

    `bounds` are the buckets' upper bounds, ascending and ending in infinity; `counts` are cumulative. `is_estimate` is
    whether `sum` was estimated from the buckets, so that no mean follows from it.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float
    is_estimate: bool = False

    @property
    def observations(self) -> float:
        """How many values were observed."""
        return self.counts[-1]

    @property
    def mean(self) -> float | None:
        """The mean of what was observed; `None` if nothing was, or if the sum is an estimate."""
        return None if self.is_estimate or not self.counts[-1] else self.sum / self.counts[-1]


class EngineReading(NamedTuple):
    """
    One engine in one scrape, keys as in `metric_names`.

    `position_accepted` counts tokens by draft position; `kv` is what its KV connectors show.
    """

    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    requests_finished: Mapping[str, float]
    position_accepted: tuple[float, ...]
    kv: KvReading = NO_KV


class HttpRequests(NamedTuple):
    """The labels of the API server's own counter; `status` is a class such as ``2xx``."""

    method: str
    handler: str
    status: str


class MetricsReading(NamedTuple):
    """
    One scrape.

    `admission_rejections` is by model and reason, `http_requests` is empty before 0.8.3. `kv_cache_tokens` and
    `max_concurrency` are facts from `vllm:cache_config_info`, `flags` the flags among its labels. `out_of_range` counts
    values out of range, by quantity, `dropped` the engines and values of labels that were over the limit, `long_lines`
    the lines that were skipped for their length. There are no engines yet if there was no request
    (`is_before_first_request`), or if nobody can tell which of several runs (`is_undecided`). `kind` is whose names the
    page bears, and `process` tells one server from another on a page that may have several: empty where none does.
    `server_values` and `server_histograms` are about the whole server, by series; a number of active LoRA adapters is
    among them only of a lone engine in one process.
    """

    engines: Mapping[EngineKey, EngineReading]
    admission_rejections: Mapping[tuple[str, str], float]
    http_requests: Mapping[HttpRequests, float]
    process_start_seconds: float | None
    kv_cache_tokens: Mapping[str, int]
    max_concurrency: Mapping[str, float]
    out_of_range: Mapping[str, int]
    dropped: int = 0
    long_lines: int = 0
    is_before_first_request: bool = False
    is_undecided: bool = False
    flags: Flags = ()
    kind: EngineKind = "vllm"
    process: Pairs = ()
    server_values: Mapping[ServerSeries, float] = MappingProxyType({})
    server_histograms: Mapping[ServerSeries, Histogram] = MappingProxyType({})

    @property
    def reason(self) -> Literal["ok", "no_requests_yet", "ray_idle"]:
        """``ok``, or why there is nothing in it."""
        if self.is_undecided:
            return "ray_idle"
        return "no_requests_yet" if self.is_before_first_request else "ok"


class Unreadable(NamedTuple):
    """Why a body is no reading of a vLLM server."""

    reason: Problem | ForeignProgram | PageProblem | Literal["stats_disabled"]
