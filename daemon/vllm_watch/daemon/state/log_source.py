# SPDX-License-Identifier: Apache-2.0
"""What the log reports: the last statistics of each engine, the server's life, its facts, and what it counts."""

from __future__ import annotations

import math

from collections import Counter

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch.daemon.reading.log_reader import LogBatch, TimedEvent
from vllm_watch.daemon.state.configuration import FlagHistory
from vllm_watch.daemon.state.engine_log import EngineLog, name_of
from vllm_watch.daemon.state.facts import Facts
from vllm_watch.daemon.state.http_source import ANY_OTHER, HttpRequestKey, http_request_key
from vllm_watch.daemon.state.server_life import ServerLife
from vllm_watch.daemon.state.sleep_reports import LoggedSleep, sleep_calls
from vllm_watch.daemon.state.snapshot import LogCounts, Reading
from vllm_watch_parsers.events import (
    ADAPTER_CHANGES,
    FAILURE_KINDS,
    AchievedWork,
    AdapterChange,
    AdapterChangeKind,
    DiffusionDecoding,
    EngineStats,
    Event,
    Failure,
    KvTransfers,
    Lifecycle,
    Notice,
    SleepOrPause,
    SpecDecoding,
    StartupDetail,
    StartupFact,
)
from vllm_watch_parsers.exposition import DEFAULT_ENGINE
from vllm_watch_parsers.kv_transfer import KvKey
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS


MAX_UNKNOWN_FIELDS = 20
MAX_REQUEST_KEYS = 512

_OK = 200
_RELEASE_WITHOUT_HIT_RATIO = "0.7.3"

_COUNTERS = (
    "spec_decode_draft_tokens_total",
    "spec_decode_accepted_tokens_total",
    "spec_decode_emitted_tokens_total",
    "preemptions_total",
    "diffusion_committed_tokens_total",
    "diffusion_denoising_steps_total",
    "diffusion_canvas_positions_total",
)
"""
The series that are sums of what lines print as whole counts.

Preemptions are the Rust front end's: the Python logger resets its own before it prints them.
"""


class LogTotals:
    """Adds up what the lines of one log report."""

    def __init__(self) -> None:
        self.requests: Counter[HttpRequestKey] = Counter()
        self.out_of_range: Counter[str] = Counter()
        """Values out of range, by quantity."""
        self.unparsed = 0
        """Lines of statistics that could not be parsed."""
        self.unknown_fields: Counter[str] = Counter()
        self.continuation_lines = self.rejected_lines = 0
        self.dropped = 0
        """Names that were over a limit."""
        self._counts: dict[str, Counter[str]] = {}
        """What each engine has counted, by series."""
        self._kv: dict[str, dict[KvKey, float]] = {}
        """What each engine's KV connectors have moved."""
        self.adapter_changes: Counter[AdapterChangeKind] = Counter()
        """LoRA adapters that were loaded and removed."""

    def add_request(self, key: HttpRequestKey, count: int) -> None:
        """Count requests of one kind."""
        if key in self.requests or len(self.requests) < MAX_REQUEST_KEYS:
            self.requests[key] += count
        else:
            self.requests[ANY_OTHER] += count
            self.dropped += 1

    def add_unknown_fields(self, names: tuple[str, ...]) -> None:
        """Count the fields of a line that no table has."""
        for name in names:
            if name in self.unknown_fields or len(self.unknown_fields) < MAX_UNKNOWN_FIELDS:
                self.unknown_fields[name] += 1
            else:
                self.dropped += 1

    def add_preemptions(self, engine: str, stats: EngineStats) -> None:
        """Count the preemptions of an interval, which only the Rust front end prints."""
        if stats.is_rust:
            self._counts_of(engine)["preemptions_total"] += stats.preemptions or 0

    def add_drafts(self, engine: str, spec: SpecDecoding) -> None:
        """Count accepted and drafted tokens: V1 prints those of the interval, V0 all since its start."""
        counts = self._counts_of(engine)
        if spec.accepted_tokens_cumulative is not None and spec.drafted_tokens_cumulative is not None:
            counts["spec_decode_accepted_tokens_total"] = spec.accepted_tokens_cumulative
            counts["spec_decode_draft_tokens_total"] = spec.drafted_tokens_cumulative
            if spec.emitted_tokens_cumulative is not None:
                counts["spec_decode_emitted_tokens_total"] = spec.emitted_tokens_cumulative
        elif spec.accepted_tokens is not None and spec.drafted_tokens is not None:
            counts["spec_decode_accepted_tokens_total"] += spec.accepted_tokens
            counts["spec_decode_draft_tokens_total"] += spec.drafted_tokens

    def add_diffusion(self, engine: str, line: DiffusionDecoding) -> None:
        """Count what a diffusion model did in an interval."""
        self.add_unknown_fields(line.unknown_fields)
        counts = self._counts_of(engine)
        counts["diffusion_committed_tokens_total"] += line.committed_tokens or 0
        counts["diffusion_denoising_steps_total"] += line.denoising_steps or 0
        counts["diffusion_canvas_positions_total"] += line.canvas_positions or 0

    def add_transfers(self, engine: str, transfers: KvTransfers) -> None:
        """Count what KV connectors have moved in an interval."""
        self.add_unknown_fields(transfers.unknown_fields)
        if engine in self._kv or len(self._kv) < MAX_ENGINES:
            moved = self._kv.setdefault(engine, {})
            for key, value in transfers.counts:
                moved[key] = moved.get(key, 0.0) + value

    def counters(self, engine: str, at: float) -> dict[str, Reading]:
        """Return what an engine has counted, by series."""
        counts = self._counts.get(engine, Counter())
        return {name: Reading(counts[name], at, "log") for name in _COUNTERS if name in counts}

    def kv_counters(self, engine: str, at: float) -> dict[KvKey, Reading]:
        """Return what an engine's KV connectors have moved."""
        return {key: Reading(moved, at, "log") for key, moved in self._kv.get(engine, {}).items()}

    def _counts_of(self, engine: str) -> Counter[str]:
        """Return what is counted of an engine; of engines over the limit nothing is kept."""
        if engine not in self._counts and len(self._counts) >= MAX_ENGINES:
            return Counter()
        return self._counts.setdefault(engine, Counter())


