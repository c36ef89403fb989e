# SPDX-License-Identifier: Apache-2.0
"""The answer of a comparison in one sentence: by how much one side is faster, how sure that is, what would show it."""

from __future__ import annotations

from vllm_watch.analysis.comparison.comparison_model import Comparison, Row
from vllm_watch.daemon.catalog.metric_titles import metric_title
from vllm_watch.daemon.catalog.number_texts import significant


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WHOLE_PERCENT = 10
_SPEEDS = ("_throughput", "_ms", "duration_s")


def sentence(pair: Comparison) -> str:
    """
    Return the answer of a comparison.

    ``B is slower: output 900 against 1,200 tokens/s, -25 % (likely; three more runs of each would show it).``
    """
    row = next((each for each in pair.metrics if each.is_headline and each.percent is not None), None)
    values = "" if row is None else f": {_values(row)}"
    if not pair.comparable:
        why = " ".join(pair.reasons).removesuffix(".")
        return f"{pair.candidate} cannot be compared with {pair.baseline} ({why}){values}."
    if row is None:
        return f"Nothing was measured in which {pair.candidate} can be compared with {pair.baseline}."
    said = ", ".join(each for each in (_grade(row), _more_runs(row)) if each).replace(", ", "; ", 1)
    return f"{_claim(pair, row)}{values} ({said})."


def _claim(pair: Comparison, row: Row) -> str:
    if row.grade == "not_decided" or row.is_better is None:
        return f"{pair.candidate} is not shown to differ from {pair.baseline}"
    is_speed = any(part in row.metric for part in _SPEEDS)
    word = ("faster" if row.is_better else "slower") if is_speed else ("better" if row.is_better else "worse")
    return f"{pair.candidate} is {word}" + (" in these two runs" if row.grade == "in_these_two_runs" else "")


def _values(row: Row) -> str:
    label, unit = metric_title(row.metric)
    name = label if label[:2].isupper() else label[:1].lower() + label[1:]
    decimals = 0 if abs(row.percent or 0.0) >= _WHOLE_PERCENT else 1
    values = f"{name} {significant(row.b)} against {significant(row.a)} {unit}".strip()
    return f"{values}, {row.percent:+.{decimals}f} %"


def _grade(row: Row) -> str:
    if row.grade == "in_these_two_runs":
        return "one run of each is a hint"
    return row.grade.replace("_", " ")


def _more_runs(row: Row) -> str:
    if row.needed_runs is None:
        return ""
    more = row.needed_runs - row.runs[0]
    if row.runs[0] != row.runs[1] or more < 1:
        return f"{_number(row.needed_runs)} runs of each would show it"
    return f"{_number(more)} more {'run' if more == 1 else 'runs'} of each would show it"


def _number(value: int) -> str:
    return _NUMBERS[value] if value < len(_NUMBERS) else str(value)
