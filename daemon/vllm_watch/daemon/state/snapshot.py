# SPDX-License-Identifier: Apache-2.0
"""What is known about a server at one moment: immutable, built for every request."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from vllm_watch.daemon.capacity.load import EngineCapacity
from vllm_watch.daemon.catalog.event_texts import EventKind
from vllm_watch.daemon.catalog.reasons import SourceName
from vllm_watch.daemon.catalog.states import Cause, EngineState, common
from vllm_watch.daemon.reading.log_reader import TailCounts
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.http_source import HttpRequestKey
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.state.step_times import StepClass, StepTime
from vllm_watch_parsers.events import AdapterChangeKind
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.front_ends import EngineKind
from vllm_watch_parsers.kv_transfer import KvKey
from vllm_watch_parsers.metric_names import ServerSeries
from vllm_watch_parsers.readings import Histogram


_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}


FlagSource = Literal["log", "metrics", "command line"]
"""Where a flag's value is from; each is an origin of the catalog."""


class Reading(NamedTuple):
    """A value, its time (seconds since the epoch), and its source."""

    value: float
    at: float
    source: SourceName


class HistogramReading(NamedTuple):
    """A histogram and its time."""

    histogram: Histogram
    at: float


class EngineTotals(NamedTuple):
    """
    What one engine has counted in its server's present life; in the last one, while no other has started.

    `counters` and `histograms` are by the names of the series without their prefix, `requests_finished` by reason,
    `prompt_tokens` by source. `kv` is what its KV connectors have moved, `by_label` are other counters by series and
    the value of its last label.
    """

    key: EngineKey
    counters: Mapping[str, Reading]
    requests_finished: Mapping[str, Reading]
    prompt_tokens: Mapping[str, Reading]
    histograms: Mapping[str, HistogramReading]
    kv: Mapping[KvKey, Reading] = MappingProxyType({})
    by_label: Mapping[tuple[str, str], Reading] = MappingProxyType({})


class Latencies(NamedTuple):
    """
    How long a request's stages have taken in the last minute, in seconds.

    `quantiles` are by stage and quantile; one in the first bucket of its histogram is left out: all that is known is
    that it is below the bucket's bound, which `first_bounds` has for every stage in /metrics. `quantile_bounds` has the
    bounds of the buckets of those that are coarse: of a wide one (`latencies.is_wide`) they are all that is known.
    """

    quantiles: Mapping[tuple[str, float], Reading] = MappingProxyType({})
    means: Mapping[str, Reading] = MappingProxyType({})
    first_bounds: Mapping[str, Reading] = MappingProxyType({})
    quantile_bounds: Mapping[tuple[str, float], tuple[float, float]] = MappingProxyType({})


class StateSince(NamedTuple):
    """
    Since when an engine is in a state.

    Args:
        state: The state.
        at: When it was first seen in it.
        is_exact: Whether another state, and a known one, was seen just before; else it may be in this one for longer.
    """

    state: EngineState
    at: float
    is_exact: bool


class StallCount(NamedTuple):
    """How often an engine was shown as stalled, and for how many seconds in all, since the daemon started."""

    stalls: int = 0
    seconds: float = 0.0


class EngineSnapshot(NamedTuple):
    """
    One engine.

    `gauges` and `facts` are keyed by the names of the series without their prefix; what is not known is left out.
    `position_acceptance` is in the order of the positions, `None` where a position's is not known. `disagreements` is
    whether the sources differ, by quantity, of those that both have reported for minutes. `startup_seconds` is how long
    the phases of the start took, by phase. `prompt_excludes_cached` is whether prompt tokens per second are without
    cached ones, `None` if that is not known. `step_times` are those of decode steps, by what the steps had to do.
    """

    key: EngineKey
    state: EngineState
    gauges: Mapping[str, Reading]
    prompt_excludes_cached: bool | None
    position_acceptance: tuple[Reading | None, ...]
    totals: EngineTotals
    latencies: Latencies
    facts: Mapping[str, float]
    startup_seconds: Mapping[str, float]
    disagreements: Mapping[str, bool]
    step_times: Mapping[StepClass, StepTime]
    cause: Cause | None = None
    """Why it is in a bad state, as far as that is known."""
    capacity: EngineCapacity = EngineCapacity()
    """How many tokens per second it sustains, or why that is not known."""
    state_since: StateSince | None = None
    """Since when it is in its state."""
    stalls: StallCount = StallCount()
    kv: Mapping[KvKey, Reading] = MappingProxyType({})
    """What its KV connectors do now."""
    by_source: Mapping[SourceName, Mapping[str, Reading | None]] = MappingProxyType({})
    """Its gauges by each source, whether or not that decides; `None` is one without a value at present."""

    @property
    def counters(self) -> Mapping[str, Reading]:
        """What it has counted, by the names of the series."""
        return self.totals.counters

    @property
    def requests_finished(self) -> Mapping[str, Reading]:
        """The requests that it has finished, by reason."""
        return self.totals.requests_finished

    @property
    def histograms(self) -> Mapping[str, HistogramReading]:
        """How long its requests took, by the names of the series."""
        return self.totals.histograms


class SourceSnapshot(NamedTuple):
    """
    One source of a server: whether it can be read, and why it is quiet.

    `engine_kind` is whose names /metrics bears, `None` for other sources and while it is not read.
    """

    source: SourceName
    is_up: bool
    reason: str
    last_reading: float | None
    engine_kind: EngineKind | None = None


class FailureTimes(NamedTuple):
    """When failures of one kind were reported first and last, in seconds since the epoch."""

    first: float
    last: float


