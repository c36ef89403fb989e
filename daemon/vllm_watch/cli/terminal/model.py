# SPDX-License-Identifier: Apache-2.0
"""
What a terminal shows of one moment: plain values, without I/O, clock or thread.

`None` is what is not known; it is never 0. Times are seconds since the epoch by the clock of the servers' daemon, but
for those of `Frame.received` and `Lost.since`, which are by the clock of the reader (`Clock.now`). Durations are in
seconds, ratios from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple, Protocol, get_args

from vllm_watch.daemon.catalog.causes import FirstSteps
from vllm_watch.daemon.catalog.event_texts import EventKind
from vllm_watch.daemon.catalog.findings import Finding
from vllm_watch.daemon.catalog.reasons import SourceName, Standing
from vllm_watch.daemon.catalog.states import EngineState
from vllm_watch.daemon.exposition.document import GpuDocument
from vllm_watch.daemon.state.snapshot import Reading


Stage = Literal["time_to_first_token", "time_per_output_token", "inter_token", "e2e", "queue", "prefill", "decode"]

STAGE_NAMES: dict[Stage, str] = {
    "time_to_first_token": "TTFT",
    "time_per_output_token": "TPOT",
    "inter_token": "ITL",
    "e2e": "E2EL",
    "queue": "queue",
    "prefill": "prefill",
    "decode": "decode",
}
"""The stages whose latencies are shown, in their order, with their names."""


LatencyLevel = Literal["p50", "p95", "p99"]


class Latency(NamedTuple):
    """
    How long one stage took in the last minute.

    Args:
        stage: Which one.
        mean: The mean.
        p50, p95, p99: Quantiles.
        below: What those quantiles are below that are not known because they lie in their histogram's first bucket.
        objective: What the server promises for this stage.
        at_least: Which of the quantiles lie in a wide bucket: they are more than what is given.
        roughly: Which of them lie in a coarse bucket: they are only roughly what is given.
    """

    stage: Stage
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    below: float | None = None
    objective: float | None = None
    at_least: frozenset[str] = frozenset()
    roughly: frozenset[str] = frozenset()


class CapacityView(NamedTuple):
    """
    How many tokens per second an engine sustains.

    Args:
        tokens_per_second: The estimate; `None` if there is none.
        low, high: Its bounds.
        meaning: How it is known, or why it is not, in words; empty if nothing is said.
    """

    tokens_per_second: float | None = None
    low: float | None = None
    high: float | None = None
    meaning: str = ""


class EngineView(NamedTuple):
    """
    One engine.

    The gauges have the names of the series, and each has its value, its time and the source that it comes from.

    Args:
        engine: Its name within the server, such as ``0``.
        cause: Why it is in a bad state, as a code; `None` if that is not known.
        prompt_excludes_cached: Whether prompt tokens per second are without cached ones.
        latencies: One for each stage of `STAGE_NAMES`, in their order.
        position_acceptance: Accepted drafts by position in the draft.
    """

    engine: str
    state: EngineState
    cause: str | None = None
    generation_tokens_per_second: Reading | None = None
    prompt_tokens_per_second: Reading | None = None
    prompt_excludes_cached: bool | None = None
    requests_running: Reading | None = None
    requests_waiting: Reading | None = None
    requests_deferred: Reading | None = None
    kv_cache_usage_ratio: Reading | None = None
    prefix_cache_hit_ratio: Reading | None = None
    external_prefix_cache_hit_ratio: Reading | None = None
    mm_cache_hit_ratio: Reading | None = None
    spec_decode_mean_acceptance_length: Reading | None = None
    max_running_requests: float | None = None
    kv_cache_capacity_tokens: float | None = None
    num_speculative_tokens: float | None = None
    latencies: tuple[Latency, ...] = ()
    position_acceptance: tuple[float | None, ...] = ()
    capacity: CapacityView = CapacityView()


class SourceView(NamedTuple):
    """
    One source of a server.

    Args:
        short: How reading it goes, in a few words.
        last_reading: When it was read last.
        standing: How it is.
    """

    source: SourceName
    is_up: bool
    short: str
    last_reading: float | None = None
    standing: Standing = "ok"


class Event(NamedTuple):
    """
    Something that happened to a server.

    Args:
        at: When; of several, the last.
        kind: What it was.
        text: The same in words.
        times: How often it happened one right after the other.
        engine: Which engine it happened to, if it was one.
        state: The new state, if it was a change of state.
    """

    at: float
    kind: EventKind
    text: str
    times: int = 1
    engine: str | None = None
    state: EngineState | None = None


class Point(NamedTuple):
    """
    The numbers of a server at one moment: sums over its engines, and the highest of what cannot be summed.

    A sum of which an engine's part is not known is not known; the highest is that of the engines that have one.
    """

    at: float
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    ttft_p95: float | None = None


class Since(NamedTuple):
    """
    Since when a server is in its state.

    Args:
        at: Since when it is known to be.
        is_exact: Whether the beginning was seen; else it may be for longer.
    """

    at: float
    is_exact: bool


class ServerView(NamedTuple):
    """
    One server.

    Args:
        state: The worst of its engines.
        meaning: What the state means, in words; empty where nothing is to be said.
        now: Its numbers.
        latencies: As of an engine, the highest of all engines.
        max_running_requests, kv_cache_capacity_tokens: Sums over the engines; `None` if one's is not known.
        sources: Where the numbers come from.
        findings: What is wrong, then what should be known.
        events: Those of the last hour, the latest first; `None` if the daemon does not report them.
        recent: The numbers of the last readings of this program, oldest first, about `delay` apart.
        hour: The numbers of the last hour, oldest first, ten seconds apart; empty if it was not asked for.
        start_time: When the server started.
        starts: How many starts were seen.
        gpus: Those that it uses, as far as that is known, as the daemon's document has them.
        since: Since when the first of the engines in this state is in it; `None` if that is not known.
        cause: Why it is in that state, as a code; `None` if that is not known, or not the same of all its engines.
        first_steps: What to do first; `None` for a state that needs nothing.
    """

    name: str
    state: EngineState
    meaning: str = ""
    model_name: str | None = None
    version: str | None = None
    now: Point = Point(0.0)
    latencies: tuple[Latency, ...] = ()
    max_running_requests: float | None = None
    kv_cache_capacity_tokens: float | None = None
    engines: tuple[EngineView, ...] = ()
    sources: tuple[SourceView, ...] = ()
    findings: tuple[Finding, ...] = ()
    events: tuple[Event, ...] | None = None
    recent: tuple[Point, ...] = ()
    hour: tuple[Point, ...] = ()
    start_time: float | None = None
    starts: int | None = None
    gpus: tuple[GpuDocument, ...] = ()
    since: Since | None = None
    cause: str | None = None
    first_steps: FirstSteps | None = None


class Frame(NamedTuple):
    """
    All servers at one moment.

    Args:
        at: The moment.
        received: When this program received it, by its own clock; the age of the data is the time since then.
        servers: The worst first, then by name.
        findings: What is wrong, then what should be known, that is about none of them but about vllm-watch.
        is_replay: Whether what is shown is a recording that `vllm-watch demo` replays.
    """

    at: float
    received: float
    servers: tuple[ServerView, ...]
    findings: tuple[Finding, ...] = ()
    is_replay: bool = False


class Lost(NamedTuple):
    """
    There is no reading now.

    Args:
        since: When the first attempt failed, by the clock of the reader.
        reason: Why, and what to do, in words.
        last: What was read last; `None` if nothing was ever read.
        is_final: Whether it is not tried again, because it would fail in the same way.
    """

    since: float
    reason: str
    last: Frame | None = None
    is_final: bool = False


View = Frame | Lost | None
"""What there is to show; `None` until the first attempt has ended."""


class FrameSource(Protocol):
    """Where frames come from. A thread of its own reads them, so that no method ever waits for a server."""

    delay: float
    """Seconds between two readings; it may be set at any time."""

    @property
    def title(self) -> str:
        """What is read: ``http://127.0.0.1:9468``, or ``recording day, 10 times as fast, 0:02:00 of 0:10:00``."""

    def now(self) -> float:
        """Return the reader's time, for the age of a frame."""

    def latest(self) -> View:
        """Return the last frame, or that there is none now: the same object until something has changed."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have this called after each change, from the thread that reads."""

    def read_now(self) -> None:
        """Read at once instead of at the end of the delay."""

    def show_hours(self, names: Collection[str]) -> None:
        """Ask for the last hour of these servers from now on."""

    def hold(self, *, is_held: bool) -> bool:
        """Have what is read stand still, or go on where it was; return whether it can: only a recording does."""


ThemeName = Literal["dark", "light"]
THEME_NAMES: tuple[ThemeName, ...] = get_args(ThemeName)


class ViewOptions(NamedTuple):
    """
    How frames are drawn.

    Args:
        is_ascii: Whether only ASCII is written.
        has_color: Whether colours are written.
    """

    is_ascii: bool = False
    has_color: bool = True
