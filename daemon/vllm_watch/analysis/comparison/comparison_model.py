# SPDX-License-Identifier: Apache-2.0
"""
The metrics that `compare` compares, each once: its unit, its good direction, what matters; and what is said of them.

Eight of them are the family that is tested, fixed before any value is seen. One is the headline, tested first. The
others are never more than likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from vllm_watch.analysis.loadtest.load_test import QUANTILES, Bounds, Latency, Quantile, Result, Run, Struct
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, LatencyName, View
from vllm_watch.daemon.statistics.percentiles import min_count


FEWEST_SIDES = 2

GOODPUT = "request_goodput"
OUTPUT = "output_throughput"
TPOT = "tpot_ms.mean"

MAKESPAN = "duration_s"
"""Of a burst: from its first request to its last answer."""

FAMILY = (OUTPUT, TPOT, "ttft_ms.mean", "ttft_ms.p50", "ttft_ms.p99", "e2el_ms.mean", MAKESPAN, GOODPUT)

ENERGIES = ("joules_per_output_token", "tokens_per_joule", "mean_watts")
"""Of the steady window, and in each view those of the server."""

COSTS = ("cost_per_million_output_tokens", "cost_per_million_input_tokens", "cost_per_million_tokens")
"""Where the price is fixed, throughputs the other way round: they vary as much, and mean as little where those do."""


class Metric(NamedTuple):
    """
    One metric, by its name in the JSON, ``ttft_ms.p99``: `latency` and `statistic` are its parts.

    `matters` is the smallest relative difference that matters to anyone.
    """

    name: str
    unit: str
    higher_is_better: bool = False
    matters: float = 0.02
    latency: LatencyName | None = None
    statistic: str = ""

    @property
    def in_family(self) -> bool:
        """Whether it is one of the metrics that are tested together."""
        return self.name in FAMILY


def _latency(latency: LatencyName, statistic: str) -> Metric:
    matters = 0.10 if statistic in {"p90", "p95", "p99"} else 0.05 if latency in {"ttft_ms", "e2el_ms"} else 0.02
    return Metric(f"{latency}.{statistic}", "ms", matters=matters, latency=latency, statistic=statistic)


METRICS: tuple[Metric, ...] = (
    Metric(GOODPUT, "1/s", higher_is_better=True),
    Metric(OUTPUT, "tokens/s", higher_is_better=True),
    Metric(MAKESPAN, "s"),
    Metric("total_token_throughput", "tokens/s", higher_is_better=True),
    Metric("request_throughput", "1/s", higher_is_better=True),
    *(_latency(latency, statistic) for latency in LATENCIES for statistic in ("mean", *QUANTILES)),
    Metric("joules_per_output_token", "J"),
    Metric("tokens_per_joule", "tokens/J", higher_is_better=True),
    Metric("mean_watts", "W"),
    *(Metric(name, "per M tokens") for name in COSTS),
)
"""In the order of the table."""

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
THROUGHPUTS = (OUTPUT, "total_token_throughput", "request_throughput")


def metric_value(metric: Metric, result: Result) -> float | None:
    """Return a metric's value in a result, `None` if it is not known."""
    if metric.name == GOODPUT:
        return None if result.goodput is None else result.goodput.request_goodput
    latency = _latency_of(metric, result)
    if latency is None:
        return None if metric.latency else cast("float | None", getattr(result, metric.name))
    value = cast("float | None", getattr(latency, metric.statistic))
    return latency.median if value is None and metric.statistic == "p50" else value


def metric_bounds(metric: Metric, result: Result) -> Bounds | None:
    """Return between which values a percentile is, if it comes from buckets."""
    latency = _latency_of(metric, result)
    return None if latency is None else latency.bounds.get(cast("Quantile", metric.statistic))


def needed_values(metric: Metric, result: Result) -> int | None:
    """Return how many values a percentile needs, if it has too few; else `None`."""
    latency = _latency_of(metric, result)
    if latency is None or metric.statistic not in QUANTILES:
        return None
    quantile = cast("Quantile", metric.statistic)
    needed = min_count(QUANTILES[quantile])
    # A request has one value at most, but of the gaps between chunks.
    values = result.successful if latency.count is None and metric.latency != "itl_ms" else latency.count
    return needed if quantile in latency.too_few or (values is not None and values < needed) else None


def _latency_of(metric: Metric, result: Result) -> Latency | None:
    return None if metric.latency is None else cast("Latency | None", getattr(result, metric.latency))


