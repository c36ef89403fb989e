# SPDX-License-Identifier: Apache-2.0
"""
A scrape of vLLM's /metrics as readings per engine, under names that no release changes.

What a scrape does not have is absent from the reading: missing is not zero.
"""

from __future__ import annotations

import math

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TypeVar

from vllm_watch_parsers.exposition import (
    DEFAULT_ENGINE,
    EngineKey,
    Exposition,
    Labels,
    parse_exposition,
    real_number,
)
from vllm_watch_parsers.fields import MAX_COUNT, MAX_REQUESTS, MAX_TOKENS, MAX_WORK
from vllm_watch_parsers.flags import cache_flags
from vllm_watch_parsers.front_ends import (
    OWN_PREFIX,
    WANTED,
    Page,
    foreign_program,
    page_of,
)
from vllm_watch_parsers.kv_transfer import KV_NAMES, NO_KV, KvReading, read_kv_page
from vllm_watch_parsers.metric_names import (
    ACCEPTED_PER_POSITION,
    ADMISSION_REJECTIONS,
    CACHE_CONFIG,
    COUNTED_BY_LABEL,
    COUNTERS,
    GAUGES,
    HISTOGRAM_PARTS,
    HISTOGRAMS,
    HTTP_REQUESTS,
    INFERENCE_HANDLERS,
    LORA_ACTIVE,
    LORA_MOST,
    PROCESS_START,
    REQUESTS_FINISHED,
    SERVER_HISTOGRAMS,
    SERVER_VALUES,
    SLEEP_STATE,
    V0_EMITTED_TOKENS,
    V0_SWAPPED,
    WAITING_BY_REASON,
    ServerSeries,
    lora_unknown,
)
from vllm_watch_parsers.readings import EngineReading, Histogram, HttpRequests, MetricsReading, Unreadable


MAX_ENGINES = 1024
MAX_POSITIONS = 64
MAX_LABEL_VALUES = 64
"""So many values of one label (reasons, positions) are kept of each engine."""

_RANGES: dict[str, tuple[float, float]] = {
    "requests_running": (0, MAX_REQUESTS),
    "requests_waiting": (0, MAX_REQUESTS),
    "requests_swapped": (0, MAX_REQUESTS),
    "requests_deferred": (0, MAX_REQUESTS),
    "kv_cache_usage_ratio": (0, 1),
    "awake": (0, 1),
    "prefix_cache_hit_ratio_lifetime": (0, 1),
    "acceptance_ratio_lifetime": (0, 1),
    "cpu_kv_cache_usage_ratio": (0, 1),
    "cpu_prefix_cache_hit_ratio_lifetime": (0, 1),
    "system_efficiency_lifetime": (0, 1),
}
_WORK = frozenset({"estimated_flops", "estimated_read_bytes", "estimated_write_bytes"})
_DISABLED = -1.0
_INFERENCE = INFERENCE_HANDLERS | {"/generate"}
"""With the handler that only the Rust front end has."""

_BUCKET, _SUM, _ = HISTOGRAM_PARTS
_OF_SERVER = frozenset([*SERVER_VALUES, *(name + part for name in SERVER_HISTOGRAMS for part in HISTOGRAM_PARTS)])

Key = TypeVar("Key")


def read_metrics(body: bytes) -> MetricsReading | Unreadable:
    """
    Read a whole body in the Prometheus text format or OpenMetrics.

    Returns:
        The reading, or why there is none: the body is no exposition, is cut off, is far too large, is another
        program's, or has no vLLM series at all (``--disable-log-stats``).
    """
    return reading_of(parse_exposition(body, WANTED))


def reading_of(exposition: Exposition) -> MetricsReading | Unreadable:
    """Return the reading of a body, parsed for the names in `WANTED`; see `read_metrics`."""
    if exposition.problem is not None:
        return Unreadable(exposition.problem)
    page = page_of(exposition.series)
    refused = page.problem or (None if page.is_undecided else foreign_program(exposition.foreign_names, page.series))
    if refused is not None:
        return Unreadable(refused)
    reading = _SeriesReader(page).read()._replace(long_lines=exposition.long_lines)
    reading = _with_lora(reading, exposition, is_v0=V0_SWAPPED in page.series)
    # The series of an API server are there without statistics, too.
    if page.is_undecided or any(name.startswith(OWN_PREFIX) and name not in _OF_SERVER for name in page.series):
        return reading._replace(is_undecided=page.is_undecided)
    if _is_before_first_request(exposition, reading):
        return reading._replace(is_before_first_request=True)
    return Unreadable("stats_disabled" if exposition.series or exposition.foreign_names else "not_metrics")


