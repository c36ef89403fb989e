# SPDX-License-Identifier: Apache-2.0
"""
A benchmark and its result in words: what was sent, and what to know before reading the result.

There is one sentence each, only where the result shows it. Warnings are of what went wrong or misleads; notes of what
is always so of such a test, or is not known.
"""

from __future__ import annotations

import math

from collections.abc import Mapping
from statistics import fmean, median, pstdev

from vllm_watch.analysis.loadtest.load_test import Endpoint, Load, RateGrowth, Result
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import count, limit, milliseconds
from vllm_watch_parsers.benchmark_result import ServeResult


BENCHMARK_KINDS: Mapping[Endpoint, str] = {
    "online": N_("requests to a server"),
    "pooling": N_("requests to a server with a pooling model"),
}

CHUNK = 1.2
"""With at least this many tokens per chunk, ITL is not the time between tokens."""

VARYING = 0.1
"""Answers whose lengths differ by this share of their mean, as a standard deviation, vary."""

SHORT = 10
"""A run of fewer latencies than this is dominated by its ramp, when requests start, and its drain, when they end."""

SLOW_START = 3.0
"""How many times as slow as the rest the first answers are if the server was cold, or all clients arrived at once."""

_FIRST = 8
_QUEUED = 0.01
"""A wait at the client of a smaller share of the latency changes nothing."""


def warnings_of(result: ServeResult, view: Result) -> tuple[str, ...]:
    """Return what went wrong or misleads; `view` is the same result with its computed percentiles."""
    sentences = (
        _unanswered(result),
        _client_queue(result),
        _short(result, view),
        _slow_start(result),
        _exchanged(result),
    )
    return tuple(sentence for sentence in sentences if sentence)


def notes_of(result: ServeResult) -> tuple[str, ...]:
    """Return what is always so of such a test, and what is not known of it."""
    sentences = (_chunks(result), _closed_loop(result), _lengths(result))
    return tuple(sentence for sentence in sentences if sentence)


def tokens_per_chunk(result: ServeResult) -> float | None:
    """Return how many tokens a chunk of the stream has on average: several with speculative decoding."""
    requests = result.requests
    if requests is not None and requests.itls and requests.output_lens:
        gaps = sum(map(len, requests.itls))
        tokens = sum(length - 1 for length in requests.output_lens if length > 1)
        return tokens / gaps if gaps else None
    itl, tpot = (result.latencies.get(name) for name in ("itl", "tpot"))
    if itl is not None and tpot is not None and itl.mean and tpot.mean:
        return itl.mean / tpot.mean
    return result.acceptance_length


def _unanswered(result: ServeResult) -> str | None:
    if not result.failed or result.is_failed_counted:
        return None
    sent = result.completed + result.failed
    return _(
        "Of {sent} prompts that were asked for, {answered} have an answer. This release of the benchmark does not "
        "count failures, and a data set may have fewer prompts: how many failed is not known.",
        sent=sent,
        answered=result.completed,
    )


def _chunks(result: ServeResult) -> str | None:
    tokens = tokens_per_chunk(result)
    if tokens is None or tokens < CHUNK or result.is_pooling:
        return None
    return _(
        "A chunk of the stream has {tokens:.1f} tokens on average: ITL and the peak output rate count chunks, "
        "TPOT and the output rate count tokens.",
        tokens=tokens,
    )


def _closed_loop(result: ServeResult) -> str | None:
    users = result.settings.max_concurrency
    if users is None or not _is_unpaced(result):
        return None
    return _(
        "A closed loop: at most {users} at a time, the next request only after an answer. It "
        "sends less when the server is slow, so its latencies do not show how requests would wait.",
        users=users,
    )


def _is_unpaced(result: ServeResult) -> bool:
    rate = result.settings.request_rate
    return result.settings.ramp_up is None and (rate is None or math.isinf(rate))


def _client_queue(result: ServeResult) -> str | None:
    if result.settings.max_concurrency is None or _is_unpaced(result):
        return None
    places = result.settings.max_concurrency
    requests = result.requests
    waits = [max(wait, 0.0) for wait in requests.queue_times] if requests is not None else []
    if not waits or requests is None or not requests.latencies:
        return _(
            "TTFT and E2EL leave out how long requests waited at the client for one of the {places} places of "
            "--max-concurrency.",
            places=places,
        )
    mean = fmean(waits)
    if mean < _QUEUED * fmean(requests.latencies):
        return None
    return _(
        "TTFT and E2EL leave out that requests waited {mean:.0f} ms on average, {most:.0f} ms at most, at the client "
        "for one of the {places} places of --max-concurrency.",
        mean=1000 * mean,
        most=1000 * max(waits),
        places=places,
    )


