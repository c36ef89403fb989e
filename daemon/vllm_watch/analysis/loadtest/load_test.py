# SPDX-License-Identifier: Apache-2.0
"""
A load test in numbers: the values that `report` prints and `compare` compares.

What is not known is `None` or absent, and is left out of the JSON. Times are seconds since the epoch, durations
seconds, latencies milliseconds, as in the results of ``vllm bench serve``, whose names these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from vllm_watch.daemon.catalog.codes import CapacityBasis
from vllm_watch.daemon.catalog.metric_titles import LatencyName, View
from vllm_watch.daemon.catalog.number_texts import spread
from vllm_watch.daemon.config.server_config import SLO_PRESETS
from vllm_watch.daemon.config.texts import parse_duration, quote


Quantile = Literal["p50", "p90", "p95", "p99"]
QUANTILES: Mapping[Quantile, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

PhaseName = Literal["starting", "idle", "ramp", "steady", "saturated", "stalled", "down", "unknown"]
"""
What the server did in a part of the time: the states of an engine, with ``serving`` divided into ramp and steady.

`ramp` is work before and after the steady window: the load still grows, or runs out.
"""

Endpoint = Literal["online", "pooling"]
"""What the benchmark was: ``vllm bench serve``, ``throughput``, ``latency``, or ``serve`` with a pooling model."""

GIVEN = "given"
"""The name of an objective that is no preset."""

OBJECTIVE_LATENCIES: Mapping[str, LatencyName] = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2el": "e2el_ms"}
"""What a request as a whole has; the gaps between chunks have no limit, as in ``vllm bench serve --goodput``."""

_LONG_NAMES = {"time_to_first_token": "ttft", "time_per_output_token": "tpot"}
"""As the configuration's `slo` calls them."""

_LIMIT_SECONDS = (0.001, 3600.0)


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An immutable value whose unknown fields are not in its JSON."""


class Bounds(Struct, frozen=True, kw_only=True):
    """Between which values a percentile is: those of its bucket, or of its confidence interval. `None`: open."""

    low: float | None = None
    high: float | None = None


class Latency(Struct, frozen=True, kw_only=True):
    """
    One latency of all requests, in milliseconds.

    `bounds` are of buckets; of those `too_few` the percentile may be lower than the true one, as few values are behind
    it. `percentiles` are others that a client wrote: ``{"p99.9": 812.5}``.
    """

    mean: float | None = None
    median: float | None = None
    std: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    count: int | None = None
    bounds: Mapping[Quantile, Bounds] = {}
    too_few: tuple[Quantile, ...] = ()
    percentiles: Mapping[str, float] = {}


class Objective(Struct, frozen=True, kw_only=True):
    """What the load had to be answered within: limits in milliseconds, by latency. `name` is chat, batch or given."""

    name: str
    limits: Mapping[LatencyName, float]


class Goodput(Struct, frozen=True, kw_only=True):
    """The requests within the objective, per second and as a share of all; `bounds` if only buckets are known."""

    objective: Objective
    request_goodput: float | None = None
    ratio: float | None = None
    bounds: Bounds | None = None


class Result(Struct, frozen=True, kw_only=True):
    """
    The requests, tokens, rates and latencies of one view over one period.

    Power and energy are of the GPUs in the steady window. Tokens per joule are computed ones: cached prompts are not in
    them. Each cost is the whole price of the period: they do not add up.
    """

    view: View
    successful: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    request_throughput: float | None = None
    output_throughput: float | None = None
    total_token_throughput: float | None = None
    queue_ms: Latency | None = None
    ttft_ms: Latency | None = None
    tpot_ms: Latency | None = None
    itl_ms: Latency | None = None
    e2el_ms: Latency | None = None
    goodput: Goodput | None = None
    mean_watts: float | None = None
    energy_joules: float | None = None
    joules_per_output_token: float | None = None
    tokens_per_joule: float | None = None
    cost_per_million_input_tokens: float | None = None
    cost_per_million_output_tokens: float | None = None
    cost_per_million_tokens: float | None = None


class RateGrowth(Struct, frozen=True, kw_only=True):
    """How the rate of a load grew: ``linear`` or ``exponential``, from and to how many requests per second."""

    strategy: str
    start: float | None = None
    end: float | None = None


class Load(Struct, frozen=True, kw_only=True):
    """What was sent: rates in requests per second; mean lengths as the requests had them, not as asked for."""

    endpoint: Endpoint | None = None
    backend: str | None = None
    request_rate: float | Literal["inf"] | None = None
    ramp_up: RateGrowth | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    num_prompts: int | None = None
    mean_input_tokens: float | None = None
    mean_output_tokens: float | None = None
    temperature: float | None = None
    duration_s: float | None = None
    offered_request_rate: float | None = None
    metadata: Mapping[str, str] = {}


class Distribution(Struct, frozen=True, kw_only=True):
    """How values are spread: `counts` has one more entry than `bounds`, that of the values above the last."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


