# SPDX-License-Identifier: Apache-2.0
"""Compares configurations by their load tests: each with the baseline, and all side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from vllm_watch.analysis.comparison.comparability import (
    check_configuration,
    common_settings,
    config_differences,
    findings,
)
from vllm_watch.analysis.comparison.comparison_model import Comparison, Comparisons, Grade, Row, Side
from vllm_watch.analysis.comparison.pair import VIEWS, Pair, common_view, load_name, measured, result_in
from vllm_watch.analysis.comparison.sweeps import find_sweeps, in_order_of_load
from vllm_watch.analysis.comparison.verdicts import TYPICAL_CV, chosen_rows, graded_rows
from vllm_watch.analysis.comparison.winners import decide, matrix
from vllm_watch.analysis.loadtest.load_test import Objective
from vllm_watch.daemon.catalog.language import N_, _, clauses, listed, sentences
from vllm_watch.daemon.catalog.metric_titles import metric_title
from vllm_watch.daemon.catalog.number_texts import limit, significant


_NUMBERS = (
    *(N_("no"), N_("one"), N_("two"), N_("three"), N_("four"), N_("five"), N_("six"), N_("seven")),
    *(N_("eight"), N_("nine"), N_("ten"), N_("eleven"), N_("twelve")),
)
_WHOLE_PERCENT = 10
_LEAST_PERCENT = 0.05
"""What is less is printed as 0.0 %."""
_WORDS = {
    (True, True): N_("faster"),
    (True, False): N_("slower"),
    (False, True): N_("better"),
    (False, False): N_("worse"),
}
_GRADES: dict[Grade, str] = {
    "shown": N_("shown"),
    "likely": N_("likely"),
    "not_decided": N_("not decided"),
    "in_these_two_runs": N_("a hint"),
}
_SPEEDS = ("_throughput", "_ms", "duration_s")


def compare_sides(
    sides: Sequence[Side],
    baseline: str | None = None,
    objective: Objective | None = None,
    chosen: Collection[str] = (),
) -> Comparisons:
    """
    Compare each side with the baseline, or the first; sides with several loads, as of a sweep, load by load.

    Sides that only differ in their load are in its order. `objective` is what a sweep is held against, `chosen`
    are the metrics that are judged by themselves, too.
    """
    sides = in_order_of_load(sides) or sides
    first = sides[0].name if baseline is None else baseline
    ordered = tuple(sorted(sides, key=lambda side: side.name != first))
    levels, left_out = _split_by_load(ordered)
    pairs = tuple(compare_pair(level[0], side, chosen) for level in levels for side in level[1:])
    if left_out:
        warning = _(
            "Not all sides have these loads, so they are left out: {left_out}.", left_out=_("; ").join(left_out)
        )
        pairs = tuple(replace(pair, warnings=(*pair.warnings, warning)) for pair in pairs)
    named = [side for level in levels for side in level]
    can_decide = len(named) > 2 and len(levels) == 1 and all(pair.comparable for pair in pairs)
    return Comparisons(
        baseline=first,
        sides=ordered,
        pairs=pairs,
        left_out=left_out,
        matrix=matrix(named),
        decisions=decide(named) if can_decide else (),
        sweeps=find_sweeps(sides, objective),
    )


def compare_pair(a: Side, b: Side, chosen: Collection[str] = ()) -> Comparison:
    """Compare two sides; of those that are not comparable there are the values, and no grades."""
    view = common_view((a, b))
    shared = Comparison(
        baseline=a.name,
        candidate=b.name,
        comparable=False,
        view=view,
        config=config_differences(a, b),
        common_config=common_settings((a, b)),
        cost_per_hour=_prices((a, b)),
    )
    if view is None:
        unseen = replace(shared, reasons=(_no_view(a, b),))
        return replace(unseen, sentence=_sentence(unseen))
    pair = Pair(measured(a, view), measured(b, view), view)
    said = findings(pair)
    preventing = tuple(finding.text for finding in said if finding.prevents)
    rows = graded_rows(pair, are_comparable=not preventing)
    compared = replace(
        shared,
        comparable=not preventing,
        reasons=preventing,
        warnings=(
            *(finding.text for finding in check_configuration(a, b)),
            *(finding.text for finding in said if not finding.prevents),
        ),
        metrics=rows,
        chosen=chosen_rows(pair, chosen, are_comparable=not preventing),
    )
    return replace(compared, sentence=_sentence(compared))


def _split_by_load(sides: Sequence[Side]) -> tuple[list[tuple[Side, ...]], tuple[str, ...]]:
    """
    Return the sides load by load, each with the load in its name, and the loads that not all sides have.

    Sides without several loads in common are one level, as they are.
    """
    loads = [dict.fromkeys(load_name(run.load) for run in side.runs) for side in sides]
    common = [text for text in loads[0] if all(text in others for others in loads)]
    if not common or max(map(len, loads)) == 1:
        return [tuple(sides)], ()
    left_out = dict.fromkeys(text for others in loads for text in others if text not in common)
    return [tuple(_at(side, text) for side in sides) for text in common], tuple(left_out)


def _at(side: Side, load: str) -> Side:
    return Side(name=f"{side.name}, {load}", runs=tuple(run for run in side.runs if load_name(run.load) == load))


def _prices(sides: Sequence[Side]) -> dict[str, tuple[float, ...]]:
    prices = {side.name: {run.cost_per_hour for run in side.runs if run.cost_per_hour is not None} for side in sides}
    return {name: tuple(sorted(values)) for name, values in prices.items() if values}


def _no_view(a: Side, b: Side) -> str:
    runs = [(side, run) for side in (a, b) for run in side.runs]
    empty = [run.name for _side, run in runs if run.result is None and not run.views]
    if empty:
        return _("No result is known of {empty}.", empty=listed(empty))
    unseen = [dict.fromkeys(side.name for side, run in runs if result_in(run, view) is None) for view in VIEWS]
    client, server = (_(" and ").join(names) for names in unseen)
    return _(
        "No result is common to all runs: give the benchmark's result with each run of {client}, or the server's "
        "log, a recording or a time range of a Prometheus with each run of {server}.",
        client=client,
        server=server,
    )


def _sentence(pair: Comparison) -> str:
    """
    Return the answer of a comparison.

    ``B is slower: output 900 against 1,200 tokens/s, -25 % (likely; three more runs of each would show it).``
    """
    row = next((row for row in pair.metrics if row.is_headline and row.difference is not None), None)
    names = {"candidate": pair.candidate, "baseline": pair.baseline}
    if not pair.comparable:
        why = sentences(pair.reasons).rstrip(".\N{IDEOGRAPHIC FULL STOP}")
        if row is None:
            return _("{candidate} cannot be compared with {baseline} ({why}).", **names, why=why)
        apart = N_("{candidate} cannot be compared with {baseline} ({why}): {values}.")
        return _(apart, **names, why=why, values=_values(row))
    if row is None:
        return _("Nothing was measured in which {candidate} can be compared with {baseline}.", **names)
    return _("{claim}: {values} ({how_sure}).", claim=_claim(pair, row), values=_values(row), how_sure=_how_sure(row))


def _how_sure(row: Row) -> str:
    if row.grade == "in_these_two_runs" and row.needed_runs is not None:
        more = N_("{runs} more of each show it if runs vary by {cv} %")
        return _(more, runs=_number(row.needed_runs - 1), cv=limit(TYPICAL_CV * 100))
    grade, more_runs = _(_GRADES[row.grade]), _more_runs(row)
    return grade if more_runs is None else _("{grade}; {more}", grade=grade, more=more_runs)


def _claim(pair: Comparison, row: Row) -> str:
    names = {"candidate": pair.candidate, "baseline": pair.baseline}
    is_printed_alike = row.percent is not None and abs(row.percent) < _LEAST_PERCENT
    is_open = (row.grade == "not_decided" and row.a and row.b) or (
        row.grade == "in_these_two_runs" and is_printed_alike
    )
    if row.is_better is None or is_open:
        return _("{candidate} is not shown to differ from {baseline}", **names)
    is_speed = any(part in row.metric for part in _SPEEDS)
    word = _(_WORDS[is_speed, row.is_better])
    if row.grade == "in_these_two_runs":
        return _("{candidate} is {word} in these two runs", candidate=pair.candidate, word=word)
    if row.grade == "not_decided":
        return _("{candidate} is {word} in these runs", candidate=pair.candidate, word=word)
    return _("{candidate} is {word}", candidate=pair.candidate, word=word)


def _values(row: Row) -> str:
    label, unit = metric_title(row.metric)
    name = label if label[:2].isupper() else label[:1].lower() + label[1:]
    values = _(
        "{name} {b} against {a} {unit}", name=name, b=significant(row.b), a=significant(row.a), unit=unit
    ).strip()
    if row.percent is None:
        return values
    return clauses([values, f"{row.percent:+.{0 if abs(row.percent) >= _WHOLE_PERCENT else 1}f} %"])


def _more_runs(row: Row) -> str | None:
    if row.needed_runs is None:
        return None
    more = row.needed_runs - row.runs[0]
    if row.runs[0] != row.runs[1] or more < 1:
        return _("{runs} runs of each, in turns, would show it", runs=_number(row.needed_runs))
    if more == 1:
        return _("one more run of each would show it")
    return _("{runs} more runs of each would show it", runs=_number(more))


def _number(value: int) -> str:
    return _(_NUMBERS[value]) if value < len(_NUMBERS) else str(value)
