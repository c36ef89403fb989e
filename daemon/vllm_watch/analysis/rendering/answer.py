# SPDX-License-Identifier: Apache-2.0
"""A load test in one sentence: how the load went, how much the server can carry, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_watch.analysis.loadtest.load_test import Report, Result, Run
from vllm_watch.analysis.rendering.results import best_figure, latency_text
from vllm_watch.analysis.rendering.run_facts import load_seconds, seconds_of_load
from vllm_watch.daemon.catalog.number_texts import MISSING, count, duration, percent, significant


_FULL = 0.95
"""From this share on a KV cache or a batch that was full at times is what limits."""


def answer(run: Run) -> str:
    """Return one sentence; what is not known is not said, and a run of which nothing is known has none."""
    result = run.result
    went = [] if result is None else [", ".join(_went(run, result)), *_failed(result)]
    parts = [part for part in (*went, *_troubles(run), *_carries(run), *_preempted(run)) if part]
    return f"{'; '.join(parts)}." if parts else ""


def answer_of_several(report: Report) -> str:
    """Return one sentence on several runs: how many there are, and the one with the most output."""
    known = [(at, run, run.result.output_throughput) for at, run in enumerate(report.runs, 1) if run.result is not None]
    rates = [(rate, at, run) for at, run, rate in known if rate is not None]
    parts = [f"{len(report.runs)} load tests"]
    if rates:
        lowest, (highest, number, _) = min(rates)[0], max(rates, key=lambda each: each[0])
        least = "at least " * any(_is_bound(run) for run in report.runs)
        parts.append(
            f"output {least}{significant(lowest)} to {significant(highest)} tokens/s, the most in number {number}"
        )
    capacities = {run.capacity for run in report.runs if run.capacity is not None}
    if len(capacities) == 1:
        parts += _carries(next(run for run in report.runs if run.capacity is not None))
    return f"{'; '.join(parts)}."


def _went(run: Run, result: Result) -> Iterator[str]:
    seconds = load_seconds(run) if result.duration_s is None else result.duration_s
    requests = (
        None if result.successful is None else f"{count(result.successful)} request{'s' * (result.successful != 1)}"
    )
    if requests is not None or seconds is not None:
        took = None if seconds is None else f"{'at most ' * _is_bound(run)}{duration(seconds)}"
        yield " in ".join(part for part in (requests, took) if part)
    if result.output_throughput is not None:
        yield f"output {'at least ' * _is_bound(run)}{significant(result.output_throughput)} tokens/s"
    elif result.total_token_throughput is not None:
        yield f"{significant(result.total_token_throughput)} tokens/s"
    if result.ttft_ms is not None and best_figure("p50", result.ttft_ms) != MISSING:
        yield f"TTFT P50 {best_figure('p50', result.ttft_ms)} and P99 {best_figure('p99', result.ttft_ms)}"
    if result.tpot_ms is not None and result.tpot_ms.mean is not None:
        yield f"TPOT {latency_text(result.tpot_ms.mean)}"
    if result.ttft_ms is None and result.e2el_ms is not None and result.e2el_ms.mean is not None:
        yield f"E2EL {latency_text(result.e2el_ms.mean)}"
    if result.goodput is not None and result.goodput.ratio is not None:
        yield f"{percent(result.goodput.ratio)} % within the objective"


def _is_bound(run: Run) -> bool:
    return run.may_be_shorter and run.result is not None and run.result.view == "server"


def _failed(result: Result) -> Iterator[str]:
    if result.failed:
        sent = "" if result.successful is None else f" of {count(result.failed + result.successful)}"
        yield f"{count(result.failed)}{sent} failed"


def _troubles(run: Run) -> Iterator[str]:
    stalled, down = (seconds_of_load(run, phase) for phase in ("stalled", "down"))
    if stalled:
        yield f"it stalled for {duration(stalled)}"
    if down:
        yield f"it was down for {duration(down)}"


def _carries(run: Run) -> Sequence[str]:
    if run.capacity is None:
        return ()
    limit = _limit(run)
    by = "" if limit is None else f", limited by {limit}"
    return (f"it can carry about {significant(run.capacity.tokens_per_second)} output tokens/s{by}",)


def _limit(run: Run) -> str | None:
    use, seats = run.use, run.max_running_requests
    if run.capacity is None or run.capacity.basis == "curve" or not use.max_waiting:
        return None
    if seats and (use.max_running or 0.0) >= _FULL * seats:
        return "max-num-seqs"
    return "the KV cache" if (use.max_kv_cache_usage_ratio or 0.0) >= _FULL else None


def _preempted(run: Run) -> Iterator[str]:
    if run.use.preemptions:
        yield f"{count(run.use.preemptions)} preemption{'s' * (run.use.preemptions != 1)}"
