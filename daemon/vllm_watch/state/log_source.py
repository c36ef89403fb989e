# SPDX-License-Identifier: Apache-2.0
"""What the log says: the last statistics of each engine, the server's life, its facts and failures."""

from __future__ import annotations

import math

from collections import Counter, deque
from dataclasses import dataclass, field

from vllm_watch.reading.log_reader import LogBatch, Timed
from vllm_watch.state.facts import MAX_ENGINES, Facts
from vllm_watch.state.http_labels import ANY_OTHER, INFERENCE_HANDLERS, PAUSING, WAKE_UP, http_request_key
from vllm_watch.state.progress import FIRST_TOKEN_SECONDS
from vllm_watch.state.shutdown import Shutdown
from vllm_watch.state.sleeping import Served, Sleep
from vllm_watch.state.snapshot import HttpRequestKey, LogCounts
from vllm_watch_parsers.events import (
    AGGREGATED,
    FAILURE_KINDS,
    EngineStats,
    Failure,
    Lifecycle,
    Notice,
    Pause,
    SpecDecoding,
    StartupFact,
)
from vllm_watch_parsers.scrape import DEFAULT_ENGINE


DEFAULT_INTERVAL = 10.0
"""How often vLLM prints statistics unless VLLM_LOG_STATS_INTERVAL says otherwise (V0: 5 s)."""

MAX_INTERVAL = 300.0
INTERVALS_UNTIL_STALE = 3

MAX_UNKNOWN_FIELDS = 20
MAX_REQUEST_KEYS = 512

_OK = 200
_RELEASE_WITHOUT_HIT_RATE = "0.7.3"
_ENDED = frozenset({"dead", "stopped", "shutting_down"})


@dataclass(slots=True)
class EngineLog:
    """The last words of one engine."""

    stats: EngineStats
    stats_at: float
    moved_at: float
    """When it last printed tokens; before its first such line, when it can at the latest have stood still."""
    has_moved: bool = False
    """Whether it has printed tokens since its server was started, as far as the log was read."""
    prompted_from: float | None = None
    """Before which moment its last prompt tokens cannot have come: the interval of their line began then."""
    spec: SpecDecoding | None = None
    spec_at: float = 0.0
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=5))
    covered: deque[float] = field(default_factory=lambda: deque(maxlen=5))
    """The seconds that the last lines on drafts are of, by vLLM's own clock."""

    @property
    def interval(self) -> float:
        """
        How often this engine prints, as far as can be seen: an idle one pauses, none hurries.

        A line that was read late makes one gap too short: of several the shortest is left out.
        """
        gaps = sorted(self.gaps) or [DEFAULT_INTERVAL]
        return min(max(gaps[len(gaps) > 2], 1.0), MAX_INTERVAL)

    @property
    def has_work(self) -> bool:
        """Whether requests were running or waiting."""
        return bool((self.stats.requests_running or 0) + (self.stats.requests_waiting or 0))

    @property
    def moves(self) -> bool:
        """Whether tokens came in the line's interval."""
        return bool((self.stats.prompt_tokens_per_second or 0) + (self.stats.generation_tokens_per_second or 0))

    def undiluted(self, spec: SpecDecoding) -> SpecDecoding:
        """
        Return a line on drafts with its rates over one interval.

        After a pause vLLM divides the tokens by the whole pause, while those of the statistics line are divided by
        one interval. The pause was without tokens, or there would have been lines. How long it was the line itself
        tells: when lines are read says less, for they may be read late.
        """
        covered = _seconds_covered(spec)
        if covered is None:
            return spec
        self.covered.append(covered)
        interval = min(*self.covered, DEFAULT_INTERVAL)
        if covered < 1.5 * max(interval, self.interval):
            return spec
        return spec._replace(
            accepted_tokens_per_second=(spec.accepted_tokens or 0) / interval,
            drafted_tokens_per_second=(spec.drafted_tokens or 0) / interval,
        )

    def is_fresh(self, now: float) -> bool:
        """Whether the line is young enough to be the present."""
        return now - self.stats_at <= INTERVALS_UNTIL_STALE * max(self.interval, DEFAULT_INTERVAL)

    @property
    def served(self) -> Served | None:
        """The last tokens."""
        if not self.has_moved:
            return None
        return Served(self.moved_at - DEFAULT_INTERVAL, self.moved_at, self.prompted_from)

    def ended_idle(self) -> bool:
        """Whether the line is the one after which an idle engine falls silent."""
        return not self.has_work and not self.moves

    def ended_still(self) -> bool:
        """Whether the line is the one after which a wedged engine falls silent: work, and no token."""
        return self.has_work and not self.moves and not self._only_defers

    @property
    def _only_defers(self) -> bool:
        """Whether nothing is there to compute: no request runs, and all that wait do so for something remote."""
        stats = self.stats
        waiting = stats.requests_waiting or 0
        return not stats.requests_running and 0 < waiting <= (stats.requests_deferred or 0)


