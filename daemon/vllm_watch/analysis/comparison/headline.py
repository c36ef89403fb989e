# SPDX-License-Identifier: Apache-2.0
"""The metric to look at first."""

from __future__ import annotations

from vllm_watch.analysis.comparison.load_kinds import load_kind
from vllm_watch.analysis.comparison.metrics import GOODPUT, OUTPUT, TPOT
from vllm_watch.analysis.comparison.pair import Pair


def headline_metric(pair: Pair) -> str:
    """
    Return the name of the metric to look at first: chosen by what was asked and sent, never by the values.

    Goodput if an objective is set, else output tokens per second; at a fixed rate that only repeats the rate, so there
    it is the time per output token.
    """
    if all(result.goodput is not None for side in pair.sides for result in side.results):
        return GOODPUT
    kinds = {load_kind(run.load) for side in pair.sides for run in side.runs}
    return TPOT if kinds == {"open"} else OUTPUT