class LogCounts(NamedTuple):
    """
    What the log has reported so far, as counters since this process started to read it.

    `failure_times` has the kinds of failures that it has reported. `adapter_changes` is how many LoRA adapters were
    loaded and removed, empty while none was.
    """

    events: Mapping[str, int]
    starts: int
    unparsed_stats_lines: int
    unknown_fields: Mapping[str, int]
    continuation_lines: int
    rejected_lines: int
    failure_times: Mapping[str, FailureTimes] = MappingProxyType({})
    adapter_changes: Mapping[AdapterChangeKind, int] = MappingProxyType({})


class ServerEvent(NamedTuple):
    """
    Something that happened to a server.

    Args:
        at: When; of several, the last.
        kind: What it was.
        what: A start's other flags, in words; else a code: the new state, the kind of failure, what became of the file,
            what the kernel reports of a GPU, or a GPU's new state.
        before: The state before, if it is a change of state.
        engine: The engine whose state changed, or that failed, if that is known.
        times: How often it happened without anything else in between.
        gpu: The place of the GPU that the kernel reports an error of, or whose state changed.
        path: The file into which vLLM's watchdog wrote what its threads do.
    """

    at: float
    kind: EventKind
    what: str = ""
    before: EngineState | None = None
    engine: str | None = None
    times: int = 1
    gpu: str | None = None
    path: str | None = None


class FlagChange(NamedTuple):
    """
    A flag with its values before and after; `None` where it was not set.

    Beside flags there are ``version``, ``model`` and ``engine-generation`` (V0, V1).
    """

    flag: str
    old: str | None
    new: str | None


class ConfigChange(NamedTuple):
    """
    What the last start with other flags or another version has changed, by the flags' names.

    `at` is the time of that start in seconds since the epoch, `None` where the log has no times.
    """

    at: float | None
    changes: tuple[FlagChange, ...]

    def later(self, seconds: float) -> ConfigChange:
        """Return the same change, some seconds later."""
        return self if self.at is None else self._replace(at=self.at + seconds)

    @property
    def text(self) -> str:
        """The changes in words: ``max-num-batched-tokens 2048 → 8192, version 0.32.0 → 0.33.0``."""
        return ", ".join(f"{each.flag} {each.old or NOT_SET} → {each.new or NOT_SET}" for each in self.changes)


NOT_SET = "(not set)"
"""What stands in words for a flag without a value."""


class FlagValue(NamedTuple):
    """A flag's value as text, and where it is from."""

    value: str
    source: FlagSource


class Configuration(NamedTuple):
    """
    What is known of a server's flags.

    `flags` are by name. `digest` is 8 hexadecimal digits that are the same for every start with the same flags and
    model, by the log, where that has none by the command line, else by /metrics; `None` while a server starts, and
    where nothing is known. `change` is what the last start that changed anything and is over has changed, if that is
    known.
    `facts` are the numbers among the flags that are series, by their names, and `labels` the flags that are labels.
    `are_all_known` is whether a flag that is not there was not given: the log of a start or the command line is known.
    """

    flags: Mapping[str, FlagValue] = MappingProxyType({})
    digest: str | None = None
    change: ConfigChange | None = None
    facts: Mapping[str, float] = MappingProxyType({})
    labels: Mapping[str, str] = MappingProxyType({})
    are_all_known: bool = False


class ServerSnapshot(NamedTuple):
    """
    One server.

    `former` has the counts of engines that are not among `engines`: the last scrape named them, and another source, or
    the server's next start, names others.
    `starts` and `http_requests` come from its log where it has one, else from its /metrics; `http_requests` from there
    also where the log has no access lines. `start_time` is by the
    clock of its source: from the log by that of the other times, from /metrics by the server's own.
    `links` are URLs by what they lead to (``logs``, ``gpu``), in which placeholders of the time are left.
    `events` are those of the last hour, oldest first. `gpus` are those that it uses, as far as that is known.
    `cost_per_hour` is in the currency of the configuration. `gpu_xids` is how many errors of its GPUs the kernel has
    reported since the daemon started; `None` while the kernel's log is not read. `of_server` is what /metrics
    has about the whole server, by series.
    """

    name: str
    at: float
    version: str | None
    engine_generation: str | None
    model_name: str
    configuration: Configuration
    engines: tuple[EngineSnapshot, ...]
    former: tuple[EngineTotals, ...]
    sources: tuple[SourceSnapshot, ...]
    starts: int
    start_time: Reading | None
    http_requests: Mapping[HttpRequestKey, float]
    admission_rejections: Mapping[tuple[str, str], Reading]
    missing_metrics: Mapping[str, bool]
    values_out_of_range: Mapping[tuple[SourceName, str], int]
    label_values_dropped: Mapping[SourceName, int]
    scrape_long_lines: int | None
    log: LogCounts | None
    tail: TailCounts | None
    scrape_duration: float | None
    probe: ProbeResult | None
    slo: Mapping[str, float]
    labels: Mapping[str, str]
    links: Mapping[str, str] = MappingProxyType({})
    events: tuple[ServerEvent, ...] = ()
    gpus: tuple[ServerGpu, ...] = ()
    cost_per_hour: float | None = None
    gpu_xids: int | None = None
    of_server: Mapping[ServerSeries, Reading | HistogramReading] = MappingProxyType({})

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped in order, with all its engines."""
        return common(engine.cause for engine in self.engines) == "stopped"

    @property
    def role(self) -> str:
        """What it does of requests that several servers share: `prefill`, `decode`, `both`, or nothing if unknown."""
        return _ROLES.get(self.configuration.labels.get("kv_role", ""), "")