def _seconds_covered(spec: SpecDecoding) -> float | None:
    """Return the seconds that a line on drafts divides its tokens by, or `None` if it does not say."""
    for tokens, rate in (
        (spec.drafted_tokens, spec.drafted_tokens_per_second),
        (spec.accepted_tokens, spec.accepted_tokens_per_second),
    ):
        if tokens and rate:
            return tokens / rate
    return None


def _done(batch: LogBatch) -> set[str]:
    """Return the operations that were called and done."""
    return {request.path for request in batch.requests if request.method == "POST" and request.status == _OK}


def name_of(stats: EngineStats) -> str:
    """Return what the engine is called that a statistics line is of."""
    return AGGREGATED if stats.rust else stats.engine or DEFAULT_ENGINE


class LogSource:
    """Takes in events of one log, in order."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.engines: dict[str, EngineLog] = {}
        self.phase: str | None = None
        self.phase_at = 0.0
        self.last_line_at: float | None = None
        self.last_news_at: float | None = None
        """When it last said anything but that its processes wait for each other: they do so in a start that hangs."""
        self.started_at: float | None = None
        """When it started last, if anybody can say: a log may print no time for hours."""
        self._is_dated = True
        self.starts = 0
        self.failures: Counter[str] = Counter()
        self.requests: Counter[HttpRequestKey] = Counter()
        self.refused: Counter[str] = Counter()
        self.has_several_api_servers = False
        self.first_served_at: float | None = None
        """When the first request was answered; ``-inf`` if lines were passed over that may tell of it."""
        self.token_at: dict[str, float] = {}
        self.repose = Sleep()
        self.prints_pauses = False
        """Whether it has said itself that it was paused or resumed, as releases since 0.32 do."""
        self._shutdown = Shutdown()
        self.spec_totals: dict[str, tuple[int, int]] = {}
        """Tokens accepted and drafted, added up from the lines."""
        self.preemptions: dict[str, int] = {}
        """Preemptions, added up from the lines that count them."""
        self._nameless = DEFAULT_ENGINE
        """The engine of the last statistics line that named none: a line on drafts names none either."""
        self._unparsed = 0
        self._unknown: Counter[str] = Counter()
        self._continuations = self._refused_lines = 0
        self.dropped = 0
        """Things with a name of their own that were over the limit."""

    def apply(self, batch: LogBatch, *, is_history: bool = False) -> None:
        """
        Take in what some lines said.

        Args:
            batch: The lines' events.
            is_history: These lines were written before anyone watched: they inform, and are not counted.

        What lines said before others that were not read is not how things are.
        """
        if batch.is_after_gap:
            self._pass_over()
        self._note_lines(batch)
        if not is_history:
            self._continuations += batch.continuation_lines
            self._refused_lines += batch.refused_lines
        self._apply_requests(batch, is_history=is_history)
        self._is_dated = not batch.is_undated
        counted = (self.starts, self.failures.copy(), self.refused.copy(), self._unparsed, self.dropped)
        for timed in batch.events:
            self._apply(timed)
        self._apply_waking(batch)
        if is_history:
            self.starts, self.failures, self.refused, self._unparsed, self.dropped = counted
            self.spec_totals.clear()
            self.preemptions.clear()
            self._shutdown.forget_failures()

    def counts(self, now: float) -> LogCounts:
        """Return what was counted until now; what is counted once is never taken back."""
        self._count_crashes(self._shutdown.settle(now))
        events: dict[str, int] = {kind: self.failures.get(kind, 0) for kind in FAILURE_KINDS}
        return LogCounts(
            events, self.starts, self._unparsed, dict(self._unknown), self._continuations, self._refused_lines
        )

    @property
    def has_served(self) -> bool:
        """Whether a request was seen to be answered since the start, or since lines were passed over."""
        return self.first_served_at is not None and self.first_served_at > -math.inf

    @property
    def has_ended(self) -> bool:
        """Whether the log's last word is a fatal error or the end."""
        return self.phase in _ENDED

    def hides_prefix_hit_rate(self) -> bool:
        """Whether this release resets the hit rate before it prints it: V1 of 0.7.3 always says 0."""
        facts = self.facts
        return facts.version == _RELEASE_WITHOUT_HIT_RATE and facts.engine_generation == "V1"

    def _apply_requests(self, batch: LogBatch, *, is_history: bool) -> None:
        self._apply_pauses(batch)
        for request, count in batch.requests.items():
            if request.status == _OK and request.path in INFERENCE_HANDLERS and not self.has_served:
                self.first_served_at = batch.end
            if not is_history:
                self._count_request(http_request_key(request.method, request.path, str(request.status)), count)

    def _note_lines(self, batch: LogBatch) -> None:
        if batch.lines:
            self.last_line_at = batch.end
        waits = sum(isinstance(event, Failure) and event.kind == "shm_timeout" for _, event in batch.events)
        if batch.lines > waits:
            self.last_news_at = batch.end

    def _apply_pauses(self, batch: LogBatch) -> None:
        """Take in calls to pause and resume, of which 0.12 to 0.31 print nothing else."""
        if not self.prints_pauses:
            self.repose.apply_calls(batch.end, [PAUSING[path] for path in _done(batch) & set(PAUSING)])

    def _apply_waking(self, batch: LogBatch) -> None:
        """Take in a call to wake up: before it is answered the engine says which memory it has back."""
        if not self.prints_pauses and WAKE_UP in _done(batch) and not self.repose.is_asleep:
            self.repose.apply(batch.end, Pause("resumed"))

    def _pass_over(self) -> None:
        """Take in that lines were passed over: statistics and rests from before them are not the present ones."""
        self.engines.clear()
        self.repose.forget()
        self.prints_pauses = False
        self.first_served_at = -math.inf

    def _count_request(self, key: HttpRequestKey, count: int) -> None:
        if key in self.requests or len(self.requests) < MAX_REQUEST_KEYS:
            self.requests[key] += count
        else:
            self.requests[ANY_OTHER] += count
            self.dropped += 1

    def _apply(self, timed: Timed) -> None:
        at, event = timed
        if isinstance(event, EngineStats):
            self._apply_stats(at, event)
        elif isinstance(event, SpecDecoding):
            self._apply_spec(at, event)
        elif isinstance(event, StartupFact):
            self.facts.learn(event)
        elif isinstance(event, Lifecycle):
            self._apply_phase(at, event)
        elif isinstance(event, Failure):
            self._apply_failure(at, event)
        elif isinstance(event, Notice):
            self._apply_notice(event)
        elif isinstance(event, Pause):
            self.prints_pauses |= event.kind in PAUSING.values()
            self.repose.apply(at, event)

    def _apply_stats(self, at: float, stats: EngineStats) -> None:
        self._note_unknown(stats.unknown_fields)
        name = name_of(stats)
        if stats.engine is None:
            self._nameless = name
        known = self.engines.get(name)
        if stats.requests_running is None:  # V0's line of hit rates belongs to the line before it.
            if known is not None:
                ratio = stats.prefix_cache_hit_ratio
                known.stats = known.stats._replace(prefix_cache_hit_ratio=ratio)
            return
        if known is None:
            if len(self.engines) >= MAX_ENGINES:
                self.dropped += 1
                return
            known = self.engines[name] = EngineLog(stats, at, at - DEFAULT_INTERVAL)
        else:
            if at > known.stats_at:
                known.gaps.append(at - known.stats_at)
            if stats.requests_swapped is not None:  # V0 prints its hit rates on a line of their own.
                stats = stats._replace(prefix_cache_hit_ratio=known.stats.prefix_cache_hit_ratio)
            known.stats, known.stats_at = stats, at
        if known.moves:
            known.moved_at, known.has_moved = at, True
            self._shutdown.note_tokens(at)
        if stats.prompt_tokens_per_second:
            known.prompted_from = at - DEFAULT_INTERVAL
            self._shutdown.note_prompt(at)
        self._add_up(name, at, stats)
        self._is_alive(at, moves=known.moves)

    def _add_up(self, name: str, at: float, stats: EngineStats) -> None:
        """Keep what is known of an engine for longer than its line is."""
        if stats.rust and (name in self.preemptions or len(self.preemptions) < MAX_ENGINES):
            self.preemptions[name] = self.preemptions.get(name, 0) + (stats.preemptions or 0)
        if stats.generation_tokens_per_second and (name in self.token_at or len(self.token_at) < MAX_ENGINES):
            self.token_at[name] = at

    def _is_alive(self, at: float, *, moves: bool) -> None:
        """Statistics are printed by a server that is ready, even where its word on that went elsewhere."""
        if self.phase in {None, "starting"} or (
            self.phase in _ENDED and moves and at - self.phase_at > DEFAULT_INTERVAL
        ):
            self.phase, self.phase_at = "ready", at

    def _apply_spec(self, at: float, spec: SpecDecoding) -> None:
        self._note_unknown(spec.unknown_fields)
        name = spec.engine or self._nameless
        known = self.engines.get(name)
        if known is not None:
            known.spec, known.spec_at = known.undiluted(spec), at
        if self.facts.num_speculative_tokens is None:
            self.facts.num_speculative_tokens = spec.num_speculative_tokens
        self._add_up_drafts(name, spec)

    def _add_up_drafts(self, name: str, spec: SpecDecoding) -> None:
        """Count accepted and drafted tokens: V1 prints those of the interval, V0 all since its start."""
        is_kept = name in self.spec_totals or len(self.spec_totals) < MAX_ENGINES
        if is_kept and spec.accepted_tokens_cumulative is not None and spec.drafted_tokens_cumulative is not None:
            self.spec_totals[name] = (spec.accepted_tokens_cumulative, spec.drafted_tokens_cumulative)
        elif is_kept and spec.accepted_tokens is not None and spec.drafted_tokens is not None:
            accepted, drafted = self.spec_totals.get(name, (0, 0))
            self.spec_totals[name] = (accepted + spec.accepted_tokens, drafted + spec.drafted_tokens)

    def _apply_phase(self, at: float, event: Lifecycle) -> None:
        if event.phase == "shutting_down" and self.phase != "dead":
            self._shutdown.begin(at)
        elif event.phase == "stopped":
            self._count_crashes(self._shutdown.end(at))
        self.phase, self.phase_at = event.phase, at
        if event.phase == "starting":
            self._count_crashes(self._shutdown.begin_again(at))
            self.starts += 1
            self.started_at = at if self._is_dated else None
            self.facts = Facts()
            self.engines.clear()
            self.has_several_api_servers = False
            self.first_served_at = None
            self.repose.forget()
            self.prints_pauses = False

    def _apply_failure(self, at: float, failure: Failure) -> None:
        if self._shutdown.take(at, failure) or (failure.kind == "shm_timeout" and self._may_compile(at)):
            return
        self.failures[failure.kind] += 1
        if failure.kind == "engine_dead":
            self.phase, self.phase_at = "dead", at

    def _count_crashes(self, crashes: list[Timed]) -> None:
        """Take in failures that a shutdown did not explain: it may have been a stranger's word, and the engine dead."""
        for at, failure in crashes:
            if isinstance(failure, Failure):
                self.failures[failure.kind] += 1
                if failure.kind == "engine_dead" and self.phase == "shutting_down":
                    self.phase, self.phase_at = "dead", at

    def _may_compile(self, at: float) -> bool:
        """Tell whether a server is starting, or so fresh that its workers may be compiling for its first requests."""
        has_moved = any(engine.has_moved for engine in self.engines.values())
        is_fresh = self.started_at is not None and at - self.phase_at <= FIRST_TOKEN_SECONDS and not has_moved
        return self.phase == "starting" or (self.phase == "ready" and is_fresh)

    def _apply_notice(self, notice: Notice) -> None:
        if notice.kind == "api_servers_more_than_one":
            self.has_several_api_servers = True
            self.engines.clear()  # What one of them printed was of its own requests.
            self.token_at.clear()
        elif notice.kind == "stats_unparsed":
            self._unparsed += 1
        elif notice.quantity is not None:
            self.refused[notice.quantity] += 1

    def _note_unknown(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._unknown or len(self._unknown) < MAX_UNKNOWN_FIELDS:
                self._unknown[name] += 1
            else:
                self.dropped += 1