def _short(result: ServeResult, view: Result) -> str | None:
    latency = None if view.e2el_ms is None else view.e2el_ms.mean
    if latency is None and view.ttft_ms is not None and view.tpot_ms is not None and result.completed:
        first, later = view.ttft_ms.mean, view.tpot_ms.mean
        tokens = (result.total_output_tokens or 0) / result.completed
        latency = None if first is None or later is None else first + later * max(tokens - 1, 0)
    if not latency or not result.duration or 1000 * result.duration >= SHORT * latency:
        return None
    return _(
        "The run took only {times:.1f} times as long as a request: its rates are mostly those of the ramp at its start "
        "and the drain at its end.",
        times=1000 * result.duration / latency,
    )


def _slow_start(result: ServeResult) -> str | None:
    ttfts = result.requests.ttfts if result.requests is not None else ()
    first = result.settings.max_concurrency or _FIRST
    if len(ttfts) >= 3 * first:
        start, rest = median(ttfts[:first]), median(ttfts[first:])
        if not rest or start < SLOW_START * rest:
            return None
        return _(
            "The first {count} answers started {times:.1f} times as late as the rest: a server that was not "
            "warm, or all clients at once. They raise the mean and the high percentiles of TTFT.",
            count=first,
            times=start / rest,
        )
    if result.settings.num_warmups == 0:
        return _("The client sent no warm-up requests: the first answers may be slow and raise mean and percentiles.")
    return None


def _lengths(result: ServeResult) -> str | None:
    lengths = result.requests.output_lens if result.requests is not None else ()
    if len(lengths) < 2 or pstdev(lengths) < VARYING * fmean(lengths):
        return None
    return _(
        "Answers have {least} to {most} tokens, {mean:.0f} on average: another run may have others, and with them "
        "other latencies, unless it uses --ignore-eos and the same prompts.",
        least=min(lengths),
        most=max(lengths),
        mean=fmean(lengths),
    )


def _exchanged(result: ServeResult) -> str | None:
    e2el = result.latencies.get("e2el")
    if e2el is None or e2el.mean is not None or (result.requests is not None and result.requests.latencies):
        return None
    return _(
        "Mean and median of E2EL are left out: releases before 0.6.4 exchanged them, and this may be such a result."
    )


def load_text(load: Load) -> str | None:
    """Return how much was sent, ``4 requests/s``, ``8 at once``, ``all at once``; `None` if that is not known."""
    rate = load.request_rate
    parts = [] if rate is None or rate == "inf" else [_("{rate} requests/s", rate=limit(float(rate)))]
    parts += [] if load.ramp_up is None else [_growth_text(load.ramp_up)]
    if load.max_concurrency is not None:
        users = count(load.max_concurrency)
        parts.append(_("at most {users} at once", users=users) if parts else _("{users} at once", users=users))
    if not parts and rate == "inf":
        return _("all at once")
    return listed(parts) or None


def _growth_text(growth: RateGrowth) -> str:
    if growth.start is None or growth.end is None:
        return _("a growing rate ({how})", how=growth.strategy)
    start, end = limit(growth.start), limit(growth.end)
    return _("{start} to {end} requests/s ({how})", start=start, end=end, how=growth.strategy)


def slow_client(seen_ms: float, had_ms: float, name: str | None = None) -> str:
    """Return a sentence on a client, named by its side, that sees the first token much later than the server."""
    seen, had = milliseconds(round(seen_ms)), milliseconds(round(had_ms))
    if name is None:
        return _(
            "The client saw the first token after {seen} on average, its server had it after {had}: the rest is the "
            "client's own slowness, or the network's.",
            seen=seen,
            had=had,
        )
    return _(
        "The client of {name} saw the first token after {seen} on average, its server had it after {had}: the rest is "
        "the client's own slowness, or the network's.",
        name=name,
        seen=seen,
        had=had,
    )
