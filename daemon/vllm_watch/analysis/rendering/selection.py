# SPDX-License-Identifier: Apache-2.0
"""Which of very many runs are shown: the ones at the ends, that a reader looks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TypeAlias

from vllm_watch.analysis.loadtest.load_test import Run


_Order: TypeAlias = Callable[[Run], float | None]
"""What runs are ranked by, the lowest first; `None` of a run that it says nothing of."""

TELLING = "the runs with the most output, the lowest TTFT P50 and mean TPOT, and the most failed requests"
"""Which runs are kept, in words."""


def telling_runs(runs: Sequence[Run], most: int) -> tuple[Run, ...]:
    """
    Return at most so many runs, in their order: by turns the next best of each order, and the next with failures.

    A run of which an order knows nothing, or in which nothing failed, has no place in it.
    """
    if len(runs) <= most:
        return tuple(runs)
    kept: set[int] = set()
    for places in zip_longest(*(_ranked(runs, order) for order in _ORDERS)):
        for place in places:
            if place is not None and len(kept) < most:
                kept.add(place)
    return tuple(runs[place] for place in sorted(kept))


def _ranked(runs: Sequence[Run], order: _Order) -> list[int]:
    """Return the places of the runs that an order knows, the best first."""
    known = [(value, place) for place, run in enumerate(runs) if (value := order(run)) is not None]
    return [place for _, place in sorted(known)]


def _by_output(run: Run) -> float | None:
    output = None if run.result is None else run.result.output_throughput
    return None if output is None else -output


def _by_first_token(run: Run) -> float | None:
    latency = None if run.result is None else run.result.ttft_ms
    return None if latency is None else latency.p50


def _by_token(run: Run) -> float | None:
    latency = None if run.result is None else run.result.tpot_ms
    return None if latency is None else latency.mean


def _by_failures(run: Run) -> float | None:
    failed = None if run.result is None else run.result.failed
    return -float(failed) if failed else None


_ORDERS: tuple[_Order, ...] = (_by_output, _by_first_token, _by_token, _by_failures)
