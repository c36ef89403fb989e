# SPDX-License-Identifier: Apache-2.0
"""
Batch sizes, in classes: how many requests an engine runs at once.

The classes are those of the series with a label ``batch_class``: ``1``, ``2-4``, and from there on each is of twice as
many requests as the one before. The last one here is open.
"""

from __future__ import annotations

from typing import Final

from boards.kit import promql


LABEL: Final = "_running"
"""The label with the class."""

_BOUNDS: Final = (4, 8, 16, 32, 64, 128, 256, 512, 1024)

_ENGINE: Final = "instance, server, model_name, engine"

_RUNNING: Final = promql.of_engine("requests_running")


def by_class(expr: str) -> str:
    """Return a quantity of engines with the class of their batch as a label, and nothing while nothing runs."""
    return f"({expr}) * on ({_ENGINE}) group_left ({LABEL}) {classes()}"


def classes() -> str:
    """Return 1 for each engine that runs requests, with the class of its batch as a label."""
    largest = _BOUNDS[-1]
    mean = f"clamp_min(round({_mean()} > 0), 1)"
    bound = f"clamp_max(2 ^ ceil(log2({mean})), {2 * largest})"
    named = f'count_values by ({_ENGINE}) ("{LABEL}", {bound})'
    names = {"2|4": "2-4"} | {str(high): f"{high // 2 + 1}-{high}" for high in _BOUNDS[1:]}
    for bounds, name in (names | {str(2 * largest): f"{largest + 1}+"}).items():
        named = f'label_replace({named}, "{LABEL}", "{name}", "{LABEL}", "{bounds}")'
    return named


def running() -> str:
    """Return how many requests each engine runs, with the class as a label."""
    return by_class(_mean())


def _mean() -> str:
    """Return the mean since the moment before: in a long time range a moment stands for minutes."""
    return f"(avg_over_time({_RUNNING}[$__interval]) or {_RUNNING})"
