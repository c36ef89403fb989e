# SPDX-License-Identifier: Apache-2.0
"""Comparisons as a document: why sides may not be comparable, what differs, each metric with its verdict, who wins."""

from __future__ import annotations

import math

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from vllm_watch.analysis.comparison.comparison_model import (
    COSTS,
    ENERGIES,
    FAMILY,
    Comparison,
    Comparisons,
    Decision,
    MatrixRow,
    Row,
    Verdict,
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
    Tone,
    plain_table,
)
from vllm_watch.daemon.catalog.metric_titles import LATENCIES, LATENCY_NAMES, STATISTIC_LABELS, metric_title, titled
from vllm_watch.daemon.catalog.number_texts import MISSING, limit, signed, significant


VERDICTS: Mapping[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference_shown": "~",
    "below_what_matters": "~ small",
    "too_few": "too few",
    "not_compared": MISSING,
}
_TONES: Mapping[Verdict, Tone] = {"better": "good", "worse": "warning"}
_UNDECIDED: Mapping[Verdict, str] = {
    "no_difference_shown": "no difference is shown",
    "below_what_matters": "the difference is too small to matter",
    "too_few": "there are not enough runs or values for a verdict",
    "not_compared": "the sides cannot be compared in it",
}
_LATENCY_ROWS = {**STATISTIC_LABELS, "mean": "Mean", "median": "Median", "p50": "Median"}
_LETTERS = ("A", "B")
"""What heads the columns of the baseline and of the candidate, for their names may be long."""
_DIFFERENCE_COLUMNS = (
    Column("Diff."),
    Column("% [95 % interval]"),
    Column("n"),
    Column("Verdict", is_text=True, is_verdict=True),
)
_HEADLINE = "The headline, chosen beforehand"
_RATES = "Rates"
_ENERGY = "Energy, in the steady window"
_COST = "Cost"
_NO_INTERVALS = ([MISSING, MISSING], ["-100", MISSING])
"""What says nothing: nothing is known, or only that a latency is above 0."""

_NO_DIFFERENCE = Paragraph("No difference of configuration is known.")

Settings: TypeAlias = Mapping[str, str]
"""The values of flags, by their names."""

Heads: TypeAlias = tuple[str, str]
"""What heads the columns of the baseline and of the candidate."""

_CONFIGURATION = Column("Configuration", is_text=True)


def _pair_sections(
    pair: Comparison, runs: Mapping[str, int], common: Settings, *, is_alone: bool
) -> tuple[Section, ...]:
    """
    Return what is said of two sides: the verdict first, or, before any number, what makes them not comparable.

    `runs` is how many each side has. The settings in `common` and, unless `is_alone`, the headline are said elsewhere.
    """
    heads = _heads(pair, runs)
    doubts = (
        *(Statement("warning", each) for each in pair.reasons),
        *(Statement("warning", each) for each in pair.warnings),
    )
    verdict = Section(
        "In short", (*((_summary(pair),) if is_alone else ()), *_other_verdicts(pair)) if pair.metrics else ()
    )
    sections = (
        *((verdict, Section("Take care", doubts)) if pair.comparable else (Section("Not comparable", doubts), verdict)),
        Section("What differs", (Paragraph(_sides(pair, runs, heads)), *_config_blocks(pair, common, heads))),
        Section("Metrics", _metrics(pair, heads)),
    )
    return tuple(section for section in sections if section.blocks)


def _config_blocks(pair: Comparison, common: Settings, heads: Heads) -> tuple[Block, ...]:
    """Return the flags that differ, then in one paragraph what both sides have in common, but for what all have."""
    rows = tuple((each.flag, each.a or MISSING, each.b or MISSING) for each in pair.config)
    table = plain_table("", (Column("Flag", is_text=True), *(Column(head, is_text=True) for head in heads)), rows)
    same = {name: value for name, value in pair.common_config.items() if common.get(name) != value}
    return (table if rows else _NO_DIFFERENCE, *_settings("The same on both sides", same), *_prices(pair))


def _prices(pair: Comparison) -> tuple[Paragraph, ...]:
    each = [f"{name} {' and '.join(map(limit, prices))}" for name, prices in pair.cost_per_hour.items()]
    return (Paragraph(f"Cost per hour: {', '.join(each)}."),) if each else ()


def _settings(said: str, settings: Settings) -> tuple[Paragraph, ...]:
    return (Paragraph(f"{said}: {_settings_text(settings)}."),) if settings else ()


def _settings_text(settings: Settings) -> str:
    return ", ".join(f"{flag} {value}" for flag, value in settings.items())


