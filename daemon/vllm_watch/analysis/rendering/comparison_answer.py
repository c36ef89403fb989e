# SPDX-License-Identifier: Apache-2.0
"""The answer of a comparison in about ten lines: a sentence, a short table, what to do next, and what is left out."""

from __future__ import annotations

import math
import re

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from vllm_watch.analysis.comparison.comparison_model import (
    GOODPUT,
    OUTPUT,
    TPOT,
    Comparison,
    Comparisons,
    Grade,
    MatrixRow,
    Row,
)
from vllm_watch.analysis.rendering.document import Block, Column, Paragraph, Statement, Table, Tone, plain_table
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.metric_titles import metric_title, titled
from vllm_watch.daemon.catalog.number_texts import MISSING, signed, significant


GRADES: dict[Grade, str] = {
    "shown": N_("shown"),
    "likely": N_("likely"),
    "not_decided": N_("not decided"),
    "in_these_two_runs": N_("in these two runs"),
}
Heads: TypeAlias = tuple[str, str]
"""What heads the columns of the baseline and of the candidate."""

_LETTERS = ("A", "B")
_LONGEST_HEAD = 12
_FIRST = (OUTPUT, "ttft_ms.p50", "ttft_ms.p99", TPOT, "e2el_ms.mean", GOODPUT, "duration_s", "ttft_ms.mean")
"""What the short table has of a comparison, the headline before them: the first that are known."""

_MOST_ROWS = 4
_OF_SIDES = (OUTPUT, "ttft_ms.p50", TPOT, "e2el_ms.mean", GOODPUT)
_MARKS = ("*", "†", "‡", "§")
_SENTENCES = re.compile("(?<=\\.) (?=[A-Z])|(?<=\N{IDEOGRAPHIC FULL STOP})")
_NOT_A_VERDICT = N_("The sides cannot be compared: the differences are those of these runs.")


def brief(comparisons: Comparisons) -> tuple[Block, ...]:
    """Return the answer as it is on a terminal."""
    said = (Paragraph(each.text) for each in answer(comparisons))
    return (*said, *short_tables(comparisons), *next_steps(comparisons), Paragraph(_left_out(comparisons)))


def answer(comparisons: Comparisons) -> Iterator[Statement]:
    """Yield the sentence that answers: of a sweep where it stops growing, of two sides or more how each differs."""
    for sweep in comparisons.sweeps:
        yield Statement("note", sweep.sentence)
    if is_sweep(comparisons):
        return
    for pair in comparisons.pairs:
        yield Statement(_tone(pair), pair.sentence)


def is_sweep(comparisons: Comparisons) -> bool:
    """Return whether the sides are the loads of one configuration: then none is better than another."""
    return any(not sweep.name for sweep in comparisons.sweeps)


def short_tables(comparisons: Comparisons) -> tuple[Block, ...]:
    """Return the values that the answer is about: of two sides the difference of each metric, else a row for each."""
    if len(comparisons.pairs) == 1 and not is_sweep(comparisons):
        table = _of_pair(comparisons.pairs[0])
    else:
        table = _of_sides(comparisons.pairs, comparisons.matrix, has_grades=not is_sweep(comparisons))
    return () if table.is_empty else (table,)


def next_steps(comparisons: Comparisons) -> Iterator[Paragraph]:
    """Yield how many runs would show what is not shown, or why none would; of one run of each the sentence says it."""
    pairs = () if is_sweep(comparisons) else comparisons.pairs
    needed: list[str] = []
    remarks: dict[str, list[str]] = {}
    for pair in pairs:
        headline = _headline(pair)
        if headline is None or headline.grade == "in_these_two_runs":
            continue
        if not pair.comparable:
            remarks.setdefault(_(_NOT_A_VERDICT), []).append(pair.candidate)
        elif headline.grade == "shown":
            others = [row for row in _first(pair) if row.grade != "shown" and row.needed_runs and len(pairs) == 1]
            needed += [f"{metric_title(row.metric).label} {row.needed_runs}" for row in others]
        elif headline.needed_runs:
            name = pair.candidate if len(pairs) > 1 else metric_title(headline.metric).label
            needed.append(f"{name} {headline.needed_runs}")
        else:
            remarks.setdefault(headline.reason or "", []).append(pair.candidate)
    if needed:
        yield Paragraph(
            _("Next: runs of each side, in turns (A B B A), that would show it: {needed}.", needed=listed(needed))
        )
    for remark, names in remarks.items():
        yield Paragraph(remark if len(pairs) == 1 else _("{name}: {text}", name=listed(names), text=remark))


def heads_of(pair: Comparison, names: Iterable[str]) -> Heads:
    """Return the names of the two sides, or letters where they are long and no side is called so."""
    own = (pair.baseline, pair.candidate)
    is_short = max(map(len, own)) <= _LONGEST_HEAD
    return own if is_short or not set(_LETTERS).isdisjoint(names) else _LETTERS


