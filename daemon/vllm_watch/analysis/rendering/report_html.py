# SPDX-License-Identifier: Apache-2.0
"""A report as a page with drawings. Of many runs each drawing has fewer points, so that the page stays small."""

from __future__ import annotations

from collections.abc import Container
from itertools import chain
from typing import NamedTuple

from vllm_watch.analysis.loadtest.model import Report, Run
from vllm_watch.analysis.rendering.capacity_blocks import shared_capacities
from vllm_watch.analysis.rendering.curve_figure import by_configuration, curve_figures
from vllm_watch.analysis.rendering.distribution_figures import batch_figure, latency_figures
from vllm_watch.analysis.rendering.document import Figure, Section, Statement
from vllm_watch.analysis.rendering.html import html_size, render_html
from vllm_watch.analysis.rendering.report_document import document, run_sections
from vllm_watch.analysis.rendering.server_use import MAX_PHASES
from vllm_watch.analysis.rendering.svg_plot import COLUMNS
from vllm_watch.analysis.rendering.timeline_figure import TABLE_ROWS, timeline_figure


MAX_BYTES = 1_500_000
"""How large a page may be."""


class _Detail(NamedTuple):
    """How much of each run is shown: columns of its drawings, rows behind them; without them, only its tables."""

    columns: int
    rows: int


_DETAILS = (_Detail(COLUMNS, TABLE_ROWS), _Detail(200, 20), _Detail(60, 10), _Detail(0, 0))
_MOST_ROWS = (None, 1000, 200, 20)
"""How many rows the table of the runs has, where only that is shown; `None`: all."""

_FEW_PHASES = 10
_TOO_MANY = Statement("warning", "There are too many runs for one page: only their table is shown.")


def report_html(report: Report) -> str:
    """Return a report as one page of HTML under 1.5 MB: with as much detail of each run as that allows."""
    pages = chain((_whole(report, detail) for detail in _DETAILS), (_table_alone(report, most) for most in _MOST_ROWS))
    fitting = (page for page in pages if page is not None and len(page.encode()) < MAX_BYTES)
    return next(fitting, None) or _table_alone(report, _MOST_ROWS[-1])


def _whole(report: Report, detail: _Detail) -> str | None:
    """Return the page with a section for each run; `None` as soon as it is clear that it is too large."""
    sections: list[Section] = []
    size = 0
    shared = shared_capacities(report.runs)
    for at, run in enumerate(report.runs):
        sections.append(_run_section(run, f"run-{at}", detail, shared))
        size += html_size(sections[-1])
        if size >= MAX_BYTES and len(report.runs) > 1:
            return None
    return render_html(document(report, sections, _curves(report)))


def _table_alone(report: Report, most_rows: int | None) -> str:
    """Return the page with what is said of all runs together; of a single run, its tables."""
    if len(report.runs) == 1:
        return render_html(document(report, [_run_section(report.runs[0], "run-0", _DETAILS[-1])]))
    return render_html(document(report, (), first=(_TOO_MANY, *_curves(report)), most_rows=most_rows))


def _run_section(run: Run, key: str, detail: _Detail, shared: Container[str] = ()) -> Section:
    plots = _plots(run, key, detail) if detail.columns else ()
    return Section("", sections=(*run_sections(run, MAX_PHASES if plots else _FEW_PHASES, shared), *plots))


def _curves(report: Report) -> tuple[Figure, ...]:
    return curve_figures(by_configuration(report.runs), "curve")


def _plots(run: Run, key: str, detail: _Detail) -> tuple[Section, ...]:
    batch_size = run.use.batch_size if run.steady is None else run.steady.use.batch_size or run.use.batch_size
    figures: list[Figure | None] = [
        timeline_figure(run, f"{key}-timeline", detail.columns, detail.rows),
        *latency_figures(run, f"{key}-latency", detail.rows),
        batch_figure(batch_size, f"{key}-batch"),
    ]
    drawn = tuple(figure for figure in figures if figure is not None)
    return (Section("Plots", drawn),) if drawn else ()
