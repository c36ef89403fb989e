# SPDX-License-Identifier: Apache-2.0
"""Results of runs: a row for each of several, and of one the block of ``vllm bench serve``, view by view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import QUANTILES, Bounds, Goodput, Latency, Quantile, Result, Run, bounded
from vllm_watch.analysis.loadtest.planning import run_objective
from vllm_watch.analysis.rendering.document import Cells, Column, Group, Table, known_table, said_columns
from vllm_watch.analysis.rendering.run_facts import objective_text, short_names
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.metric_titles import (
    LATENCY_NAMES,
    VIEW_LABELS,
    LatencyName,
    titled,
)
from vllm_watch.daemon.catalog.number_texts import MISSING, count, hundredths, moment, percent, significant


_OVERVIEW = (
    Column(N_("Run"), is_text=True),
    Column(N_("From"), "UTC", is_text=True),
    Column(N_("Load"), is_text=True),
    Column(N_("Failed")),
    Column(N_("Output"), "tokens/s"),
    Column("TTFT P50"),
    Column("TTFT P99"),
    Column("TPOT", "ms"),
    Column(N_("Good"), "%"),
)

_COUNTS = ("successful", "failed", "total_input_tokens", "total_output_tokens")
_TOTALS = (
    "successful",
    "failed",
    "duration_s",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
)
_COSTS = ("cost_per_million_input_tokens", "cost_per_million_output_tokens", "cost_per_million_tokens")
_ENERGIES = ("mean_watts", "energy_joules", "joules_per_output_token", "tokens_per_joule")
_ENERGY = N_("Energy")
_OF_GPUS = N_("Energy is that of the GPUs alone: CPUs, fans and cooling are not in it.")
_COST = N_("Cost")
_WHOLE_COST = N_("Cost: each line is the whole cost, by another count of tokens. The lines do not add up.")
_BUCKETS = N_("“~187 (100 to 200)”: estimated between the bounds of its bucket; “>200”: above the highest bound.")
_FEW = " \N{DAGGER}"
_IN_SECONDS = 1000.0
"""From this mean on, in milliseconds, a server's latency is in seconds; a client's stays in its own unit."""


def overview(runs: Sequence[Run]) -> Table:
    """Return a row for each run, without the columns in which nothing is known; failures only where there are any."""
    names = short_names([run.name for run in runs])
    is_one_day = len({moment(run.start)[:10] for run in runs if run.start is not None}) < 2
    rows = [_overview_row(at, *each, is_one_day=is_one_day) for at, each in enumerate(zip(names, runs, strict=True), 1)]
    return known_table("", said_columns(_OVERVIEW), rows)


def _overview_row(number: int, name: str, run: Run, *, is_one_day: bool) -> Cells:
    result = run.result or Result(view="server")
    start = moment(run.start)
    return (
        f"{number} {name}",
        start[11:] if is_one_day and run.start is not None else start,
        load_text(run.load) or MISSING,
        count(result.failed or None),
        significant(result.output_throughput),
        best_figure("p50", result.ttft_ms),
        best_figure("p99", result.ttft_ms),
        significant(None if result.tpot_ms is None else result.tpot_ms.mean),
        MISSING if result.goodput is None else percent(result.goodput.ratio),
    )


def result_columns(run: Run) -> tuple[tuple[Column, Result], ...]:
    """Return a run's results, each with the head of its column: the views of the whole load, then the steady window."""
    views = run.views or (() if run.result is None else (run.result,))
    columns = [(Column(_(VIEW_LABELS[view.view]), _("whole load")), view) for view in views]
    if run.steady is not None and run.steady.result is not None:
        steady = run.steady.result
        columns.append((Column(_(VIEW_LABELS[steady.view]), _("steady window")), steady))
    return tuple(columns)


def result_block(run: Run) -> Table:
    """Return the result block of a run; it is empty if nothing is known."""
    columns = result_columns(run)
    results = [result for _column, result in columns]
    groups = [_known_group("", _TOTALS, results)]
    groups += [_latency_group(name, results) for name in LATENCY_NAMES]
    groups += [_goodput_group(run, results)]
    groups += [_known_group(_(_ENERGY), _ENERGIES, results), _known_group(_(_COST), _COSTS, results)]
    filled = tuple(group for group in groups if group.rows)
    said = {_(_ENERGY): _(_OF_GPUS), _(_COST): _(_WHOLE_COST)}
    shown: list[Latency | None] = [getattr(result, name) for result in results for name in LATENCY_NAMES]
    notes = (*percentile_notes(shown), *(said[group.title] for group in filled if group.title in said))
    return Table("", (Column("", is_text=True), *(column for column, _result in columns)), filled, notes)


def percentile_notes(latencies: Sequence[Latency | None]) -> tuple[str, ...]:
    """Return what explains the percentiles of a table, as `percentile` writes them."""
    known = [latency for latency in latencies if latency is not None]
    few = [latency for latency in known if latency.too_few]
    counts = [str(number) for number in sorted({latency.count for latency in few if latency.count is not None})]
    of = N_("† Of few requests: may be lower than the true one.")
    if len(counts) == 1:
        of = N_("† Of {least} requests: may be lower than the true one.")
    elif counts:
        of = N_("† Of {least} to {most} requests: may be lower than the true one.")
    return (
        *((_(_BUCKETS),) if any(latency.bounds for latency in known) else ()),
        *((_(of, least=counts[0], most=counts[-1]) if counts else _(of),) if few else ()),
    )