class Side(Struct, frozen=True, kw_only=True):
    """One configuration: its name and the runs of it."""

    name: str
    runs: tuple[Run, ...]


class ConfigDifference(Struct, frozen=True, kw_only=True):
    """A flag that differs between the sides; `None` where it is not known."""

    flag: str
    a: str | None = None
    b: str | None = None


Grade = Literal["shown", "likely", "not_decided", "in_these_two_runs"]
"""
How sure a difference is. shown: the printed interval leaves out 0. likely: the 90 % interval does. not_decided:
neither, or the two values do not mean the same; the row's reason says which. in_these_two_runs: one run of each side,
which is a hint and never more, for the next run of the same configuration is different.
"""


class Row(Struct, frozen=True, kw_only=True):
    """
    One metric of two sides.

    `a` and `b` are what the client measured where a side has one run, else geometric means over its runs. `difference`
    (b less a, in `unit`) and `percent` are there whenever both are, whatever the grade, also if the sides are not
    comparable. `low` and `high` bound `percent` at `confidence`, the level at which the grade is given, so that they
    leave out 0 where a difference is shown; `None`: open, or there is no interval. `reason` is why the grade is not
    better, `note` what a reader must know of the values. `runs` is how many each side has, `needed_runs` how many of
    each side would show a difference like this one in 9 of 10 cases, as much as these runs vary; `None`: it is shown,
    or no number of runs is known to.
    """

    metric: str
    unit: str
    higher_is_better: bool
    grade: Grade = "not_decided"
    a: float | None = None
    b: float | None = None
    difference: float | None = None
    percent: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    reason: str | None = None
    note: str | None = None
    runs: tuple[int, int] = (0, 0)
    needed_runs: int | None = None
    is_headline: bool = False

    @property
    def is_better(self) -> bool | None:
        """Whether the candidate's value is the better one; `None` if they are equal, or one is not known."""
        return None if not self.difference else (self.difference > 0) == self.higher_is_better


class Comparison(Struct, frozen=True, kw_only=True):
    """
    Two configurations.

    `sentence` is the answer, in one sentence. `reasons` are why they are not comparable: then no metric has a grade.
    """

    baseline: str
    candidate: str
    comparable: bool
    sentence: str = ""
    view: View | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    config: tuple[ConfigDifference, ...] = ()
    common_config: Mapping[str, str] = {}
    cost_per_hour: Mapping[str, tuple[float, ...]] = {}
    """The prices of each side's servers, each price once; a side without any is left out."""
    metrics: tuple[Row, ...] = ()
    chosen: tuple[Row, ...] = ()
    """The metrics that rules name, each judged by itself at 95 %."""


class MatrixRow(Struct, frozen=True, kw_only=True):
    """One configuration among several: what was tested, and its values by metric."""

    name: str
    config: Mapping[str, str]
    values: Mapping[str, float] = {}


class Decision(Struct, frozen=True, kw_only=True):
    """
    Who wins by one criterion, such as ``lowest TTFT``.

    `winner` has the best value, and `grade` is how sure it is that each of the others has a worse one. Nobody wins
    where a value is not known or the difference to one of them is not decided; the note says which.
    """

    criterion: str
    metric: str
    winner: str | None = None
    grade: Grade = "not_decided"
    note: str | None = None


class Sweep(Struct, frozen=True, kw_only=True):
    """
    One configuration at ever higher loads: those, and its output at each, in tokens per second.

    `name` is that of its side, empty if each side is a load. `stops_growing_at` is the lowest load at which the output
    is within 5 % of the highest; `None` if that is the highest load. An objective holds where 95 % of the requests are
    within it.
    """

    name: str
    loads: tuple[str, ...]
    output_throughput: tuple[float, ...]
    sentence: str
    stops_growing_at: str | None = None
    warnings: tuple[str, ...] = ()
    last_within_objective: str | None = None
    first_beyond_objective: str | None = None


class Comparisons(Struct, frozen=True, kw_only=True):
    """
    All sides: each compared with the baseline, and, if there are more than two, side by side.

    `left_out` are the loads that not all sides have, of sides with several: they are not compared.
    """

    baseline: str
    sides: tuple[Side, ...]
    pairs: tuple[Comparison, ...]
    left_out: tuple[str, ...] = ()
    matrix: tuple[MatrixRow, ...] = ()
    decisions: tuple[Decision, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
