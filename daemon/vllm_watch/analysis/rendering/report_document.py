# SPDX-License-Identifier: Apache-2.0
"""A report as text, Markdown and HTML: the answer, the run over time, the result, and the rest, which is folded."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.analysis.loadtest.client_texts import load_text
from vllm_watch.analysis.loadtest.load_test import Report, Run
from vllm_watch.analysis.rendering.answer import answer, answer_of_several
from vllm_watch.analysis.rendering.curve_figure import by_configuration, curve_figures
from vllm_watch.analysis.rendering.distribution_figures import latency_figures
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
from vllm_watch.analysis.rendering.html import render_html
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.request_blocks import prompt_figure, request_blocks
from vllm_watch.analysis.rendering.results import overview, result_block
from vllm_watch.analysis.rendering.run_facts import flags, period, run_start, short_names, validity, what_ran
from vllm_watch.analysis.rendering.server_use import (
    MAX_PHASES,
    capacity_blocks,
    common_capacity,
    phase_table,
    plan_blocks,
    use_block,
)
from vllm_watch.analysis.rendering.text import WIDTH, render_text
from vllm_watch.analysis.rendering.timeline_figure import timeline_figure
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.number_texts import MISSING, duration, milliseconds, moment, significant


MAX_EVENTS = 100
"""How many events a table has; of more, the first ones."""

_TEXT_PHASES = 24
_NOTHING = N_("Nothing is known of how it went.")
_ONE_RUN = N_("One of them whole, with all its numbers: --run and its number. All are in the HTML: -o report.html.")

_TOO_LARGE = N_("The page would be too large with all runs: the last {count} have only their row in this table.")

MAX_SECTIONS = 40
"""How many runs have a section of a page: of more, the last ones have only their row in the table."""


def report_text(report: Report, width: int = WIDTH) -> str:
    """Return a report for a terminal of so many columns."""
    return render_text(document(report, [_without_figures(run, report, _TEXT_PHASES) for run in report.runs]), width)


def report_markdown(report: Report) -> str:
    """Return a report for a pull request: what is not the result is folded."""
    return render_markdown(document(report, [_without_figures(run, report, MAX_PHASES) for run in report.runs]))


def _without_figures(run: Run, report: Report, max_phases: int) -> Section:
    if len(report.runs) == 1:
        return Section("", sections=run_sections(run, max_phases))
    return Section("", _in_short(run) or (Paragraph(_(_NOTHING)),))


def report_html(report: Report) -> str:
    """Return a report as one page of HTML: with a section for each of the first `MAX_SECTIONS` runs."""
    shown = enumerate(report.runs[:MAX_SECTIONS])
    sections = [Section("", sections=run_sections(run, MAX_PHASES, f"run-{at}")) for at, run in shown]
    return render_html(document(report, sections, curve_figures(by_configuration(report.runs), "curve")))


def document(report: Report, sections: Sequence[Section], figures: Sequence[Figure] = ()) -> Document:
    """
    Return a report of sections, one for each of the first runs; of several runs, after tables of all.

    Each section gets its title here. `figures` are of several runs together.
    """
    left_out = () if report.left_out is None else (Statement("note", report.left_out),)
    if not report.runs:
        nothing = Section(_("No load test"), (Statement("unknown", _("There is no load test in these sources.")),))
        return Document(_("Load test"), "", (nothing,))
    if len(report.runs) == 1:
        first, *rest = sections[0].sections
        blocks = (*first.blocks[:1], *plan_blocks(report.plan), *first.blocks[1:], *left_out)
        return Document(title(report.runs[0]), lead(report.runs[0]), (first._replace(blocks=blocks), *rest))
    common = common_capacity(report.runs)
    is_said = report.plan is not None and report.plan.problem == common
    missing = len(report.runs) - len(sections)
    several = Section(
        _("Both runs") if len(report.runs) == 2 else _("All {count} runs", count=len(report.runs)),
        (
            Paragraph(answer_of_several(report)),
            *plan_blocks(report.plan),
            *left_out,
            *((Statement("warning", _(_TOO_LARGE, count=missing)),) if missing else ()),
            overview(report.runs),
            *latency_turn(report),
            *((Paragraph(common),) if common and not is_said else ()),
            *(() if sections[0].sections else (Paragraph(_(_ONE_RUN)),)),
            *figures,
        ),
    )
    names = short_names([run.name for run in report.runs])
    folded = [
        section._replace(
            title=_("Run {number}: {name}", number=at, name=name), is_folded=bool(section.sections), is_open=at == 1
        )
        for at, (name, section) in enumerate(zip(names, sections, strict=False), 1)
    ]
    return Document(_("{count} load tests", count=len(report.runs)), _common_lead(report), (several, *folded))


def latency_turn(report: Report) -> tuple[Paragraph, ...]:
    """Return from which load on latency grows faster than throughput, if that is known."""
    turn = report.latency_turn
    if turn is None:
        return ()
    names = [run.name for run in report.runs]
    short = dict(zip(names, short_names(names), strict=True)).get(turn.run, turn.run)
    text = _(
        "Latency turns at {run}, with {requests} requests in flight, {rate} tokens/s and {latency} from end to end: "
        "the most output for its latency. With more at once output may still grow, but latency grows more.",
        run=short,
        requests=significant(turn.requests_in_flight),
        rate=significant(turn.output_throughput),
        latency=milliseconds(turn.e2el_ms),
    )
    return (Paragraph(text),)


def title(run: Run) -> str:
    """Return what a run is called."""
    return _("Load test: {name}", name=run.name) if run.name else _("Load test")


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
        model=models.pop() if len(models) == 1 else _("{count} models", count=len(models)),
        version=versions.pop() if len(versions) == 1 else None,
        start=min(starts, default=None),
        end=max(ends, default=None),
    )
    return lead(whole)


def run_sections(run: Run, max_phases: int, key: str | None = None) -> tuple[Section, ...]:
    """
    Return all that is said of a run, the answer first, without empty sections; what is not the result is folded.

    Drawings have ids that begin with `key`; without it there are none.
    """
    known = flags(run)
    rest = (
        Section(_("Requests"), request_blocks(run)),
        Section(_("How much it can carry"), capacity_blocks(run)),
        Section(_("The server during the load"), _some(use_block(run))),
        Section(_("More drawings"), () if key is None else _drawings(run, key)),
        Section(_("What ran"), (what_ran(run), Paragraph(_("No flags are known.")) if known.is_empty else known)),
    )
    over_time = None if key is None else timeline_figure(run, f"{key}-timeline")
    drawn = () if over_time is None else (over_time,)
    sections = (
        Section(_("In short"), _in_short(run) or (Paragraph(_(_NOTHING)),)),
        Section(_("The run over time"), (*drawn, *_some(phase_table(run, max_phases)), *_some(events(run)))),
        Section(_("Result"), (_or_nothing(result_block(run), _("No result is known.")),)),
        *(each._replace(is_folded=True) for each in rest),
    )
    return tuple(section for section in sections if section.blocks)


def _in_short(run: Run) -> tuple[Block, ...]:
    text = answer(run)
    return (*((Paragraph(text),) if text else ()), *validity(run))


def events(run: Run) -> Table:
    """Return what happened, with its number in the drawing of the timeline and its time since the start."""
    start = run_start(run)
    rows = tuple(
        (str(at), moment(event.at), duration(event.at - start), event.text)
        for at, event in enumerate(run.events[:MAX_EVENTS], start=1)
    )
    columns = (
        Column(_("No.")),
        Column(_("Time"), "UTC", is_text=True),
        Column(_("After")),
        Column(_("Event"), is_text=True),
    )
    left_out = len(run.events) - len(rows)
    return plain_table("", columns, rows)._replace(
        notes=(_("{count} later events are left out.", count=left_out),) if left_out else ()
    )


def _or_nothing(table: Table, sentence: str) -> Block:
    return Paragraph(sentence) if table.is_empty else table


def _some(table: Table) -> tuple[Block, ...]:
    return () if table.is_empty else (table,)


def _drawings(run: Run, key: str) -> tuple[Figure, ...]:
    prompts = prompt_figure(run, f"{key}-prompt")
    return (*latency_figures(run, f"{key}-latency"), *(() if prompts is None else (prompts,)))