def percentile(quantile: Quantile, latency: Latency | None, scale: float = 1.0) -> str:
    """
    Return a percentile in milliseconds times `scale`, with a dagger where few values stand behind it.

    It is the client's number, or the best figure with the bounds of its bucket: ``~18.7 (10 to 20)``.
    """
    if latency is None:
        return MISSING
    bounds = latency.bounds.get(quantile)
    mark = _FEW if quantile in latency.too_few else ""
    value = value_of(quantile, latency)
    if bounds is None or (bounds.low, bounds.high) == (None, None):
        return MISSING if value is None else f"{_number(value, scale)}{mark}"
    between = bounded(Bounds(low=bounds.low or None, high=bounds.high), scale)
    if between == MISSING:
        return MISSING
    if value is None or bounds.high is None:
        return f"{between}{mark}"
    return f"~{significant(value * scale)} ({between}){mark}"


def best_figure(quantile: Quantile, latency: Latency | None) -> str:
    """Return a percentile with its unit and without the bounds of its bucket: ``58.0 ms``, ``~18.7 s``, ``>50 s``."""
    if latency is None:
        return MISSING
    value, bounds = value_of(quantile, latency), latency.bounds.get(quantile)
    mark = _FEW if quantile in latency.too_few else ""
    if value is not None:
        return f"{'' if bounds is None else '~'}{latency_text(value)}{mark}"
    return MISSING if bounds is None or not bounds.low else f">{latency_text(bounds.low)}{mark}"


def latency_text(value: float) -> str:
    """Return milliseconds with the unit that suits them and three digits: ``58.0 ms``, ``18.7 s``."""
    return f"{significant(value)} ms" if value < _IN_SECONDS else f"{significant(value / 1000)} s"


def value_of(quantile: Quantile, latency: Latency) -> float | None:
    """Return a percentile in milliseconds, or the best figure for it; `None` if nothing is known of it."""
    value: float | None = getattr(latency, quantile)
    return latency.median if quantile == "p50" and value is None else value


def _number(value: float | None, scale: float = 1.0) -> str:
    return hundredths(None if value is None else value * scale)


def _known_group(title: str, names: Sequence[str], results: list[Result]) -> Group:
    rows = tuple(_row(titled(name), results, _total(name)) for name in names)
    return Group(title, tuple(row for row in rows if set(row[1:]) - {MISSING}))


def _latency_group(name: LatencyName, results: list[Result]) -> Group:
    latencies: list[Latency | None] = [getattr(result, name) for result in results]
    scale, unit = in_unit(latencies)
    rows: list[Cells] = []
    extra = {*map(_, _EXTRA)}
    for label, show in _statistics(latencies):
        cells = tuple(MISSING if each is None else show(each, scale) for each in latencies)
        if set(cells) - {MISSING} or label not in extra:
            rows.append((label, *cells))
    known = {row[0] for row in rows if set(row[1:]) - {MISSING}}
    return Group(_("{name}, {unit}", name=_(LATENCY_NAMES[name]), unit=unit), tuple(rows) if known - extra else ())


def in_unit(latencies: Sequence[Latency | None]) -> tuple[float, str]:
    """Return by what milliseconds are multiplied, and the unit that then is: long ones of a server are in seconds."""
    known = [latency for latency in latencies if latency is not None]
    means = [latency.mean for latency in known if latency.mean is not None]
    is_long = bool(means) and min(means) >= _IN_SECONDS and all(latency.bounds for latency in known)
    return (0.001, "s") if is_long else (1.0, "ms")


_EXTRA = frozenset({N_("Standard deviation"), N_("Values")})
_Show = Callable[[Latency, float], str]


def _statistics(latencies: Sequence[Latency | None]) -> Iterator[tuple[str, _Show]]:
    others = {name for latency in latencies if latency is not None for name in latency.percentiles}
    quantiles: list[str] = sorted({*QUANTILES, *others}, key=lambda name: float(name[1:]))
    yield _("Mean"), lambda latency, scale: _measured(latency, latency.mean, scale)
    for name in quantiles:
        known = next((each for each in QUANTILES if each == name), None)
        show = partial(_other, name) if known is None else partial(percentile, known)
        yield _("Median") if name == "p50" else name.upper(), show
    yield _("Standard deviation"), lambda latency, scale: _measured(latency, latency.std, scale)
    yield _("Values"), lambda latency, _scale: count(latency.count)


def _measured(latency: Latency, value: float | None, scale: float) -> str:
    if latency.bounds:
        return significant(None if value is None else value * scale)
    return _number(value, scale)


def _other(name: str, latency: Latency, scale: float) -> str:
    return _number(latency.percentiles.get(name), scale)


def _total(name: str) -> Callable[[Result], str]:
    if name in _COUNTS:
        return lambda result: count(getattr(result, name))
    return lambda result: (hundredths if result.view == "client" else significant)(getattr(result, name))


def _row(label: str, results: list[Result], show: Callable[[Result], str]) -> Cells:
    return (label, *(show(result) for result in results))


def _goodput_group(run: Run, results: list[Result]) -> Group:
    objective = run_objective(run)
    if objective is None:
        return Group("", ())
    rows = (
        _row(titled("goodput.ratio"), results, lambda result: _ratio(result.goodput)),
        _row(titled("goodput.request_goodput"), results, lambda result: _goodput_rate(result.goodput)),
    )
    return Group(_("Objective {objective}", objective=objective_text(objective)), rows)


def _ratio(goodput: Goodput | None) -> str:
    if goodput is None:
        return MISSING
    if goodput.bounds is not None and (goodput.bounds.low, goodput.bounds.high) != (None, None):
        return bounded(goodput.bounds, 100)
    return percent(goodput.ratio)


def _goodput_rate(goodput: Goodput | None) -> str:
    return MISSING if goodput is None else significant(goodput.request_goodput)
