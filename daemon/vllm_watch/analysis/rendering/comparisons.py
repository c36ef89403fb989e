# SPDX-License-Identifier: Apache-2.0
"""Comparisons as a document: the answer and its table, doubts, what differs, each metric with its grade, who wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from vllm_watch.analysis.comparison.comparison_model import (
    COSTS,
    ENERGIES,
    FEWEST_SIDES,
    Comparison,
    Comparisons,
    Decision,
    MatrixRow,
    Row,
)
from vllm_watch.analysis.rendering.comparison_answer import (
    GRADES,
    Heads,
    answer,
    grade_text,
    heads_of,
    is_sweep,
    letters,
    next_steps,
    percent_text,
    short_tables,
    warnings,
)
from vllm_watch.analysis.rendering.document import (
    Block,
    Cells,
    Column,
    Document,
    Group,
    Paragraph,
    Section,
    Statement,
    Table,
    plain_table,
    said_columns,
)
from vllm_watch.daemon.catalog.language import N_, _, full_stop, listed, sentences
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, LATENCY_NAMES, STATISTIC_LABELS, metric_title, titled
from vllm_watch.daemon.catalog.number_texts import MISSING, limit, signed, significant


_LATENCY_ROWS = {**STATISTIC_LABELS, "mean": N_("Mean"), "median": N_("Median"), "p50": N_("Median")}
_DIFFERENCE_COLUMNS = (
    Column(N_("Diff.")),
    Column(N_("% [interval]")),
    Column(N_("Grade"), is_text=True),
)
_RATES = N_("Rates")
_ENERGY = N_("Energy, in the steady window")
_COST = N_("Cost")
_NO_INTERVALS = ([MISSING, MISSING], ["-100", MISSING])
"""What says nothing: nothing is known, or only that a latency is above 0."""

_NO_DIFFERENCE = N_("No difference of configuration is known.")
_METHOD = N_("How it is judged: vllm-watch compare --explain.")

Settings: TypeAlias = Mapping[str, str]
"""The values of flags, by their names."""

_CONFIGURATION = N_("Configuration")


def _pair_sections(pair: Comparison, names: Sequence[str]) -> tuple[Section, ...]:
    """Return what is said of two sides besides the answer: doubts, what differs, and all metrics."""
    heads = heads_of(pair, names)
    doubts = tuple(Statement("warning", text) for text in (*pair.reasons, *pair.warnings))
    flags = tuple((each.flag, each.a or MISSING, each.b or MISSING) for each in pair.config)
    table = plain_table("", (Column(_("Flag"), is_text=True), *(Column(head, is_text=True) for head in heads)), flags)
    differences = (
        *map(Paragraph, letters(pair, heads)),
        table if flags else Paragraph(_(_NO_DIFFERENCE)),
        # Of several sides, what all have alike is said once.
        *(_settings(_("The same on both sides"), pair.common_config) if len(names) == FEWEST_SIDES else ()),
        *_prices(pair),
    )
    sections = (
        Section(_("Take care") if pair.comparable else _("Not comparable"), doubts),
        Section(_("What differs"), differences),
        Section(_("All metrics"), (_metrics_table(pair, heads),) if pair.metrics else ()),
    )
    return tuple(section for section in sections if section.blocks)


def _prices(pair: Comparison) -> tuple[Paragraph, ...]:
    each = [f"{name} {_(' and ').join(map(limit, prices))}" for name, prices in pair.cost_per_hour.items()]
    return (Paragraph(_("Cost per hour: {prices}.", prices=listed(each))),) if each else ()


def _settings(said: str, settings: Settings) -> tuple[Paragraph, ...]:
    return (Paragraph(full_stop(_("{name}: {text}", name=said, text=_settings_text(settings)))),) if settings else ()


def _settings_text(settings: Settings) -> str:
    return listed(f"{flag} {value}" for flag, value in settings.items())


def _metrics_table(pair: Comparison, heads: Heads) -> Table:
    groups = [(title, rows) for title, rows in _groups(pair.metrics) if rows]
    notes = list(dict.fromkeys(note for _title, rows in groups for row in rows if (note := _note(row))))
    shown = [Group(title, tuple(_row(row, notes) for row in rows)) for title, rows in groups]
    columns = (Column("", is_text=True), *map(Column, heads), *said_columns(_DIFFERENCE_COLUMNS))
    return Table("", columns, tuple(shown), tuple(f"[{at}] {note}" for at, note in enumerate(notes, start=1)))


def _note(row: Row) -> str:
    """Return why a grade is not better, what would make it so, and what a reader must know of the values."""
    is_open = row.needed_runs is not None and row.grade != "shown"
    needed = _("{runs} runs of each side would show such a difference.", runs=row.needed_runs) if is_open else None
    return sentences(text for text in (row.reason, needed, row.note) if text)


def percent_interval(row: Row) -> str:
    """Return the difference as per cent with its interval: ``+11.0 [8.1, 14.0]``."""
    bounds = [percent_text(bound, sign="-") for bound in (row.low, row.high)]
    has_interval = row.percent is not None and bounds not in _NO_INTERVALS
    return percent_text(row.percent) + (f" [{', '.join(bounds)}]" if has_interval else "")


def _groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    yield _(_RATES), [row for row in rows if row.metric.partition(".")[0] not in (*LATENCIES, *ENERGIES, *COSTS)]
    for name in LATENCIES:
        yield (
            _("{name}, {unit}", name=_(LATENCY_NAMES[name]), unit="ms"),
            [row for row in rows if row.metric.startswith(f"{name}.")],
        )
    yield _(_ENERGY), [row for row in rows if row.metric in ENERGIES]
    yield _(_COST), [row for row in rows if row.metric in COSTS]


def _row(row: Row, notes: Sequence[str]) -> Cells:
    statistic = _LATENCY_ROWS.get(row.metric.partition(".")[2])
    note = _note(row)
    return (
        titled(row.metric) if statistic is None else _(statistic),
        significant(row.a),
        significant(row.b),
        signed(row.difference),
        percent_interval(row),
        f"{grade_text(row)}[{notes.index(note) + 1}]" if note else grade_text(row),
    )


def comparisons_document(comparisons: Comparisons, plots: Sequence[Section] = ()) -> Document:
    """Return comparisons as a document: the answer, what all sides show together, the plots, then each pair."""
    runs = {side.name: len(side.runs) for side in comparisons.sides}
    lead = _("; ").join(
        _("{name}: 1 run", name=name) if count == 1 else _("{name}: {count} runs", name=name, count=count)
        for name, count in runs.items()
    )
    first = Section(
        _("In short"),
        (*answer(comparisons), *short_tables(comparisons), *next_steps(comparisons), Paragraph(_(_METHOD))),
    )
    if len(comparisons.pairs) == 1:
        pair = comparisons.pairs[0]
        title = _("{candidate} compared with {baseline}", candidate=pair.candidate, baseline=pair.baseline)
        return Document(title, lead, (first, *_pair_sections(pair, (pair.baseline, pair.candidate)), *plots))
    folded = [
        Section(
            _("{candidate} with {baseline}", candidate=pair.candidate, baseline=pair.baseline),
            sections=_pair_sections(pair, tuple(runs)),
            is_folded=True,
            is_open=at == 0,
        )
        for at, pair in enumerate(comparisons.pairs)
        if not is_sweep(comparisons)
    ]
    candidates = [name for name in runs if name != comparisons.baseline]
    title = _("{candidate} compared with {baseline}", candidate=listed(candidates), baseline=comparisons.baseline)
    return Document(title, lead, (first, *_together(comparisons), *plots, *folded))


def _together(comparisons: Comparisons) -> tuple[Section, ...]:
    matrix = _matrix_table(comparisons.matrix)
    shared, *others = [pair.common_config for pair in comparisons.pairs]
    common = {name: value for name, value in shared.items() if all(each.get(name) == value for each in others)}
    same = _settings(_("The same on all sides"), common)
    doubts = warnings(comparisons) if is_sweep(comparisons) else ()
    sections = (
        Section(_("Take care"), tuple(Statement("warning", text) for text in doubts)),
        Section(_("Decisions"), (_decision_table(comparisons.decisions),) if comparisons.decisions else ()),
        Section(_("What differs"), (_settings_table(comparisons.matrix), *same)),
        Section(_("All configurations"), () if matrix.is_empty else (matrix,)),
    )
    return tuple(section for section in sections if section.blocks)


def _settings_table(rows: Sequence[MatrixRow]) -> Block:
    if not any(row.config for row in rows):
        return Paragraph(_(_NO_DIFFERENCE))
    columns = (Column(_(_CONFIGURATION), is_text=True), Column(_("Settings that differ"), is_text=True))
    return plain_table("", columns, tuple((row.name, _settings_text(row.config) or MISSING) for row in rows))


def _matrix_table(rows: Sequence[MatrixRow]) -> Table:
    """Return one row for each configuration with its values; none if no value is known of any."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    columns = (
        Column(_(_CONFIGURATION), is_text=True),
        *(Column(metric_title(name).label, metric_title(name).unit) for name in names),
    )
    cells = [(row.name, *(significant(row.values.get(name)) for name in names)) for row in rows if names]
    return plain_table("", columns, tuple(cells))


def _decision_table(decisions: Sequence[Decision]) -> Table:
    columns = tuple(Column(head, is_text=True) for head in (_("Criterion"), _("Best"), _("Grade"), ""))
    rows = tuple((each.criterion, each.winner or MISSING, _(GRADES[each.grade]), each.note or "") for each in decisions)
    return plain_table("", columns, rows)