def _with_lora(reading: MetricsReading, exposition: Exposition, *, is_v0: bool) -> MetricsReading:
    """
    Add the numbers of LoRA adapters, or why nobody knows how many are active.

    Several engines write over each other's, and several processes of one API server add theirs up. Such processes have
    no `process_start_time_seconds`; nor has V0's engine, which is one.
    """
    lora = exposition.lora
    if lora is None:
        return reading
    unknown, is_on = lora.unknown, lora.active is not None or lora.unknown is not None
    if is_on and not (is_v0 or exposition.is_openmetrics or reading.process_start_seconds is not None):
        unknown = "several_processes"
    if is_on and len({key.engine for key in reading.engines}) > 1:
        unknown = "several_engines"
    known: dict[ServerSeries, float] = {} if lora.most is None else {LORA_MOST: float(lora.most)}
    if reading.engines and unknown is not None:
        known[lora_unknown(unknown)] = 1.0
    elif reading.engines and lora.active is not None:
        known[LORA_ACTIVE] = float(lora.active)
    return reading._replace(server_values={**reading.server_values, **known})


def _is_before_first_request(exposition: Exposition, reading: MetricsReading) -> bool:
    """
    Return whether this is the Rust front end before its first request: it has no series before there is a count.

    Its body is OpenMetrics and has at most the counters of HTTP requests, without a completion among them.
    """
    is_of_http = (
        all(name.startswith("http_") for name in exposition.foreign_names) and reading.process_start_seconds is None
    )
    has_asked = any(request.handler in _INFERENCE and count for request, count in reading.http_requests.items())
    return exposition.is_openmetrics and is_of_http and not has_asked


class _Engine:
    """What the series of one engine have said so far."""

    def __init__(self) -> None:
        self.gauges: dict[str, float] = {}
        self.counters: dict[str, float] = {}
        self.histograms: dict[str, Histogram] = {}
        self.requests_finished: dict[str, float] = {}
        self.positions: dict[str, float] = {}


