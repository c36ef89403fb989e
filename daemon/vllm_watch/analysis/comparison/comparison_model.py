# SPDX-License-Identifier: Apache-2.0
"""What `compare` answers. Ratios and units are those of `loadtest.model`; what is not known is absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vllm_watch.analysis.loadtest.load_test import Run, Struct
from vllm_watch.daemon.catalog.metric_titles import View


Verdict = Literal["better", "worse", "no_difference_shown", "below_what_matters", "too_few", "not_compared"]
"""
better, worse: real, in the direction that is good for this metric or bad. no_difference_shown: the interval holds 0.
below_what_matters: the whole interval is so close to 0 that it does not matter. too_few: not enough runs or values for
an answer. not_compared: these two sides cannot be compared in this metric; the row's note says why.
"""


class Side(Struct, frozen=True, kw_only=True):
    """One configuration: its name and the runs of it."""

    name: str
    runs: tuple[Run, ...]


class ConfigDifference(Struct, frozen=True, kw_only=True):
    """A flag that differs between the sides; `None` where it is not known."""

    flag: str
    a: str | None = None
    b: str | None = None


class Row(Struct, frozen=True, kw_only=True):
    """
    One metric, ``ttft_ms.p99`` or ``output_throughput``.

    `a` and `b` are the sides' values, geometric means over the runs; `difference` is b less a, `percent` that of a.
    `low` and `high` are the bounds of `percent` with 95 % confidence. `n` is how many values each side has: runs, or
    blocks if there is one run. `detectable_percent` is the smallest difference that would have been found.
    """

    metric: str
    unit: str
    higher_is_better: bool
    verdict: Verdict
    a: float | None = None
    b: float | None = None
    difference: float | None = None
    percent: float | None = None
    low: float | None = None
    high: float | None = None
    n: tuple[int, int] = (0, 0)
    detectable_percent: float | None = None
    is_headline: bool = False
    note: str | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """
    Two configurations; `a` is the baseline.

    `reasons` are why they are not comparable, or only with care; with ``comparable`` false there are no metrics unless
    they were asked for, and then also only if there is a `view` that all runs have. `method` is one sentence on how the
    verdicts came about.
    """

    baseline: str
    candidate: str
    comparable: bool
    view: View | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    config: tuple[ConfigDifference, ...] = ()
    common_config: Mapping[str, str] = {}
    cost_per_hour: Mapping[str, tuple[float, ...]] = {}
    """The prices of each side's servers, each price once; a side without any is left out."""
    method: str = ""
    metrics: tuple[Row, ...] = ()


class MatrixRow(Struct, frozen=True, kw_only=True):
    """One configuration among several: what was tested, and its values by metric."""

    name: str
    config: Mapping[str, str]
    values: Mapping[str, float] = {}


class Decision(Struct, frozen=True, kw_only=True):
    """Who wins by one criterion: ``lowest TTFT`` … `winner` is `None` where no difference is shown."""

    criterion: str
    metric: str
    winner: str | None = None
    note: str | None = None


class Comparisons(Struct, frozen=True, kw_only=True):
    """All sides: each compared with the baseline, and, if there are more than two, side by side."""

    baseline: str
    sides: tuple[Side, ...]
    pairs: tuple[Comparison, ...]
    matrix: tuple[MatrixRow, ...] = ()
    decisions: tuple[Decision, ...] = ()
