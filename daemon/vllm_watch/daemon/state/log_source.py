# SPDX-License-Identifier: Apache-2.0
"""What the log reports: the last statistics of each engine, the server's life, its facts, and what it counts."""

from __future__ import annotations

import math

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch.daemon.reading.log_reader import LogBatch, TimedEvent
from vllm_watch.daemon.state.configuration import FlagHistory
from vllm_watch.daemon.state.engine_log import EngineLog, name_of
from vllm_watch.daemon.state.facts import Facts
from vllm_watch.daemon.state.http_labels import http_request_key
from vllm_watch.daemon.state.log_totals import LogTotals
from vllm_watch.daemon.state.server_life import ServerLife
from vllm_watch.daemon.state.sleep_reports import LoggedSleep, sleep_calls
from vllm_watch.daemon.state.snapshot import LogCounts
from vllm_watch_parsers.events import (
    ADAPTER_CHANGES,
    FAILURE_KINDS,
    AchievedWork,
    AdapterChange,
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
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import DEFAULT_ENGINE


_OK = 200
_RELEASE_WITHOUT_HIT_RATIO = "0.7.3"


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
        """How many lines were read of which none has the form of vLLM's; `None` once one has."""
        self.has_several_api_servers = False
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

    def counts(self, now: float) -> LogCounts:
        """Return what was counted until now; what is counted once is never taken back."""
        self.life.settle(now)
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
        called = sleep_calls(batch)
        if called:
            self.sleep.apply_calls_before(batch.end, called)
        self._apply_requests(batch)
        for event in batch.events:
            self._apply(event, is_dated=not batch.is_undated)
        if called:
            self.sleep.apply_calls_after(batch.end, called)

    def _apply_requests(self, batch: LogBatch) -> None:
        for request, count in batch.requests.items():
            if request.status == _OK and request.path in INFERENCE_HANDLERS and not self.has_served:
                self.first_served_at = batch.end
            self.totals.add_request(http_request_key(request.method, request.path, str(request.status)), count)

    def _apply(self, timed: TimedEvent, *, is_dated: bool) -> None:
        """Take in one event; `is_dated` is whether its time is known."""
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
            if engine.spec is None and not self.facts.num_speculative_tokens:
                engine.measure_step(1.0, self.facts.capacity_tokens(name))
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
            engine.add_drafts(at, spec)
            engine.measure_step(spec.mean_acceptance_length, self.facts.capacity_tokens(name))
        if self.facts.num_speculative_tokens is None and spec.num_speculative_tokens is not None:
            self.facts_learnt += 1
            self.facts.num_speculative_tokens = spec.num_speculative_tokens
        self.totals.add_drafts(name, spec)

    def _apply_transfers(self, at: float, transfers: KvTransfers) -> None:
        self.totals.add_unknown_fields(transfers.unknown_fields)
        name = transfers.engine or self._nameless
        engine = self.engines.get(name)
        if engine is not None:
            engine.add_transfers(at, transfers)
        self.totals.kv.add(name, transfers)

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