class _SeriesReader:
    """Gathers the series of one scrape by engine."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._series = page.series
        self._engines: dict[EngineKey, _Engine] = defaultdict(_Engine)
        self._out_of_range: dict[str, int] = defaultdict(int)
        self._dropped = 0

    def read(self) -> MetricsReading:
        """Return the reading; engines over the limit are dropped, the first ones by name are kept."""
        self._read_gauges()
        self._read_counters()
        self._read_histograms()
        for key, reason, value in self._by_label(REQUESTS_FINISHED, "finished_reason"):
            self._add(self._engines[key].requests_finished, reason, value, "requests_finished")
        for key, position, value in self._by_label(ACCEPTED_PER_POSITION, "position"):
            self._add(self._engines[key].positions, position, value, "position_accepted")
        ordered = sorted(self._engines, key=lambda key: (key.model_name, len(key.engine), key.engine))[:MAX_ENGINES]
        self._dropped += len(self._engines) - len(ordered)
        kv = self._kv(ordered)
        engines = {key: _reading(self._engines[key], kv.get(key, NO_KV)) for key in ordered}
        tokens, concurrency = self._cache_config(len({key.engine for key in engines}))
        return MetricsReading(
            engines=engines,
            admission_rejections=self._admission_rejections(),
            http_requests=self._http_requests(),
            process_start_seconds=self._process_start(),
            server_values=self._server_values(),
            server_histograms=self._server_histograms(),
            kv_cache_tokens=tokens,
            max_concurrency=concurrency,
            out_of_range=dict(self._out_of_range),
            dropped=self._dropped,
            flags=cache_flags(dict(next(iter(self._series.get(CACHE_CONFIG, {})), ()))),
            kind=self._page.kind,
            process=self._page.process,
        )

    def _newest(self, names: Iterable[str]) -> Mapping[Labels, float]:
        """Return the series of the newest name that there is."""
        return next((self._series[name] for name in names if name in self._series), {})

    def _by_label(self, name: str, label: str) -> Iterator[tuple[EngineKey, str, float]]:
        """Yield the values of a family by engine and by a label of its own."""
        for labels, value in self._series.get(name, {}).items():
            said = dict(labels).get(label)
            if said is not None:
                yield labels.engine, said, value

    def _read_gauges(self) -> None:
        """Read the gauges in range; V0's ratios are -1 where prefix caching is off."""
        for quantity, names in GAUGES.items():
            for labels, value in self._newest(names).items():
                if value != _DISABLED or not quantity.endswith("_lifetime"):
                    self._put_gauge(labels.engine, quantity, value)
        for name, label, wanted, quantity in (
            (WAITING_BY_REASON, "reason", "deferred", "requests_deferred"),
            (SLEEP_STATE, "sleep_state", "awake", "awake"),
        ):
            for key, said, value in self._by_label(name, label):
                if said == wanted:
                    self._put_gauge(key, quantity, value)

    def _put_gauge(self, key: EngineKey, quantity: str, value: float) -> None:
        gauges = self._engines[key].gauges
        least, most = _RANGES[quantity]
        if not least <= value <= most:
            self._out_of_range[quantity] += 1
            return
        # Several processes behind one /metrics have a `pid` each: the fullest is the one to act on.
        gauges[quantity] = max(value, gauges.get(quantity, value))

    def _read_counters(self) -> None:
        for quantity, names in COUNTERS.items():
            if quantity in {"drafts", "drafted_tokens", "accepted_tokens"} and V0_EMITTED_TOKENS in self._series:
                continue
            for labels, value in self._newest(names).items():
                self._add(self._engines[labels.engine].counters, quantity, value, quantity)
        for name, (label, quantities) in COUNTED_BY_LABEL.items():
            for key, said, value in self._by_label(name, label):
                if said in quantities:
                    self._add(self._engines[key].counters, quantities[said], value, quantities[said])

    def _add(self, counts: dict[str, float], name: str, value: float, quantity: str) -> None:
        """Add a value to what a name has, if it is a count; new names are kept up to a number."""
        if not self._is_count(value, quantity):
            return
        if name in counts or len(counts) < MAX_LABEL_VALUES:
            counts[name] = counts.get(name, 0) + value
        else:
            self._dropped += 1

    def _is_count(self, value: float, quantity: str) -> bool:
        is_count = 0 <= value <= (MAX_WORK if quantity in _WORK else MAX_COUNT)
        if not is_count:
            self._out_of_range[quantity] += 1
        return is_count

    def _kv(self, keys: Sequence[EngineKey]) -> Mapping[EngineKey, KvReading]:
        """Return what the KV connectors of the engines show."""
        if KV_NAMES.isdisjoint(self._series):
            return {}
        engines, out_of_range = read_kv_page(self._series, keys)
        for series, count in out_of_range.items():
            self._out_of_range[series] += count
        return engines

    def _read_histograms(self) -> None:
        """Read the histograms, each by the newest name that there is; malformed ones count as out of range."""
        for quantity, names in HISTOGRAMS.items():
            name = next((name for name in names if name + _BUCKET in self._series), None)
            for key, histogram in self._family(name, quantity, attrgetter("engine")) if name is not None else ():
                is_estimate = self._page.has_estimated_sums
                self._engines[key].histograms[quantity] = histogram._replace(is_estimate=is_estimate)

    def _family(self, name: str, quantity: str, key_of: Callable[[Labels], Key]) -> Iterator[tuple[Key, Histogram]]:
        """Yield the well-formed histograms of one family by what their labels say they are about."""
        buckets: dict[Key, dict[float, float]] = defaultdict(lambda: defaultdict(float))
        for labels, value in self._series.get(name + _BUCKET, {}).items():
            buckets[key_of(labels)][labels.bound] += value  # Several processes have one each.
        sums: dict[Key, float] = defaultdict(float)
        for labels, value in self._series.get(name + _SUM, {}).items():
            sums[key_of(labels)] += value
        for key, counts in buckets.items():
            histogram = _histogram(counts, sums.get(key))
            if histogram is None:
                self._out_of_range[quantity] += 1
            else:
                yield key, histogram

    def _server_values(self) -> dict[ServerSeries, float]:
        found: dict[ServerSeries, float] = {}
        for name, family in SERVER_VALUES.items():
            for labels, value in self._series.get(name, {}).items():
                series = family.series(labels)
                if self._is_count(value, series.name):
                    found[series] = found.get(series, 0.0) + value
        return found

    def _server_histograms(self) -> dict[ServerSeries, Histogram]:
        found: dict[ServerSeries, Histogram] = {}
        for name, family in SERVER_HISTOGRAMS.items():
            found.update(self._family(name, family.name, family.series))
        return found

    def _admission_rejections(self) -> dict[tuple[str, str], float]:
        rejections: dict[tuple[str, str], float] = {}
        for labels, value in self._series.get(ADMISSION_REJECTIONS, {}).items():
            named = dict(labels)
            if not self._is_count(value, "admission_rejections"):
                continue
            if len(rejections) < MAX_LABEL_VALUES:
                rejections[named.get("model_name", ""), named.get("reason", "")] = value
            else:
                self._dropped += 1
        return rejections

    def _http_requests(self) -> dict[HttpRequests, float]:
        requests: dict[HttpRequests, float] = {}
        for labels, value in self._series.get(HTTP_REQUESTS, {}).items():
            named = dict(labels)
            key = HttpRequests(named.get("method", ""), named.get("handler", ""), named.get("status", ""))
            if self._is_count(value, "http_requests"):
                requests[key] = value
        return requests

    def _process_start(self) -> float | None:
        started = next(iter(self._series.get(PROCESS_START, {}).values()), None)
        return None if started is None or not self._is_count(started, "process_start_seconds") else started

    def _cache_config(self, engines: int) -> tuple[dict[str, int], dict[str, float]]:
        """Read the capacity of a lone engine: under data parallelism each series has the sum of all engines."""
        tokens: dict[str, int] = {}
        concurrency: dict[str, float] = {}
        is_v0 = V0_SWAPPED in self._series
        for labels in self._series.get(CACHE_CONFIG, {}) if engines == 1 else ():
            named = dict(labels)
            engine = named.get("engine", DEFAULT_ENGINE)
            size = _whole(named.get("kv_cache_size_tokens", ""))
            if size is None and is_v0:  # V1's blocks are shared by groups of layers, which /metrics does not have.
                size = _product(named.get("num_gpu_blocks", ""), named.get("block_size", ""))
            if size and size <= MAX_TOKENS:
                tokens[engine] = size
            ratio = real_number(named.get("kv_cache_max_concurrency", ""))
            if ratio is not None and 0 < ratio <= MAX_REQUESTS:
                concurrency[engine] = ratio
        return tokens, concurrency