def _metrics_table(pair: Comparison, heads: Heads) -> Table:
    groups = [(title, rows) for title, rows in _groups(pair.metrics) if rows]
    notes = list(dict.fromkeys(row.note for _, rows in groups for row in rows if row.note is not None))
    shown = [Group(title, tuple(_row(row, notes, title) for row in rows)) for title, rows in groups]
    columns = (Column("", is_text=True), *map(Column, heads), *_DIFFERENCE_COLUMNS)
    return Table("", columns, tuple(shown), _footnotes(pair, notes))


def percent_interval(row: Row) -> str:
    """Return the difference as per cent with its interval: ``+11.0 [8.1, 14.0]``."""
    if row.percent is None:
        return MISSING
    sign = "+" if row.percent > 0 else ""
    bounds = [MISSING if value is None or not math.isfinite(value) else _tenths(value) for value in (row.low, row.high)]
    interval = f" [{', '.join(bounds)}]" if bounds not in _NO_INTERVALS else ""
    return f"{sign}{_tenths(row.percent)}{interval}"


def _heads(pair: Comparison, names: Iterable[str]) -> Heads:
    """Return the letters, or the names of the sides where a letter is itself the name of a side."""
    return _LETTERS if set(_LETTERS).isdisjoint(names) else (pair.baseline, pair.candidate)


def _sides(pair: Comparison, runs: Mapping[str, int], heads: Heads) -> str:
    baseline, candidate = _counted(pair.baseline, runs), _counted(pair.candidate, runs)
    if heads == (pair.baseline, pair.candidate):
        return f"The baseline is {baseline}; {candidate} is compared with it."
    return f"A is {baseline}, the baseline; B is {candidate}."


def _counted(name: str, runs: Mapping[str, int]) -> str:
    count = runs.get(name)
    return name if count is None else f"{name} ({count} {'run' if count == 1 else 'runs'})"


def _metrics(pair: Comparison, heads: Heads) -> tuple[Block, ...]:
    if not pair.metrics:
        return () if pair.comparable else (Paragraph("No numbers: these sides are not comparable."),)
    method = (Paragraph(f"Method: {pair.method}"),) if pair.method else ()
    return (_metrics_table(pair, heads), *method)


def _other_verdicts(pair: Comparison) -> Iterator[Statement]:
    """Yield a sentence on each metric besides the headline in which one side is shown to be better."""
    for row in pair.metrics:
        if row.verdict in _TONES and not row.is_headline:
            yield _summary_of(row, pair)


def _summary(pair: Comparison) -> Statement:
    row = next((each for each in pair.metrics if each.is_headline), None)
    if row is None:
        why = "they are not comparable" if not pair.comparable else "no metric is known of both"
        return Statement("unknown", f"{pair.candidate} compared with {pair.baseline}: no verdict, for {why}.")
    return _summary_of(row, pair)


def _summary_of(row: Row, pair: Comparison) -> Statement:
    """Return the verdict on one metric, then the values that it is about: those of the candidate first."""
    difference = f": {percent_interval(row)} %" if row.percent is not None else ""
    values = f"{significant(row.b)} against {significant(row.a)}{difference}"
    tone = _TONES.get(row.verdict, "undecided")
    if row.verdict in _TONES:
        return Statement(
            tone, f"{titled(row.metric)}: {pair.candidate} is {row.verdict} than {pair.baseline}, {values}."
        )
    shown = f"{titled(row.metric)}: {pair.candidate} compared with {pair.baseline}, {values}"
    said = _UNDECIDED[row.verdict]
    if row.verdict == "no_difference_shown" and row.detectable_percent is not None:
        said += f"; these runs can only show one of {significant(row.detectable_percent)} % or more"
    elif row.note is not None:
        return Statement(tone, f"{shown}; {said}. {row.note}")
    return Statement(tone, f"{shown}; {said}.")


def _groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    yield _HEADLINE, [row for row in rows if row.is_headline]
    rest = [row for row in rows if not row.is_headline]
    yield _RATES, [row for row in rest if row.metric.partition(".")[0] not in (*LATENCIES, *ENERGIES, *COSTS)]
    for name in LATENCIES:
        yield f"{LATENCY_NAMES[name]}, ms", [row for row in rest if row.metric.startswith(f"{name}.")]
    yield _ENERGY, [row for row in rest if row.metric in ENERGIES]
    yield _COST, [row for row in rest if row.metric in COSTS]


