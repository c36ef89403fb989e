# SPDX-License-Identifier: Apache-2.0
"""Comparisons as a table for a terminal and as Markdown, and the parts that HTML shares with them."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.comparison.model import Comparison, Comparisons, Decision, MatrixRow
from vllm_watch.loadtest.metric_titles import metric_title
from vllm_watch.loadtest.number_texts import MISSING, significant
from vllm_watch.rendering.comparison_blocks import pair_sections, winners
from vllm_watch.rendering.document import Column, Document, Section, Statement, Table, plain_table
from vllm_watch.rendering.markdown import render_markdown
from vllm_watch.rendering.text import render_text


def comparisons_table(comparisons: Comparisons) -> str:
    """Return comparisons for a terminal."""
    return render_text(comparisons_document(comparisons))


def comparisons_markdown(comparisons: Comparisons) -> str:
    """Return comparisons for a pull request; of several, each is folded."""
    return render_markdown(comparisons_document(comparisons))


def comparisons_document(comparisons: Comparisons, plots: Sequence[Section] = ()) -> Document:
    """
    Return comparisons as a document: of one its sections, of several first what all of them show.

    Args:
        comparisons: What was compared.
        plots: What is drawn of all sides together.
    """
    runs = {side.name: len(side.runs) for side in comparisons.sides}
    lead = "; ".join(f"{name}: {count} {'run' if count == 1 else 'runs'}" for name, count in runs.items())
    if len(comparisons.pairs) == 1:
        pair = comparisons.pairs[0]
        title = f"{pair.candidate} compared with {pair.baseline}"
        return Document(title, lead, (*pair_sections(pair, runs), *plots))
    folded = [
        Section(_title(pair), sections=pair_sections(pair, runs), is_folded=True, is_open=at == 0)
        for at, pair in enumerate(comparisons.pairs)
    ]
    title = f"{len(runs)} configurations compared with {comparisons.baseline}"
    return Document(title, lead, (*_together(comparisons), *plots, *folded))


def matrix_table(rows: Sequence[MatrixRow]) -> Table:
    """Return one row for each configuration: its settings as far as they differ, then its values."""
    flags = list(dict.fromkeys(flag for row in rows for flag, _ in row.config))
    names = list(dict.fromkeys(name for row in rows for name, _ in row.values))
    columns = (
        Column("Configuration", is_text=True),
        *(Column(flag, is_text=True) for flag in flags),
        *(Column(metric_title(name).label, metric_title(name).unit) for name in names),
    )
    return plain_table("", columns, tuple(_matrix_cells(row, flags, names) for row in rows))


def decision_table(decisions: Sequence[Decision]) -> Table:
    """Return who wins by each criterion, `~` where nobody is shown to."""
    columns = (Column("Criterion", is_text=True), Column("Best", is_text=True), Column("", is_text=True))
    rows = tuple((each.criterion, each.winner or "~", each.note or "") for each in decisions)
    return plain_table("", columns, rows)


def _matrix_cells(row: MatrixRow, flags: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    config, values = dict(row.config), dict(row.values)
    settings = (config.get(flag, MISSING) for flag in flags)
    return (row.name, *settings, *(significant(values.get(name)) for name in names))


def _together(comparisons: Comparisons) -> tuple[Section, ...]:
    incomparable = [
        Statement("warning", f"{_title(pair)} is not comparable: {'; '.join(pair.reasons)}.")
        for pair in comparisons.pairs
        if not pair.comparable
    ]
    sections = (
        Section("Not comparable", tuple(incomparable)),
        Section("Decisions", (decision_table(comparisons.decisions),) if comparisons.decisions else ()),
        Section("Headlines", winners([pair for pair in comparisons.pairs if pair.metrics])),
        Section("All configurations", (matrix_table(comparisons.matrix),) if comparisons.matrix else ()),
    )
    return tuple(section for section in sections if section.blocks)


def _title(pair: Comparison) -> str:
    return f"{pair.candidate} with {pair.baseline}"