def _reading(engine: _Engine, kv: KvReading) -> EngineReading:
    positions = _in_order(engine.positions)
    return EngineReading(engine.gauges, engine.counters, engine.histograms, engine.requests_finished, positions, kv)


def _in_order(counts: Mapping[str, float]) -> tuple[float, ...]:
    """Return the counts of positions 0, 1, 2 … as far as there is no gap."""
    ordered = []
    for position in range(min(len(counts), MAX_POSITIONS)):
        if str(position) not in counts:
            break
        ordered.append(counts[str(position)])
    return tuple(ordered)


def _histogram(buckets: Mapping[float, float], total: float | None) -> Histogram | None:
    """Return a histogram if it is well formed: sound bounds, whole counts that never fall, and no sum below 0."""
    bounds = _ascending(tuple(buckets))
    if bounds is None or total is None:
        return None
    counts = tuple([buckets[bound] for bound in bounds])
    # Sorted is what never falls: NaN, which has no order, is no whole number.
    is_whole = all(map(float.is_integer, counts)) and counts[0] >= 0 and counts[-1] <= MAX_COUNT
    is_sound = is_whole and list(counts) == sorted(counts) and 0 <= total < math.inf
    return Histogram(bounds, counts, total) if is_sound else None


@lru_cache(maxsize=256)  # Those of one family are one object in all readings that are kept.
def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...] | None:
    """Return the bounds of buckets in their order; `None` if they are not those of a histogram."""
    is_sound = math.inf in bounds and not any(math.isnan(bound) or bound < 0 for bound in bounds)
    return tuple(sorted(bounds)) if is_sound else None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _product(blocks: str, size: str) -> int | None:
    left, right = _whole(blocks), _whole(size)
    return None if left is None or right is None else left * right


__all__ = [
    "DEFAULT_ENGINE",
    "EngineKey",
    "EngineReading",
    "Histogram",
    "HttpRequests",
    "MetricsReading",
    "Unreadable",
    "read_metrics",
    "reading_of",
]
