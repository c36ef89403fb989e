# SPDX-License-Identifier: Apache-2.0
"""When runs were: their length, and whether two of them were at one time."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.model import Run


def seconds(run: Run) -> float:
    """Return how long a run lasted; 0 if that is not known."""
    return 0.0 if run.start is None or run.end is None else run.end - run.start


def overlap(one: Run, other: Run) -> bool:
    """Return whether two runs have any time in common, as far as is known."""
    if one.start is None or one.end is None or other.start is None or other.end is None:
        return False
    return one.start < other.end and other.start < one.end