class LogSource:
    """
    Takes in the events of one log, in order.

    Args:
        flags: Takes in what the log has of the server's flags, beside its other sources.
    """

    def __init__(self, flags: FlagHistory | None = None) -> None:
        self.facts = Facts()
        self.facts_learnt = 0
        """Grows whenever the facts or the flags may have changed."""
        self.flags = flags or FlagHistory()
        self.engines: dict[str, EngineLog] = {}
        self.life = ServerLife()
        self.sleep = LoggedSleep()
        self.totals = LogTotals()
        self.last_line_at: float | None = None
        self.last_news_at: float | None = None
        """When it last had a line other than that processes wait for each other: those repeat in a start that hangs."""
        self.foreign_lines: int | None = 0
        """How many lines were read while none had the form of vLLM's; `None` once one has."""
        self.has_several_api_servers = False
        self.has_access_lines = False
        """Whether it has ever had one."""
        self.first_served_at: float | None = None
        """When the first request was answered; ``-inf`` if lines were skipped that may have reported it."""
        self.token_at: dict[str, float] = {}
        """When each engine last generated a token."""
        self._nameless = DEFAULT_ENGINE
        """The engine of the last statistics line without a name: a line on drafts has none either."""

    def apply(self, batch: LogBatch) -> None:
        """Take in what some lines report; what is history is not counted."""
        if batch.is_after_gap:
            self._forget_present()
        self._note_lines(batch)
        if batch.is_history:
            life, totals, self.totals = self.life.counts(), self.totals, LogTotals()
            self._apply_lines(batch)
            self.life.restore_counts(life)
            self.totals = totals
        else:
            self._apply_lines(batch)
            self.totals.continuation_lines += batch.continuation_lines
            self.totals.rejected_lines += batch.rejected_lines

    def counts(self) -> LogCounts:
        """Return what was counted; what is counted once is never taken back."""
        totals = self.totals
        return LogCounts(
            {kind: self.life.failures.get(kind, 0) for kind in FAILURE_KINDS},
            self.life.starts,
            totals.unparsed,
            dict(totals.unknown_fields),
            totals.continuation_lines,
            totals.rejected_lines,
            dict(self.life.failure_times),
            {kind: totals.adapter_changes[kind] for kind in ADAPTER_CHANGES} if totals.adapter_changes else {},
        )

    @property
    def has_served(self) -> bool:
        """Whether a request was answered since the start, or since lines were skipped."""
        return self.first_served_at is not None and self.first_served_at > -math.inf

    @property
    def hides_prefix_hit_ratio(self) -> bool:
        """Whether this release resets the hit ratio before it prints it: V1 of 0.7.3 always prints 0."""
        facts = self.facts
        return facts.version == _RELEASE_WITHOUT_HIT_RATIO and facts.engine_generation == "V1"

    def forget_facts(self) -> None:
        """Forget what the server reported when it started: it was started again."""
        self.facts = Facts()
        self.facts_learnt += 1

    def _forget_present(self) -> None:
        """Take in that lines were skipped: statistics and sleep from before them are not the present ones."""
        self.engines.clear()
        self.sleep.forget()
        self.first_served_at = -math.inf

    def _note_lines(self, batch: LogBatch) -> None:
        if batch.lines:
            self.last_line_at = batch.end
            is_foreign = batch.is_foreign and self.foreign_lines is not None
            self.foreign_lines = (self.foreign_lines or 0) + batch.lines if is_foreign else None
        # Most batches have more lines than events: then there is no need to count.
        if batch.lines > len(batch.events) or batch.lines > sum(
            isinstance(event, Failure) and event.kind == "shm_timeout" for _, event in batch.events
        ):
            self.last_news_at = batch.end

    def _apply_lines(self, batch: LogBatch) -> None:
        called = sleep_calls(batch.requests)
        if called:
            self.sleep.apply_calls_before(batch.end, called)
        self._apply_requests(batch)
        for event in batch.events:
            self._apply(event, is_dated=not batch.is_undated)
        if called:
            self.sleep.apply_calls_after(batch.end, called)

    def _apply_requests(self, batch: LogBatch) -> None:
        self.has_access_lines |= bool(batch.requests)
        for request, count in batch.requests.items():
            if request.status == _OK and request.path in INFERENCE_HANDLERS and not self.has_served:
                self.first_served_at = batch.end
            self.totals.add_request(http_request_key(request.method, request.path, str(request.status)), count)

    def _apply(self, timed: TimedEvent, *, is_dated: bool) -> None:
        at, event = timed
        if isinstance(event, EngineStats):
            self._apply_stats(at, event)
        elif isinstance(event, SpecDecoding):
            self._apply_drafts(at, event)
        elif isinstance(event, KvTransfers):
            self._apply_transfers(at, event)
        elif isinstance(event, StartupFact):
            self.facts_learnt += 1
            self.facts.learn(event)
            self.flags.note_fact(event)
        elif isinstance(event, StartupDetail):
            self.facts_learnt += 1
            self.facts.learn_detail(event)
            self.flags.note_detail(event)
        elif isinstance(event, Lifecycle):
            self._apply_phase(at, event, is_dated=is_dated)
        elif isinstance(event, Failure):
            has_moved = any(engine.moved_at is not None for engine in self.engines.values())
            self.life.apply_failure(at, event, has_moved=has_moved)
        elif isinstance(event, Notice):
            self._apply_notice(event)
        elif isinstance(event, SleepOrPause):
            self.sleep.apply_line(at, event)
        else:
            self._apply_other(at, event)

    def _apply_other(self, at: float, event: Event) -> None:
        if isinstance(event, AdapterChange):
            self.totals.adapter_changes[event.kind] += 1
        elif isinstance(event, AchievedWork | DiffusionDecoding):
            name = event.engine or self._nameless
            engine = self.engines.get(name)
            if engine is not None:
                engine.add_companion(at, event)
            if isinstance(event, DiffusionDecoding):
                self.totals.add_diffusion(name, event)

    def _apply_stats(self, at: float, stats: EngineStats) -> None:
        """Take in a line of statistics, or V0's line of hit ratios; engines over the limit are only counted."""
        if stats.unknown_fields:
            self.totals.add_unknown_fields(stats.unknown_fields)
        name = name_of(stats)
        if stats.engine is None:
            self._nameless = name
        engine = self.engines.get(name)
        if stats.requests_running is None:
            if engine is not None:
                engine.add_hit_ratios(stats)
            return
        if engine is not None:
            engine.add_stats(at, stats)
        elif len(self.engines) < MAX_ENGINES:
            engine = self.engines[name] = EngineLog.first(at, stats)
        else:
            self.totals.dropped += 1
            return
        self.totals.add_preemptions(name, stats)
        if stats.generation_tokens_per_second and (name in self.token_at or len(self.token_at) < MAX_ENGINES):
            self.token_at[name] = at
        self.life.note_statistics(at, moves=engine.moves, has_prompt=bool(stats.prompt_tokens_per_second))

    def _apply_drafts(self, at: float, spec: SpecDecoding) -> None:
        if spec.unknown_fields:
            self.totals.add_unknown_fields(spec.unknown_fields)
        name = spec.engine or self._nameless
        engine = self.engines.get(name)
        if engine is not None:
            engine.add_companion(at, spec)
        if self.facts.num_speculative_tokens is None and spec.num_speculative_tokens is not None:
            self.facts_learnt += 1
            self.facts.num_speculative_tokens = spec.num_speculative_tokens
        self.totals.add_drafts(name, spec)

    def _apply_transfers(self, at: float, transfers: KvTransfers) -> None:
        name = transfers.engine or self._nameless
        engine = self.engines.get(name)
        if engine is not None:
            engine.add_transfers(at, transfers)
        self.totals.add_transfers(name, transfers)

    def _apply_phase(self, at: float, event: Lifecycle, *, is_dated: bool) -> None:
        self.life.apply_phase(at, event, is_dated=is_dated)
        if event.phase == "starting":
            self.forget_facts()
            self.flags.start("log", at if is_dated else None)
            self.engines.clear()
            self.has_several_api_servers = False
            self.first_served_at = None
            self.sleep.forget()

    def _apply_notice(self, notice: Notice) -> None:
        if notice.kind == "api_servers_more_than_one":
            self.has_several_api_servers = True
            self.engines.clear()  # What one of them printed was about its own requests only.
            self.token_at.clear()
        elif notice.kind == "stats_unparsed":
            self.totals.unparsed += 1
        elif notice.quantity is not None:
            self.totals.out_of_range[notice.quantity] += 1
