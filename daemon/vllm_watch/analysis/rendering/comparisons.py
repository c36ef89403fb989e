# SPDX-License-Identifier: Apache-2.0
"""Comparisons as a table for a terminal and as Markdown, and the parts that HTML shares with them."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.analysis.comparison.model import Comparison, Comparisons, Decision, MatrixRow
from vllm_watch.analysis.rendering.comparison_blocks import (
    Settings,
    pair_sections,
    settings_paragraph,
    settings_text,
    winners,
)
from vllm_watch.analysis.rendering.document import (
    Block,
    Column,
    Document,
    Paragraph,
    Section,
    Statement,
    Table,
    plain_table,
)
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.text import WIDTH, render_text
from vllm_watch.daemon.catalog.metric_titles import metric_title
from vllm_watch.daemon.catalog.number_texts import MISSING, significant


_CONFIGURATION = Column("Configuration", is_text=True)


def comparisons_table(comparisons: Comparisons, width: int = WIDTH) -> str:
    """Return comparisons for a terminal of so many columns."""
    return render_text(comparisons_document(comparisons), width)


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
    common = _common(comparisons.pairs)
    folded = [
        Section(
            _title(pair), sections=pair_sections(pair, runs, common, is_alone=False), is_folded=True, is_open=at == 0
        )
        for at, pair in enumerate(comparisons.pairs)
    ]
    others = [name for name in runs if name != comparisons.baseline]
    title = f"{', '.join(others)} compared with {comparisons.baseline}"
    return Document(title, lead, (*_together(comparisons), *plots, *folded))


def settings_table(rows: Sequence[MatrixRow]) -> Table:
    """Return the settings of each configuration, as far as they differ; no row if none does."""
    columns = (_CONFIGURATION, Column("Settings that differ", is_text=True))
    known = any(row.config for row in rows)
    return plain_table("", columns, tuple((row.name, settings_text(row.config) or MISSING) for row in rows if known))


def matrix_table(rows: Sequence[MatrixRow]) -> Table:
    """Return one row for each configuration with its values; none if no value is known of any."""
    names = list(dict.fromkeys(name for row in rows for name, _ in row.values))
    columns = (_CONFIGURATION, *(Column(metric_title(name).label, metric_title(name).unit) for name in names))
    cells = [(row.name, *(significant(dict(row.values).get(name)) for name in names)) for row in rows if names]
    return plain_table("", columns, tuple(cells))


def decision_table(decisions: Sequence[Decision]) -> Table:
    """Return who wins by each criterion, `~` where nobody is shown to."""
    columns = (Column("Criterion", is_text=True), Column("Best", is_text=True), Column("", is_text=True))
    rows = tuple((each.criterion, each.winner or "~", each.note or "") for each in decisions)
    return plain_table("", columns, rows)


def _common(pairs: Sequence[Comparison]) -> Settings:
    """Return the settings that are the same on all sides."""
    return (
        [each for each in pairs[0].common_config if all(each in pair.common_config for pair in pairs)] if pairs else []
    )


def _together(comparisons: Comparisons) -> tuple[Section, ...]:
    incomparable = [
        Statement("warning", f"{pair.candidate} is not comparable with {pair.baseline}. {' '.join(pair.reasons)}")
        for pair in comparisons.pairs
        if not pair.comparable
    ]
    matrix = matrix_table(comparisons.matrix)
    sections = (
        Section("Not comparable", tuple(incomparable)),
        Section("Decisions", (decision_table(comparisons.decisions),) if comparisons.decisions else ()),
        Section("Headlines", winners([pair for pair in comparisons.pairs if pair.metrics])),
        Section("What differs", _differences(comparisons)),
        Section("All configurations", () if matrix.is_empty else (matrix,)),
    )
    return tuple(section for section in sections if section.blocks)


def _differences(comparisons: Comparisons) -> tuple[Block, ...]:
    settings = settings_table(comparisons.matrix)
    none = Paragraph("No difference of configuration is known.")
    same = settings_paragraph("The same on all sides", _common(comparisons.pairs))
    return (none if settings.is_empty else settings, *same)


def _title(pair: Comparison) -> str:
    return f"{pair.candidate} with {pair.baseline}"