def letters(pair: Comparison, heads: Heads) -> tuple[str, ...]:
    """Return which side has which letter, if the columns are headed by letters."""
    return (
        ()
        if heads == (pair.baseline, pair.candidate)
        else (_("A is {baseline}, B is {candidate}.", baseline=pair.baseline, candidate=pair.candidate),)
    )


def grade_text(row: Row) -> str:
    """Return how sure a difference is, in the words of the sentence."""
    return _(GRADES[row.grade])


def percent_text(value: float | None, sign: str = "+") -> str:
    """Return per cent with its sign, to a tenth, from 100 on without: ``+11.0``, ``-25.0``, ``+313``."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:{sign},.{1 if abs(value) < 99.95 else 0}f}"


def _headline(pair: Comparison) -> Row | None:
    return next((row for row in pair.metrics if row.is_headline), None)


def _tone(pair: Comparison) -> Tone:
    row = _headline(pair)
    if row is None or not pair.comparable:
        return "unknown"
    if row.grade == "shown":
        return "good" if row.is_better else "warning"
    return "undecided"


def _first(pair: Comparison) -> list[Row]:
    """Return the rows of the short table: the headline, then those that most ask for, what is not compared last."""
    rows = {row.metric: row for row in pair.metrics if row.difference is not None}
    headline = [row.metric for row in rows.values() if row.is_headline]
    ordered = [rows[name] for name in dict.fromkeys((*headline, *_FIRST)) if name in rows]
    return sorted(ordered, key=lambda row: row.grade == "not_decided" and row.confidence is None)[:_MOST_ROWS]


def _of_pair(pair: Comparison) -> Table:
    rows = _first(pair)
    heads = heads_of(pair, (pair.baseline, pair.candidate))
    notes = list(dict.fromkeys(note for row in rows for note in _notes(row)))
    cells = [
        (
            titled(row.metric),
            significant(row.a),
            significant(row.b) + "".join(_mark(notes.index(note)) for note in _notes(row)),
            signed(row.difference),
            percent_text(row.percent),
            grade_text(row),
        )
        for row in rows
    ]
    columns = ("", *heads, _("Difference"), "%", _("Grade"))
    table = plain_table("", tuple(Column(name, is_text=at in {0, 5}) for at, name in enumerate(columns)), tuple(cells))
    return table._replace(notes=(*letters(pair, heads), *(f"{_mark(at)} {note}" for at, note in enumerate(notes))))


def _notes(row: Row) -> list[str]:
    return [] if row.note is None else [part for part in _SENTENCES.split(row.note) if part]


def _mark(at: int) -> str:
    return _MARKS[at % len(_MARKS)]


def _of_sides(pairs: Sequence[Comparison], matrix: Sequence[MatrixRow], *, has_grades: bool) -> Table:
    """Return a row for each side: its values, and, of each but the baseline, the difference of the headline."""
    headlines = {pair.candidate: _headline(pair) for pair in pairs}
    metrics = [name for name in _OF_SIDES if any(name in row.values for row in matrix)]
    # On a narrow terminal three values leave room for the difference.
    metrics = metrics[:3] if has_grades else metrics
    columns = [
        Column(_("Side"), is_text=True),
        *(Column(metric_title(name).label, metric_title(name).unit) for name in metrics),
    ]
    rows = [(row.name, *(significant(row.values.get(name)) for name in metrics)) for row in matrix if metrics]
    if has_grades:
        label = next((metric_title(row.metric).label for row in headlines.values() if row is not None), "")
        columns += [Column(label, "%"), Column(_("Grade"), is_text=True)]
        rows = [(*row, *_difference(headlines.get(row[0]))) for row in rows]
    return plain_table("", tuple(columns), tuple(rows))


def _difference(row: Row | None) -> tuple[str, str]:
    return (MISSING, "") if row is None else (percent_text(row.percent), grade_text(row))


def warnings(comparisons: Comparisons) -> tuple[str, ...]:
    """Return what a reader must beware of, each once: of a sweep what is wrong with its loads, else with the pairs."""
    parts = comparisons.sweeps if is_sweep(comparisons) else comparisons.pairs
    return tuple(dict.fromkeys(text for part in parts for text in part.warnings))


def _left_out(comparisons: Comparisons) -> str:
    count = len(warnings(comparisons))
    if is_sweep(comparisons):
        rest = N_("No warnings; --all has what differs, and --table wide all metrics.")
        if count == 1:
            rest = N_("1 warning; --all has it, what differs, and --table wide all metrics.")
        elif count:
            rest = N_("{count} warnings; --all has them, what differs, and --table wide all metrics.")
    else:
        rest = N_("No warnings; --all has all metrics and what differs.")
        if count == 1:
            rest = N_("1 warning; --all has it, all metrics and what differs.")
        elif count:
            rest = N_("{count} warnings; --all has them, all metrics and what differs.")
    return _(rest, count=count)
