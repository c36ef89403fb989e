# SPDX-License-Identifier: Apache-2.0
"""Which of very many runs are shown: the ones at the ends, that a reader looks for."""

from __future__ import annotations

import math

from collections.abc import Callable, Sequence

from vllm_watch.loadtest.model import Latency, Run


TELLING = "the runs with the most output, the lowest TTFT and TPOT, and the most failed requests"
"""Which runs are kept, in words."""


def telling_runs(runs: Sequence[Run], most: int) -> tuple[Run, ...]:
    """Return at most so many runs, in their order: by turns the next best of each order, and the next with failures."""
    if len(runs) <= most:
        return tuple(runs)
    orders = [iter(sorted(range(len(runs)), key=lambda place: order(runs[place]))) for order in _ORDERS]
    kept: set[int] = set()
    for places in zip(*orders, strict=True):
        for place in places:
            if len(kept) < most:
                kept.add(place)
    return tuple(runs[place] for place in sorted(kept))


def _by_output(run: Run) -> float:
    output = None if run.result is None else run.result.output_throughput
    return math.inf if output is None else -output


def _by_first_token(run: Run) -> float:
    return _mean(None if run.result is None else run.result.ttft_ms)


def _by_token(run: Run) -> float:
    return _mean(None if run.result is None else run.result.tpot_ms)


def _by_failures(run: Run) -> float:
    return 0.0 if run.result is None else -float(run.result.failed or 0)


def _mean(latency: Latency | None) -> float:
    return math.inf if latency is None or latency.mean is None else latency.mean


_ORDERS: tuple[Callable[[Run], float], ...] = (_by_output, _by_first_token, _by_token, _by_failures)
