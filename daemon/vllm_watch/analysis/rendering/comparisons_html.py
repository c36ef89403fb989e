# SPDX-License-Identifier: Apache-2.0
"""Comparisons as a page: first the tables, then the intervals and the sides drawn over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_watch.analysis.comparison.comparison_model import Comparison, Comparisons
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.analysis.rendering.comparisons import comparisons_document
from vllm_watch.analysis.rendering.curve_figure import curve_figures
from vllm_watch.analysis.rendering.difference_figure import difference_figure
from vllm_watch.analysis.rendering.distribution_figures import latency_figure, together
from vllm_watch.analysis.rendering.document import Figure, Section
from vllm_watch.analysis.rendering.html import render_html
from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.catalog.metric_titles import LATENCIES


def comparisons_html(comparisons: Comparisons) -> str:
    """Return comparisons as one page of HTML."""
    sides = {side.name: side.runs for side in comparisons.sides}
    figures = (
        *_differences(comparisons.pairs),
        *_latencies(sides),
        *curve_figures(sides, "curve"),
    )
    plots = [Section(_("Plots"), figures)] if figures else []
    return render_html(comparisons_document(comparisons, plots))


def _differences(pairs: Sequence[Comparison]) -> tuple[Figure, ...]:
    figures = [(pair, difference_figure(pair, f"difference-{at}")) for at, pair in enumerate(pairs)]
    return tuple(
        figure
        if len(pairs) == 1
        else figure._replace(
            title=_(
                "{candidate} with {baseline}: {title}",
                candidate=pair.candidate,
                baseline=pair.baseline,
                title=figure.title,
            )
        )
        for pair, figure in figures
        if figure is not None
    )


def _latencies(sides: Mapping[str, Sequence[Run]]) -> tuple[Figure, ...]:
    """Return how each latency is spread, all runs of a side together."""
    figures = []
    for name in LATENCIES:
        spread = {
            side: together([run.distributions[name] for run in runs if name in run.distributions])
            for side, runs in sides.items()
        }
        figure = latency_figure(name, spread, f"latency-{name}")
        figures += [] if figure is None else [figure]
    return tuple(figures)