class ServerUse(Struct, frozen=True, kw_only=True):
    """What the server did in a period: means, and highest values."""

    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    requests_per_second: float | None = None
    offered_requests_per_second: float | None = None
    running: float | None = None
    max_running: float | None = None
    waiting: float | None = None
    max_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    max_kv_cache_usage_ratio: float | None = None
    preemptions: int | None = None
    prefix_cache_hit_ratio: float | None = None
    mm_cache_hit_ratio: float | None = None
    acceptance_length: float | None = None
    position_acceptance: tuple[float, ...] = ()
    drafted_tokens: int | None = None
    wasted_draft_tokens: int | None = None


class Phase(Struct, frozen=True, kw_only=True):
    """A part of the time in which the server did one thing."""

    phase: PhaseName
    start: float
    end: float
    result: ServerUse = ServerUse()


class Steady(Struct, frozen=True, kw_only=True):
    """The steady window: how it was found, and why its values say little, if they do."""

    start: float
    end: float
    method: str
    problem: str | None = None
    result: Result | None = None
    use: ServerUse = ServerUse()


class Capacity(Struct, frozen=True, kw_only=True):
    """How many generated tokens per second a server sustains besides prompts; plan with 70 to 85 % of `low`."""

    tokens_per_second: float
    low: float
    high: float
    basis: CapacityBasis
    explanation: str
    prompt_tokens_per_second: float | None = None


class Event(Struct, frozen=True, kw_only=True):
    """What happened at a moment: a start, a crash, a preemption storm. `text` is one short clause."""

    at: float
    text: str


class Timeline(Struct, frozen=True, kw_only=True):
    """Series for plots: `times` and, for each name, a value or `None` at each of them."""

    times: tuple[float, ...] = ()
    values: Mapping[str, tuple[float | None, ...]] = {}


class Room(Struct, frozen=True, kw_only=True):
    """How many requests of so many tokens, prompt and answer, a KV cache holds at once if they share no prefix."""

    tokens: int
    requests: int


class Memory(Struct, frozen=True, kw_only=True):
    """
    What the log tells of a server's memory: weights and KV cache on each GPU, in GiB, and the tokens of all engines.

    vLLM prints the sizes for each worker, which has one GPU, and the tokens for each engine, whose GPUs hold them
    together (vllm/v1/worker/gpu_worker.py, vllm/v1/core/kv_cache_utils.py): `kv_bytes_per_token` is a token's part on
    each of these GPUs.
    """

    weights_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_bytes_per_token: float | None = None
    kv_cache_tokens: float | None = None
    room: tuple[Room, ...] = ()


class Demand(Struct, frozen=True, kw_only=True):
    """What is to be served: output tokens per second, or users at once."""

    tokens_per_second: float | None = None
    users: float | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """
    What to plan a server with: `low` to `high` output tokens per second, which are `users_low` to `users_high` users.

    A user has `user_tokens_per_second`, as in `run`, if there are several. The demand needs `servers_low` to
    `servers_high`, each with `gpus`; `problem` says why that is not known.
    """

    demand: Demand | None = None
    objective: Objective | None = None
    low: float | None = None
    high: float | None = None
    gpus: int | None = None
    run: str | None = None
    user_tokens_per_second: float | None = None
    users_low: int | None = None
    users_high: int | None = None
    servers_low: int | None = None
    servers_high: int | None = None
    problem: str | None = None


class SlowRequest(Struct, frozen=True, kw_only=True):
    """One request: its number in the list, and seconds from the first one's start to its own."""

    number: int
    e2el_ms: float
    start_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None


class PromptSlope(Struct, frozen=True, kw_only=True):
    """By how many milliseconds TTFT grows for each 1,000 tokens of the prompt, with its 95 % interval."""

    ms_per_1000_tokens: float
    low: float
    high: float
    count: int


class RequestDetails(Struct, frozen=True, kw_only=True):
    """What single requests show; `ttft_by_prompt` has tokens and milliseconds, of many requests evenly chosen ones."""

    errors: Mapping[str, int] = {}
    slowest: tuple[SlowRequest, ...] = ()
    slope: PromptSlope | None = None
    ttft_by_prompt: tuple[tuple[float, float], ...] = ()