def _row(row: Row, notes: Sequence[str], group: str) -> Cells:
    statistic = _LATENCY_ROWS.get(row.metric.partition(".")[2])
    note = "" if row.note is None else f" [{notes.index(row.note) + 1}]"
    return (
        titled(row.metric) if statistic is None or group == _HEADLINE else statistic,
        significant(row.a),
        significant(row.b),
        signed(row.difference),
        percent_interval(row),
        "/".join(map(str, row.n)),
        VERDICTS[row.verdict] + note,
    )


def _tenths(value: float) -> str:
    """Return per cent to a tenth, from 100 on without."""
    return f"{value:,.1f}" if abs(value) < 99.95 else f"{value:,.0f}"


def _footnotes(pair: Comparison, notes: Sequence[str]) -> tuple[str, ...]:
    """Return what the signs mean, what would have been seen where nothing is shown, and the notes by their numbers."""
    used = {row.verdict for row in pair.metrics} - {"not_compared"}
    unseen = [
        f"{metric_title(row.metric).label} {significant(row.detectable_percent)} %"
        for row in pair.metrics
        if row.verdict == "no_difference_shown" and row.detectable_percent is not None and row.metric in FAMILY
    ]
    would = (f"A difference would have been shown from: {', '.join(unseen)}.",) if unseen else ()
    meanings = tuple(f"“{VERDICTS[each]}”: {text}." for each, text in _UNDECIDED.items() if each in used)
    return (*meanings, *would, *(f"[{at}] {note}" for at, note in enumerate(notes, start=1)))


def comparisons_document(comparisons: Comparisons, plots: Sequence[Section] = ()) -> Document:
    """Return comparisons as a document: of one its sections and the plots, of several first what all of them show."""
    runs = {side.name: len(side.runs) for side in comparisons.sides}
    lead = "; ".join(f"{name}: {count} {'run' if count == 1 else 'runs'}" for name, count in runs.items())
    if len(comparisons.pairs) == 1:
        pair = comparisons.pairs[0]
        title = f"{pair.candidate} compared with {pair.baseline}"
        return Document(title, lead, (*_pair_sections(pair, runs, {}, is_alone=True), *plots))
    first, *others = [pair.common_config for pair in comparisons.pairs]
    common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
    folded = [
        Section(
            f"{pair.candidate} with {pair.baseline}",
            sections=_pair_sections(pair, runs, common, is_alone=False),
            is_folded=True,
            is_open=at == 0,
        )
        for at, pair in enumerate(comparisons.pairs)
    ]
    candidates = [name for name in runs if name != comparisons.baseline]
    title = f"{', '.join(candidates)} compared with {comparisons.baseline}"
    return Document(title, lead, (*_together(comparisons, common), *plots, *folded))


def _together(comparisons: Comparisons, common: Settings) -> tuple[Section, ...]:
    incomparable = [
        Statement("warning", f"{pair.candidate} is not comparable with {pair.baseline}. {' '.join(pair.reasons)}")
        for pair in comparisons.pairs
        if not pair.comparable
    ]
    matrix = _matrix_table(comparisons.matrix)
    headlines = (_summary(pair) for pair in comparisons.pairs if pair.metrics)
    same = _settings("The same on all sides", common)
    sections = (
        Section("Not comparable", tuple(incomparable)),
        Section("Decisions", (_decision_table(comparisons.decisions),) if comparisons.decisions else ()),
        Section("Headlines", tuple(headlines)),
        Section("What differs", (_settings_table(comparisons.matrix), *same)),
        Section("All configurations", () if matrix.is_empty else (matrix,)),
    )
    return tuple(section for section in sections if section.blocks)


def _settings_table(rows: Sequence[MatrixRow]) -> Block:
    if not any(row.config for row in rows):
        return _NO_DIFFERENCE
    columns = (_CONFIGURATION, Column("Settings that differ", is_text=True))
    return plain_table("", columns, tuple((row.name, _settings_text(row.config) or MISSING) for row in rows))


def _matrix_table(rows: Sequence[MatrixRow]) -> Table:
    """Return one row for each configuration with its values; none if no value is known of any."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    columns = (_CONFIGURATION, *(Column(metric_title(name).label, metric_title(name).unit) for name in names))
    cells = [(row.name, *(significant(row.values.get(name)) for name in names)) for row in rows if names]
    return plain_table("", columns, tuple(cells))


def _decision_table(decisions: Sequence[Decision]) -> Table:
    columns = (Column("Criterion", is_text=True), Column("Best", is_text=True), Column("", is_text=True))
    rows = tuple((each.criterion, each.winner or "~", each.note or "") for each in decisions)
    return plain_table("", columns, rows)
