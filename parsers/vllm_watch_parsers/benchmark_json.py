# SPDX-License-Identifier: Apache-2.0
"""
The JSON of ``vllm bench serve`` and ``benchmark_serving.py``, releases 0.4 to 0.33.

Keys are those of each release's own source. No release writes its version, so each key is read wherever it is. Lists
of single requests are there up to 0.7.3 (script) and 0.9.0 (command), later with ``--save-detailed``; ``latencies`` and
``queue_times`` are always there from 0.30.0 on. ``vllm bench sweep serve`` adds what it varied to each result.
"""

from __future__ import annotations

import re

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from math import inf
from typing import Any, TypeVar, get_args

from vllm_watch_parsers.benchmark_result import (
    MAX_MILLISECONDS,
    MAX_SECONDS,
    LatencyStats,
    MetricName,
    RampUp,
    Requests,
    ServeResult,
    Settings,
    counted,
)
from vllm_watch_parsers.fields import MAX_DRAFT_TOKENS, MAX_REQUESTS, MAX_TOKENS, MAX_TOKENS_PER_SECOND
from vllm_watch_parsers.json_fields import JsonFields


_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors")
"""Lists with one entry for each request, also for those that failed."""

_RESULTS = frozenset({"completed", "duration", "request_throughput", "total_input_tokens"})
_SETTINGS = frozenset(
    {
        "backend",
        "date",
        "endpoint_type",
        "model_id",
        "num_prompts",
        "request_rate",
        "tokenizer_id",
        "generated_texts",
        *_LISTS,
    }
)
READ_TEXTS = frozenset({"backend", "date", "endpoint_type", "model_id", "ramp_up_strategy", "request_rate"})
"""Keys whose texts are read as settings."""

_NAMED = READ_TEXTS | {"label", "tokenizer_id"}
"""Keys whose texts are the benchmark's own; every other text is the user's metadata."""

_SWEEP = "run_number"
_OWN = re.compile(
    r"run_number|num_prompts|best_of|use_beam_search|request_rate|burstiness|max_concurren.*|ramp_up_.*|duration|completed"
    r"|failed|total_.*|.*_throughput|request_goodput:?|.*_ms|max_output_tokens_per_s|spec_decode_.*|rtfx|diffusion_.*"
    r"|probe_.*"
)
"""Keys whose numbers are the benchmark's own: the others in a sweep's result are the options that it set."""

_STATISTIC = re.compile(r"(mean|median|std|p\d{1,3}(?:\.\d{1,12})?)_([a-z0-9_]{1,60})_ms")
_METRICS: tuple[MetricName, ...] = get_args(MetricName)
_GOODPUT_KEYS = ("request_goodput", "request_goodput:")
"""The second from 0.6.4 to 0.9.1, with the colon."""

Value = TypeVar("Value")

_MAX_RATE = 1e9
_MAX_METADATA = 256
_LONGEST_METADATA = 4096
_CLOCK = 1e15
"""A clock without a date may start anywhere; a request that failed early has a wait counted from its zero."""


def is_serve(keys: set[str]) -> bool:
    """Return whether an object with these keys, or the first ones of it, is a result of ``vllm bench serve``."""
    return len(keys & _RESULTS) >= 2 and len(keys & (_RESULTS | _SETTINGS)) >= 4


def read_serve(values: Mapping[str, Any], line: int) -> ServeResult:
    """
    Read the object of one run.

    Raises:
        BenchmarkError: A key is missing that every release writes, or a value is not what it has to be.
    """
    fields = JsonFields(values, line)
    completed = fields.required_whole("completed", MAX_REQUESTS)
    settings = _settings(fields)
    latencies = _latencies(fields)
    if "e2el" in latencies and "burstiness" not in values:  # Before 0.6.4 mean and median were exchanged.
        latencies["e2el"] = latencies["e2el"]._replace(mean=None, median=None)
    return ServeResult(
        line=line,
        settings=settings,
        duration=_positive(fields, "duration"),
        completed=completed,
        failed=_failed(fields, completed, settings.num_prompts),
        is_failed_counted=values.get("failed") is not None or bool(values.get("input_lens")),
        total_input_tokens=fields.required_whole("total_input_tokens", MAX_TOKENS),
        total_output_tokens=fields.whole("total_output_tokens", MAX_TOKENS),
        request_throughput=fields.required("request_throughput", MAX_TOKENS_PER_SECOND),
        output_throughput=fields.real("output_throughput", MAX_TOKENS_PER_SECOND),
        total_token_throughput=_total_throughput(fields),
        request_goodput=_goodput(fields),
        latencies=latencies if completed else {},
        acceptance_length=fields.real("spec_decode_acceptance_length", MAX_DRAFT_TOKENS + 1),
        requests=_requests(fields, completed),
        is_pooling="total_output_tokens" not in values,
        errors=_errors(fields),
    )


