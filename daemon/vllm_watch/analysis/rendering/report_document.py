# SPDX-License-Identifier: Apache-2.0
"""A report as text, Markdown and HTML: the most important numbers, whether they count, all numbers, what ran."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Report, Run
from vllm_watch.analysis.rendering.curve_figure import by_configuration, curve_figures
from vllm_watch.analysis.rendering.distribution_figures import batch_figure, latency_figures
from vllm_watch.analysis.rendering.document import (
    Block,
    Column,
    Document,
    Figure,
    Paragraph,
    Section,
    Statement,
    Table,
    plain_table,
)
from vllm_watch.analysis.rendering.html import html_size, render_html
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.request_blocks import prompt_figure, request_blocks
from vllm_watch.analysis.rendering.results import goodput_block, headline, overview, result_block
from vllm_watch.analysis.rendering.run_facts import flags, period, run_start, short_names, validity, what_ran
from vllm_watch.analysis.rendering.server_use import (
    MAX_PHASES,
    capacity_blocks,
    common_capacity,
    phase_tables,
    phase_totals,
    use_block,
)
from vllm_watch.analysis.rendering.text import WIDTH, render_text
from vllm_watch.analysis.rendering.timeline_figure import timeline_figure
from vllm_watch.daemon.catalog.number_texts import MISSING, duration, milliseconds, moment, significant


MAX_EVENTS = 100
"""How many events a table has; of more, the first ones."""

_TEXT_PHASES = 24

MAX_BYTES = 3_000_000
"""How many bytes of sections of runs a page has: of many runs, the last ones have only their row in the table."""


def report_text(report: Report, width: int = WIDTH) -> str:
    """Return a report for a terminal of so many columns."""
    common = common_capacity(report.runs)
    sections = [Section("", sections=run_sections(run, _TEXT_PHASES, common)) for run in report.runs]
    return render_text(document(report, sections), width)


def report_markdown(report: Report) -> str:
    """Return a report for a pull request: the result and what it is worth; flags and phases are folded."""
    common = common_capacity(report.runs)
    return render_markdown(document(report, [Section("", sections=_short(run, common)) for run in report.runs]))


def report_html(report: Report) -> str:
    """Return a report as one page of HTML: with a section for each run, as far as they fit into `MAX_BYTES`."""
    sections: list[Section] = []
    size, common = 0, common_capacity(report.runs)
    for at, run in enumerate(report.runs):
        section = Section("", sections=(*run_sections(run, MAX_PHASES, common), *_plots(run, f"run-{at}")))
        size += html_size(section)
        if sections and size > MAX_BYTES:
            break
        sections.append(section)
    return render_html(document(report, sections, curve_figures(by_configuration(report.runs), "curve")))


def document(report: Report, sections: Sequence[Section], figures: Sequence[Figure] = ()) -> Document:
    """
    Return a report of sections, one for each of the first runs; of several runs, after a table of all.

    Each section gets its title here. `figures` are of several runs together.
    """
    if not report.runs:
        nothing = Section("No load test", (Statement("unknown", "There is no load test in these sources."),))
        return Document("Load test", "", (nothing,))
    if len(report.runs) == 1:
        return Document(title(report.runs[0]), lead(report.runs[0]), sections[0].sections)
    common = common_capacity(report.runs)
    left_out = len(report.runs) - len(sections)
    text = f"The page would be too large with all runs: the last {left_out} have only their row in this table."
    several = Section(
        "Both runs" if len(report.runs) == 2 else f"All {len(report.runs)} runs",
        (
            *((Statement("warning", text),) if left_out else ()),
            overview(report.runs),
            *latency_turn(report),
            *((Paragraph(common),) if common else ()),
            *figures,
        ),
    )
    names = short_names([run.name for run in report.runs])
    folded = [
        Section(f"Run: {name}", sections=section.sections, is_folded=True, is_open=at == 0)
        for at, (name, section) in enumerate(zip(names, sections, strict=False))
    ]
    return Document(f"{len(report.runs)} load tests", _common_lead(report), (several, *folded))


def latency_turn(report: Report) -> tuple[Paragraph, ...]:
    """Return from which load on latency grows faster than throughput, if that is known."""
    turn = report.latency_turn
    if turn is None:
        return ()
    names = [run.name for run in report.runs]
    short = dict(zip(names, short_names(names), strict=True)).get(turn.run, turn.run)
    reached = f"{significant(turn.output_throughput)} tokens/s and {milliseconds(turn.e2el_ms)} from end to end"
    where = f"with {significant(turn.requests_in_flight)} requests in flight, {reached}"
    return (Paragraph(f"Latency turns at {short}: {where}. {turn.method.rstrip('.')}."),)


def title(run: Run) -> str:
    """Return what a run is called."""
    return f"Load test: {run.name}" if run.name else "Load test"


def lead(run: Run) -> str:
    """Return one line on what ran and when."""
    parts = [
        run.model,
        None if run.version is None else f"vLLM {run.version}",
        load_text(run.load),
        None if period(run) == MISSING else period(run),
    ]
    return " · ".join(part for part in parts if part is not None)


def _common_lead(report: Report) -> str:
    models = {run.model for run in report.runs}
    versions = {run.version for run in report.runs}
    starts = [run.start for run in report.runs if run.start is not None]
    ends = [run.end for run in report.runs if run.end is not None]
    whole = Run(
        source=(),
        name="",
        model=models.pop() if len(models) == 1 else f"{len(models)} models",
        version=versions.pop() if len(versions) == 1 else None,
        start=min(starts, default=None),
        end=max(ends, default=None),
    )
    return lead(whole)


def run_sections(run: Run, max_phases: int, common: str) -> tuple[Section, ...]:
    """Return all that is said of a run, without empty sections and without what `common_capacity` says of all."""
    known = flags(run)
    sections = (
        Section("In short", _some(headline(run))),
        Section("Validity", validity(run)),
        Section("Result", (_or_nothing(result_block(run), "No result is known."),)),
        Section("Goodput", _some(goodput_block(run))),
        Section("Requests", request_blocks(run)),
        Section("How much it can carry", capacity_blocks(run, common)),
        Section("The server during the load", _some(use_block(run))),
        Section("Phases", (phase_totals(run), *phase_tables(run, max_phases)) if run.phases else ()),
        Section("Events", _some(events(run))),
        Section("What ran", (what_ran(run), Paragraph("No flags are known.") if known.is_empty else known)),
    )
    return tuple(section for section in sections if section.blocks)


def events(run: Run) -> Table:
    """Return what happened, with its number in the drawing of the timeline and its time since the start."""
    start = run_start(run)
    rows = tuple(
        (str(at), moment(event.at), duration(event.at - start), event.text)
        for at, event in enumerate(run.events[:MAX_EVENTS], start=1)
    )
    columns = (Column("No."), Column("Time", "UTC", is_text=True), Column("After"), Column("Event", is_text=True))
    left_out = len(run.events) - len(rows)
    return plain_table("", columns, rows)._replace(
        notes=(f"{left_out} later events are left out.",) if left_out else ()
    )


def _short(run: Run, common: str) -> tuple[Section, ...]:
    sections = (
        Section("In short", _some(headline(run))),
        Section("Validity", validity(run)),
        Section("Result", (_or_nothing(result_block(run), "No result is known."), *_some(goodput_block(run)))),
        Section("How much it can carry", capacity_blocks(run, common)),
        Section("What ran", (what_ran(run), flags(run)), is_folded=True),
        Section("Phases", (phase_totals(run), use_block(run)) if run.phases else (), is_folded=True),
    )
    return tuple(section for section in sections if section.blocks)


def _or_nothing(table: Table, sentence: str) -> Block:
    return Paragraph(sentence) if table.is_empty else table


def _some(table: Table | None) -> tuple[Block, ...]:
    return () if table is None or table.is_empty else (table,)


def _plots(run: Run, key: str) -> tuple[Section, ...]:
    batch_size = run.use.batch_size if run.steady is None else run.steady.use.batch_size or run.use.batch_size
    figures: list[Figure | None] = [
        timeline_figure(run, f"{key}-timeline"),
        *latency_figures(run, f"{key}-latency"),
        prompt_figure(run, f"{key}-prompt"),
        batch_figure(batch_size, f"{key}-batch"),
    ]
    drawn = tuple(figure for figure in figures if figure is not None)
    return (Section("Plots", drawn),) if drawn else ()
