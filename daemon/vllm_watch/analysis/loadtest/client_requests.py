# SPDX-License-Identifier: Apache-2.0
"""
What the single requests of a client show: why some failed, the slowest, TTFT by prompt length, the load over time.

Tokens of an answer count as evenly spread from its first to its last one.
"""

from __future__ import annotations

import math

from bisect import bisect_right
from collections.abc import Sequence
from statistics import fmean

from vllm_watch.analysis.loadtest.load_test import PromptSlope, RequestDetails, SlowRequest, Steady, Timeline
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.statistics.percentiles import percentile
from vllm_watch.daemon.statistics.steady_window import MEASURED, METHOD, find_steady_window
from vllm_watch.daemon.statistics.student_t import t_quantile
from vllm_watch_parsers.benchmark_result import Requests, ServeResult


SLOWEST = 10
LEAST_REQUESTS = 10
"""With fewer requests nothing is said of how TTFT grows."""

MOST_POINTS = 500
"""So many requests a plot has; of more, evenly chosen ones."""

_LEAST_SPREAD = 1.2
"""The longest prompt has at least this many times the tokens of the shortest, or their lengths tell nothing."""

_MOMENTS = 120
_LEAST_STEP = 0.25


def request_details(result: ServeResult) -> RequestDetails | None:
    """Return what the requests show; `None` if the client wrote nothing of single requests."""
    requests = result.requests or Requests()
    pairs = list(zip(requests.input_lens, requests.ttfts, strict=False))
    size = -(-len(pairs) // MOST_POINTS)
    details = RequestDetails(
        errors=result.errors,
        slowest=_slowest(requests),
        slope=_slope(pairs),
        ttft_by_prompt=tuple((float(tokens), 1000 * seconds) for tokens, seconds in pairs[:: size or 1]),
    )
    return None if details == RequestDetails() else details


def load_over_time(requests: Requests | None, start: float | None) -> Timeline:
    """Return requests at work and tokens per second; nothing without the times of requests, or of the first of them."""
    if requests is None or start is None or not requests.start_times or not requests.latencies:
        return Timeline()
    first = min(requests.start_times)
    begun = sorted(each - first for each in requests.start_times)
    ends = [each - first + whole for each, whole in zip(requests.start_times, requests.latencies, strict=True)]
    ended = sorted(ends)
    step = max(ended[-1] / _MOMENTS, _LEAST_STEP)
    times = [step * (place + 0.5) for place in range(math.ceil(ended[-1] / step))]
    values: dict[str, tuple[float | None, ...]] = {
        "requests_running": tuple(float(bisect_right(begun, at) - bisect_right(ended, at)) for at in times)
    }
    if requests.output_lens and requests.ttfts:
        answers = list(zip(requests.start_times, requests.ttfts, ends, requests.output_lens, strict=True))
        tokens = [0.0] * len(times)
        for begin, ttft, end, count in answers:
            _spread(tokens, step, begin - first + ttft, end, count)
        values["generation_tokens_per_second"] = tuple(each / step for each in tokens)
    return Timeline(times=tuple(start + at for at in times), values=values)


def steady_window(requests: Requests | None, over_time: Timeline) -> Steady | None:
    """Return the steady window of a load by the starts of its requests; `None` if there are too few moments."""
    if requests is None or not over_time.times:
        return None
    step = over_time.times[1] - over_time.times[0] if len(over_time.times) > 1 else _LEAST_STEP
    start = over_time.times[0] - step / 2
    last = max(requests.start_times) - min(requests.start_times)
    running = over_time.values["requests_running"]
    rates = over_time.values.get("generation_tokens_per_second", ())
    each = [at / rate if at and rate else None for at, rate in zip(running, rates, strict=False)]
    found = find_steady_window(
        over_time.times,
        {N_("running requests"): running, **({MEASURED: each} if each else {})},
        (start, start + last),
        percentile(sorted(requests.latencies), 0.99),
    )
    return None if found is None else Steady(start=found.start, end=found.end, method=_(METHOD), problem=found.problem)


def _spread(tokens: list[float], step: float, begin: float, end: float, count: int) -> None:
    """Add the tokens of an answer to the steps that it lasts: all at its end if it has no length."""
    if end - begin <= 0:
        tokens[min(int(end / step), len(tokens) - 1)] += count
        return
    for place in range(int(begin / step), min(int(end / step), len(tokens) - 1) + 1):
        part = min(end, (place + 1) * step) - max(begin, place * step)
        tokens[place] += count * max(part, 0.0) / (end - begin)


def _slowest(requests: Requests) -> tuple[SlowRequest, ...]:
    whole = requests.latencies
    order = sorted(range(len(whole)), key=lambda place: -whole[place])[:SLOWEST]
    first = min(requests.start_times, default=0.0)

    def value(values: Sequence[float], place: int) -> float | None:
        return values[place] if values else None

    found = []
    for place in order:
        begin, ttft = value(requests.start_times, place), value(requests.ttfts, place)
        found.append(
            SlowRequest(
                number=place + 1,
                start_s=None if begin is None else begin - first,
                prompt_tokens=requests.input_lens[place] if requests.input_lens else None,
                output_tokens=requests.output_lens[place] if requests.output_lens else None,
                ttft_ms=None if ttft is None else 1000 * ttft,
                e2el_ms=1000 * whole[place],
            )
        )
    return tuple(found)


def _slope(pairs: Sequence[tuple[int, float]]) -> PromptSlope | None:
    lengths = [tokens for tokens, _ in pairs]
    if len(pairs) < LEAST_REQUESTS or max(lengths) < _LEAST_SPREAD * max(min(lengths), 1):
        return None
    mean, first = fmean(lengths), fmean(seconds for _, seconds in pairs)
    square = math.fsum((tokens - mean) ** 2 for tokens in lengths)
    slope = math.fsum((tokens - mean) * (seconds - first) for tokens, seconds in pairs) / square
    rest = math.fsum((seconds - first - slope * (tokens - mean)) ** 2 for tokens, seconds in pairs)
    error = t_quantile(0.975, len(pairs) - 2) * math.sqrt(rest / (len(pairs) - 2) / square)
    scale = 1e6  # Seconds a token are a million times milliseconds a thousand tokens.
    return PromptSlope(
        ms_per_1000_tokens=scale * slope, low=scale * (slope - error), high=scale * (slope + error), count=len(pairs)
    )
