# SPDX-License-Identifier: Apache-2.0
"""A load test in one sentence: how the load went, how much the server can carry, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_watch.analysis.loadtest.load_test import Report, Result, Run
from vllm_watch.analysis.rendering.results import best_figure, latency_text
from vllm_watch.analysis.rendering.run_facts import load_seconds, seconds_of_load
from vllm_watch.daemon.catalog.language import N_, _, clauses, full_stop
from vllm_watch.daemon.catalog.number_texts import MISSING, count, duration, percent, significant


_FULL = 0.95
"""From this share on a KV cache or a batch that was full at times is what limits."""


def answer(run: Run) -> str:
    """Return one sentence; what is not known is not said, and a run of which nothing is known has none."""
    result = run.result
    done = [] if result is None else [*_went(run, result)]
    went = [*([clauses(done)] if done else []), *([] if result is None else _failed(result))]
    parts = [part for part in (*went, *_troubles(run), *_carries(run), *_preempted(run)) if part]
    return full_stop(_("; ").join(parts)) if parts else ""


def answer_of_several(report: Report) -> str:
    """Return one sentence on several runs: how many there are, and the one with the most output."""
    known = [(at, run, run.result.output_throughput) for at, run in enumerate(report.runs, 1) if run.result is not None]
    rates = [(rate, at, run) for at, run, rate in known if rate is not None]
    parts = [_("{count} load tests", count=len(report.runs))]
    if rates:
        lowest, (highest, number, _run) = min(rates)[0], max(rates, key=lambda each: each[0])
        most = N_("output {lowest} to {highest} tokens/s, the most in number {number}")
        if any(_is_bound(run) for run in report.runs):
            most = N_("output at least {lowest} to {highest} tokens/s, the most in number {number}")
        parts.append(_(most, lowest=significant(lowest), highest=significant(highest), number=number))
    capacities = {run.capacity for run in report.runs if run.capacity is not None}
    if len(capacities) == 1:
        parts += _carries(next(run for run in report.runs if run.capacity is not None))
    return full_stop(_("; ").join(parts))


def _went(run: Run, result: Result) -> Iterator[str]:
    seconds = load_seconds(run) if result.duration_s is None else result.duration_s
    is_bound = _is_bound(run)
    if result.successful is not None:
        requests = N_("{count} request") if result.successful == 1 else N_("{count} requests")
        served = _(requests, count=count(result.successful))
        if seconds is not None:
            within = N_("{requests} in at most {time}") if is_bound else N_("{requests} in {time}")
            served = _(within, requests=served, time=duration(seconds))
        yield served
    elif seconds is not None:
        yield _("at most {time}", time=duration(seconds)) if is_bound else duration(seconds)
    if result.output_throughput is not None:
        output = N_("output at least {rate} tokens/s") if is_bound else N_("output {rate} tokens/s")
        yield _(output, rate=significant(result.output_throughput))
    elif result.total_token_throughput is not None:
        yield _("{value} tokens/s", value=significant(result.total_token_throughput))
    if result.ttft_ms is not None and best_figure("p50", result.ttft_ms) != MISSING:
        yield _(
            "TTFT P50 {p50} and P99 {p99}",
            p50=best_figure("p50", result.ttft_ms),
            p99=best_figure("p99", result.ttft_ms),
        )
    if result.tpot_ms is not None and result.tpot_ms.mean is not None:
        yield f"TPOT {latency_text(result.tpot_ms.mean)}"
    if result.ttft_ms is None and result.e2el_ms is not None and result.e2el_ms.mean is not None:
        yield f"E2EL {latency_text(result.e2el_ms.mean)}"
    if result.goodput is not None and result.goodput.ratio is not None:
        yield _("{ratio} % within the objective", ratio=percent(result.goodput.ratio))


def _is_bound(run: Run) -> bool:
    return run.may_be_shorter and run.result is not None and run.result.view == "server"


def _failed(result: Result) -> Iterator[str]:
    if result.failed:
        if result.successful is None:
            yield _("{count} failed", count=count(result.failed))
        else:
            sent = count(result.failed + result.successful)
            yield _("{count} of {sent} failed", count=count(result.failed), sent=sent)


def _troubles(run: Run) -> Iterator[str]:
    stalled, down = (seconds_of_load(run, phase) for phase in ("stalled", "down"))
    if stalled:
        yield _("it stalled for {time}", time=duration(stalled))
    if down:
        yield _("it was down for {time}", time=duration(down))


def _carries(run: Run) -> Sequence[str]:
    if run.capacity is None:
        return ()
    limit, rate = _limit(run), significant(run.capacity.tokens_per_second)
    if limit is None:
        return (_("it can carry about {rate} output tokens/s", rate=rate),)
    return (_("it can carry about {rate} output tokens/s, limited by {limit}", rate=rate, limit=limit),)


def _limit(run: Run) -> str | None:
    use, seats = run.use, run.max_running_requests
    if run.capacity is None or run.capacity.basis == "curve" or not use.max_waiting:
        return None
    if seats and (use.max_running or 0.0) >= _FULL * seats:
        return "max-num-seqs"
    return _("the KV cache") if (use.max_kv_cache_usage_ratio or 0.0) >= _FULL else None


def _preempted(run: Run) -> Iterator[str]:
    if run.use.preemptions:
        preemptions = N_("{count} preemption") if run.use.preemptions == 1 else N_("{count} preemptions")
        yield _(preemptions, count=count(run.use.preemptions))