def _settings(fields: JsonFields) -> Settings:
    values = fields.values
    # Metadata is written between these keys and the rest, and may replace them by a text.
    num_prompts = None if isinstance(values.get("num_prompts"), str) else fields.whole("num_prompts", MAX_REQUESTS)
    return Settings(
        date=fields.text("date"),
        backend=fields.text("backend") or fields.text("endpoint_type"),
        model_id=fields.text("model_id"),
        num_prompts=num_prompts,
        request_rate=_rate(fields),
        burstiness=fields.real("burstiness", _MAX_RATE),
        max_concurrency=fields.whole("max_concurrency", MAX_REQUESTS),
        ramp_up=_ramp_up(fields),
        metadata=_metadata(values),
    )


def _rate(fields: JsonFields) -> float | None:
    return inf if fields.values.get("request_rate") == "inf" else fields.real("request_rate", _MAX_RATE)


def _ramp_up(fields: JsonFields) -> RampUp | None:
    strategy = fields.text("ramp_up_strategy")
    if strategy is None:
        return None
    return RampUp(strategy, fields.real("ramp_up_start_rps", _MAX_RATE), fields.real("ramp_up_end_rps", _MAX_RATE))


def _metadata(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the user's own keys: texts under names that are not the benchmark's, and what a sweep set."""
    found = {key: value for key, value in values.items() if isinstance(value, str) and key not in _NAMED}
    if _SWEEP in values:
        scalars = {key: value for key, value in values.items() if isinstance(value, (bool, int, float))}
        found |= {key: f"{value}" for key, value in scalars.items() if not _OWN.fullmatch(key)}
    return {key[:_LONGEST_METADATA]: text[:_LONGEST_METADATA] for key, text in list(found.items())[:_MAX_METADATA]}


def _positive(fields: JsonFields, key: str) -> float:
    value = fields.required(key, MAX_SECONDS)
    return value or fields.reject(key, "must be above 0")


def _failed(fields: JsonFields, completed: int, num_prompts: int | None) -> int | None:
    """Return how many requests failed: written from 0.11.1 on, before what is missing from the prompts."""
    failed = fields.whole("failed", MAX_REQUESTS)
    if failed is None and num_prompts is not None and num_prompts >= completed:
        # A data set may have fewer prompts than were asked for: the list of all requests, where there is one, knows.
        sent = len(fields.items("input_lens")) or num_prompts
        return max(sent - completed, 0)
    return failed


def _total_throughput(fields: JsonFields) -> float | None:
    """Return input and output tokens per second; before 0.6.0 they are only there apart."""
    total, of_input, of_output = (
        fields.real(f"{part}_throughput", MAX_TOKENS_PER_SECOND) for part in ("total_token", "input", "output")
    )
    if total is None and of_input is not None and of_output is not None:
        return of_input + of_output
    return total


def _goodput(fields: JsonFields) -> float | None:
    found = [fields.real(key, MAX_TOKENS_PER_SECOND) for key in _GOODPUT_KEYS]
    return next((value for value in found if value is not None), None)


def _latencies(fields: JsonFields) -> dict[MetricName, LatencyStats]:
    found: dict[MetricName, LatencyStats] = {}
    for key in fields.values:
        parts = _STATISTIC.fullmatch(key)
        if parts is None:
            continue
        metric = next((name for name in _METRICS if name == parts[2]), None)
        value = None if metric is None else fields.real(key, MAX_MILLISECONDS)
        if metric is not None and value is not None:
            found[metric] = _with_statistic(found.get(metric, LatencyStats()), parts[1], value)
    return {name: stats for name, stats in found.items() if _is_measured(name, stats)}


def _with_statistic(stats: LatencyStats, statistic: str, value: float) -> LatencyStats:
    """Return a latency with one more value: ``mean``, ``median``, ``std``, or ``p99`` with any number."""
    if statistic == "mean":
        return stats._replace(mean=value)
    if statistic == "median":
        return stats._replace(median=value)
    if statistic == "std":
        return stats._replace(std=value)
    return stats._replace(percentiles={**stats.percentiles, float(statistic[1:]): value})


def _is_measured(name: MetricName, stats: LatencyStats) -> bool:
    """Return whether there was anything to measure: without values the client writes 0 for all, but a wait may be 0."""
    return name == "client_queue_time" or any((stats.mean, stats.median, *stats.percentiles.values()))


def _requests(fields: JsonFields, completed: int) -> Requests | None:
    """Return the successful requests, if the file has single requests and says which were successful."""
    lists = {key: fields.items(key) for key in _LISTS}
    sizes = {key: len(items) for key, items in lists.items() if items}
    if not sizes or not completed:
        return None
    _check_sizes(fields, sizes)
    chosen = _successful(lists, completed)
    if chosen is None:
        return None

    def reals(key: str, most: float, least: float = 0.0) -> Sequence[float]:
        return array("d", _chosen(fields.reals_of(key, lists[key], most, least), chosen))

    def wholes(key: str) -> tuple[int, ...]:
        return tuple([int(value) for value in reals(key, MAX_TOKENS)])

    itls = [fields.reals_of(f"itls[{number}]", gaps, MAX_SECONDS) for number, gaps in enumerate(lists["itls"])]
    ttfts, gaps = reals("ttfts", MAX_SECONDS), tuple(_chosen(itls, chosen))
    return Requests(
        input_lens=wholes("input_lens"),
        output_lens=wholes("output_lens"),
        ttfts=ttfts,
        itls=gaps,
        latencies=reals("latencies", MAX_SECONDS) or _summed(ttfts, gaps),
        start_times=reals("start_times", _CLOCK, -_CLOCK),
        queue_times=reals("queue_times", MAX_SECONDS, -_CLOCK),
    )


def _errors(fields: JsonFields) -> Mapping[str, int]:
    """Return how many requests failed for which reason; one without a text may be a success."""
    return counted(text for text in fields.items("errors") if isinstance(text, str) and text)


def _check_sizes(fields: JsonFields, sizes: Mapping[str, int]) -> None:
    """Reject lists of single requests that are not of the same requests."""
    first, size = next(iter(sizes.items()))
    for key, other in sizes.items():
        if other != size:
            fields.reject(key, f"has {other} entries, but {first} has {size}")


def _successful(lists: Mapping[str, list[Any]], completed: int) -> list[bool] | None:
    """
    Return which requests were successful, or `None` if that cannot be known.

    A failed one has an error, but a server may give an error without a text. Then it has no output token, and no time.
    """
    length = max(len(items) for items in lists.values())
    marks = [[not each for each in lists["errors"]]] if lists["errors"] else []
    for key in ("output_lens", "latencies"):
        if lists[key]:
            known = marks[-1] if marks else [True] * length
            marks.append([is_ok and bool(each) for is_ok, each in zip(known, lists[key], strict=True)])
    return next((mark for mark in marks if sum(mark) == completed), None)


def _chosen(items: Iterable[Value], chosen: Iterable[bool]) -> list[Value]:
    return list(compress(items, chosen))


def _summed(ttfts: Sequence[float], itls: Sequence[Sequence[float]]) -> Sequence[float]:
    """Return how long each request took: to its first chunk, and from each chunk to the next."""
    if not ttfts or not itls:
        return ()
    return tuple([first + sum(gaps) for first, gaps in zip(ttfts, itls, strict=True)])