class Run(Struct, frozen=True, kw_only=True):
    """
    One run of a load test, from one or more sources.

    `config` is by vLLM's flags without dashes. `result` is the client's view if there is one, else the server's;
    `views` has all.
    """

    source: tuple[str, ...]
    name: str
    start: float | None = None
    end: float | None = None
    may_be_shorter: bool = False
    """Whether the server shows only between which of its points the work was, so that its rates are lower bounds."""
    server: str | None = None
    """The label `server` of its series, if it was read from a Prometheus."""
    model: str | None = None
    version: str | None = None
    hardware: Mapping[str, str] = {}
    gpus: int | None = None
    """How many GPUs its server has by its flags, none on CPUs; `None` if these are not all known."""
    cost_per_hour: float | None = None
    """What its server costs in an hour, in any currency."""
    energy_problem: str | None = None
    """Why the energy of its GPUs is not known though they were read, in a clause."""
    config: Mapping[str, str] = {}
    max_running_requests: int | None = None
    """How many requests run at once at most, in all engines together that were seen."""
    load: Load = Load()
    result: Result | None = None
    views: tuple[Result, ...] = ()
    phases: tuple[Phase, ...] = ()
    steady: Steady | None = None
    capacity: Capacity | None = None
    memory: Memory | None = None
    use: ServerUse = ServerUse()
    """What the server did during the load."""
    events: tuple[Event, ...] = ()
    timeline: Timeline = Timeline()
    distributions: Mapping[LatencyName, Distribution] = {}
    """How the latencies are spread, for plots."""
    requests: RequestDetails | None = None
    """What the single requests show, where a client wrote them."""
    warnings: tuple[str, ...] = ()
    """What went wrong or misleads, in sentences."""
    notes: tuple[str, ...] = ()
    """What is always so of such a test, or is not known, in sentences."""


class LatencyTurn(Struct, frozen=True, kw_only=True):
    """The run, among several with ever more requests at once, from which on more of them cost more than they gain."""

    run: str
    requests_in_flight: float
    output_throughput: float
    e2el_ms: float


class Report(Struct, frozen=True, kw_only=True):
    """The runs that `report` found in its sources, in order of time. The JSON is this, with ``timeline`` left out."""

    runs: tuple[Run, ...]
    latency_turn: LatencyTurn | None = None
    """Where latency turns, if the runs are loads of one configuration and show it."""
    left_out: str | None = None
    """Which loads are in the sources and not among the runs, in a sentence."""
    plan: Plan | None = None


def bounded(bounds: Bounds, scale: float = 1.0) -> str:
    """Return between which values something is, as `spread` does."""
    return spread(bounds.low, bounds.high, scale)


def seconds(run: Run) -> float:
    """Return how long a run lasted; 0 if that is not known."""
    return 0.0 if run.start is None or run.end is None else run.end - run.start


def overlap(one: Run, other: Run) -> bool:
    """Return whether two runs have any time in common, as far as is known."""
    if one.start is None or one.end is None or other.start is None or other.end is None:
        return False
    return one.start < other.end and other.start < one.end


def parse_objective(text: str) -> Objective:
    """Parse ``chat``, ``batch``, or limits, ``ttft=300ms,tpot=40ms``; raise `ValueError`, for users, if it is none."""
    preset = SLO_PRESETS.get(text)
    if preset is not None:
        first, each = preset.time_to_first_token * 1000, preset.time_per_output_token * 1000
        return Objective(name=text, limits={"ttft_ms": first, "tpot_ms": each})
    limits: dict[LatencyName, float] = {}
    for part in text.split(","):
        name, separator, limit = (word.strip() for word in part.partition("="))
        latency = OBJECTIVE_LATENCIES.get(_LONG_NAMES.get(name, name))
        if not separator or latency is None:
            examples = f"{', '.join(SLO_PRESETS)} or limits such as ttft=300ms,tpot=40ms,e2el=5s"
            raise ValueError(f"expected {examples}, got {quote(text)}")
        if latency in limits:
            raise ValueError(f"{latency.removesuffix('_ms')} has two limits in {quote(text)}")
        limits[latency] = _milliseconds(limit)
    return Objective(name=GIVEN, limits=limits)


def _milliseconds(limit: str) -> float:
    duration = parse_duration(limit)
    if limit[-1].isdigit():
        raise ValueError(f"{quote(limit)} needs a unit: {limit}ms or {limit}s")
    if not _LIMIT_SECONDS[0] <= duration <= _LIMIT_SECONDS[1]:
        raise ValueError(f"expected a limit from 1ms to 1h, got {quote(limit)}")
    return duration * 1000
