# SPDX-License-Identifier: Apache-2.0
"""
How long a decode step of an engine takes, by what it had to do.

A step takes longer with more requests, with longer contexts, and with prompts in it. So the times are kept apart by
these three. Then two times of one class differ only if the engine's speed does. Drafts change how many tokens a step
yields, not how long it takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.catalog.codes import STEP_TIME_SECONDS
from vllm_watch_parsers.readings import EngineReading


MIN_MEASURED = 3
"""The median of fewer measurements is only chance."""

MAX_MEASURED = 64
"""How many measurements of a class are kept: scrapes every 5 s make 60 of them."""

MAX_CLASSES = 32
"""How many classes of an engine are kept: those that were measured last."""

_SMALL_BATCH = 4
_SHORT_CONTEXT = 1024
_SMALL_PROMPT = 16
"""Where the least range of each ends, in requests and in tokens; that of a batch of one is its own."""

_LEAST_SHARE = 4096
"""The least share of the KV cache is one part in 4096."""

_HALVED_PROMPTS = 64
"""With more prompt tokens a range is half as wide as it is for requests and for contexts."""

_TOLERANCE = 0.1
"""Two numbers that differ by no larger part count as the same."""

_MIN_STEPS = 10
"""Between two scrapes, for a mean."""

_MAX_GAP = 60.0
"""Seconds between two scrapes: in a longer time too much else may have happened."""


class StepClass(NamedTuple):
    """
    What a step had to do.

    Args:
        batch: Requests that decoded, as a range such as ``5-8``; each is twice as wide as the one before.
        context: Tokens that each of them held in the KV cache, as a range; where the size of the cache is not known,
            the share of it, such as ``1/64``: up to that, and more than half of it.
        prompt: Prompt tokens, as a range.
    """

    batch: str
    context: str
    prompt: str


class StepTime(NamedTuple):
    """The median time of a decode step in seconds, of how many measurements, and when the last of them ended."""

    seconds: float
    measured: int
    at: float


class Measured(NamedTuple):
    """The mean time of a decode step in one period, in seconds."""

    step_class: StepClass
    seconds: float


def scraped_step(
    seconds: float, old: EngineReading, new: EngineReading, kv_cache_tokens: int | None
) -> Measured | None:
    """
    Return the time of a step between two scrapes, `None` where steps were few, or something else took time.

    vLLM observes the time between two outputs of each request, which is that of a step, also where the engine was idle
    in between.

    Args:
        seconds: How far the scrapes are apart.
        old: The engine in the first of them.
        new: The engine in the second.
        kv_cache_tokens: The size of the KV cache in tokens, if it is known.
    """
    steps, _ = _observed(old, new, "iteration_tokens") or (0.0, 0.0)
    if steps < _MIN_STEPS or seconds > _MAX_GAP:
        return None
    waits = _observed(old, new, "inter_token_latency_seconds")
    starts = _observed(old, new, "time_to_first_token_seconds")
    generated, prompt = _grown(old, new, "generation_tokens"), _prompt_tokens(old, new)
    if waits is None or starts is None or generated is None or prompt is None:
        return None
    (waited, wait_seconds), (started, _) = waits, starts
    if not waited or _grown(old, new, "preemptions"):
        return None  # A preempted request waits, which is no step.
    # Of the outputs of a step each request has one token that is no draft; its first output ends no decoding.
    outputs = generated - (_grown(old, new, "accepted_tokens") or 0.0)
    if not _is_same(outputs - started, waited):
        return None
    decoded, context = outputs / steps, _context(old, new)
    if context is None or not (started or _is_steady(old, new, decoded)):
        return None
    return Measured(_class_of(decoded, context, kv_cache_tokens, prompt / steps), wait_seconds / waited)


def _class_of(decoded: float, context: float, kv_cache_tokens: int | None, prompt: float) -> StepClass:
    requests = round(decoded)
    return StepClass(
        "1" if requests <= 1 else _doubling(requests, 2, _SMALL_BATCH),
        _share_class(context)
        if kv_cache_tokens is None
        else _doubling(round(context * kv_cache_tokens), 1, _SHORT_CONTEXT),
        _prompt_class(prompt),
    )


def _share_class(share: float) -> str:
    parts = _LEAST_SHARE
    while parts > 1 and share * parts > 1:
        parts //= 2
    return "1" if parts == 1 else f"1/{parts}"


def _doubling(value: int, first: int, last: int) -> str:
    """Return the range of a value; the least is from `first` to `last`."""
    if value <= last:
        return f"{first}-{last}"
    upper = 1 << (value - 1).bit_length()
    return f"{upper // 2 + 1}-{upper}"


def _prompt_class(tokens: float) -> str:
    """
    Return the range of prompt tokens; above the small ones a range ends at a power of two, or halfway to it.

    Prompts can be most of a step's work. Within a doubling range its time could double with them.
    """
    whole = round(tokens)
    upper = 1 << (whole - 1).bit_length()
    if upper <= _HALVED_PROMPTS:
        return _doubling(whole, 0, _SMALL_PROMPT)
    half = upper // 4 * 3
    return f"{upper // 2 + 1}-{half}" if whole <= half else f"{half + 1}-{upper}"


def _is_same(one: float, other: float) -> bool:
    """Return whether two numbers are the same within a tenth, and not zero."""
    return min(one, other) > 0 and abs(one - other) <= _TOLERANCE * max(one, other)


def _is_steady(old: EngineReading, new: EngineReading, decoded: float) -> bool:
    """Return whether all requests decoded all the time: the parts of a long prompt are counted only at its end."""
    before, after = _running(old), _running(new)
    return _is_same(before, after) and _is_same(decoded, after)


def _context(old: EngineReading, new: EngineReading) -> float | None:
    """Return which share of the KV cache a request held on average, `None` where no scrape saw one."""
    running = _running(old) + _running(new)
    before, after = (reading.gauges.get("kv_cache_usage_ratio") for reading in (old, new))
    return None if not running or before is None or after is None else (before + after) / running


def _running(reading: EngineReading) -> float:
    return reading.gauges.get("requests_running", 0.0)


def _observed(old: EngineReading, new: EngineReading, histogram: str) -> tuple[float, float] | None:
    before, after = old.histograms.get(histogram), new.histograms.get(histogram)
    if before is None or after is None:
        return None
    return after.counts[-1] - before.counts[-1], after.sum - before.sum


def _grown(old: EngineReading, new: EngineReading, counter: str) -> float | None:
    before, after = old.counters.get(counter), new.counters.get(counter)
    return None if before is None or after is None else after - before


def _prompt_tokens(old: EngineReading, new: EngineReading) -> float | None:
    """Return the prompt tokens computed; where cached ones cannot be distinguished from them, all."""
    computed = _grown(old, new, "prompt_tokens_computed")
    return _grown(old, new, "prompt_tokens") if computed is None else computed


class StepTimes:
    """What was measured of one engine in the last minutes, by class."""

    def __init__(self) -> None:
        self._measured: dict[StepClass, deque[tuple[float, float]]] = {}
        """When a step of each class was measured, and its seconds; the class that was measured last is the last."""

    def add(self, at: float, measured: Measured | None) -> None:
        """Take in a period that ended now; `None` is one in which nothing was measured."""
        if measured is None:
            return
        of_class = self._measured.pop(measured.step_class, None)
        if of_class is None:
            of_class = deque(maxlen=MAX_MEASURED)
            if len(self._measured) >= MAX_CLASSES:
                del self._measured[next(iter(self._measured))]
        of_class.append((at, measured.seconds))
        self._measured[measured.step_class] = of_class

    def recent(self, now: float) -> Mapping[StepClass, StepTime]:
        """Return the median time of a step by class, of those with enough measurements in the last minutes."""
        times = {}
        for step_class, measured in self._measured.items():
            recent = [(at, seconds) for at, seconds in measured if now - at < STEP_TIME_SECONDS]
            if len(recent) >= MIN_MEASURED:
                ordered = sorted(seconds for _, seconds in recent)
                middle = (ordered[len(ordered) // 2] + ordered[~(len(ordered) // 2)]) / 2
                times[step_class] = StepTime(middle, len(ordered), recent[-1][0])
        return times
