# SPDX-License-Identifier: Apache-2.0
"""
Rules over series in virtual time, evaluated by ``promtool test rules``: Prometheus' own engine, rules and clocks.

An evaluation expects what no query gives, because promtool prints only what is not as expected: that is how it shows a
value. Its time begins at 0, in 1970, and every group of rules is evaluated at the same moments.
"""

from __future__ import annotations

import ast
import json
import re

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from vllm_watch.analysis.backtest.durations import duration_seconds
from vllm_watch.analysis.backtest.promtool import Promtool, Waiting
from vllm_watch.analysis.backtest.rule_set import Group
from vllm_watch.daemon.support.errors import ToolError
from vllm_watch.daemon.support.printable import printable


STALE = "stale"
NOTHING = "_"
FIRING = 'ALERTS{alertstate="firing"}'
PENDING = 'ALERTS{alertstate="pending"}'

_NEVER = {"labels": "{}", "value": -987654321}
_LONGEST_OUTPUT = 500

_GOT = re.compile(r'expr: (".*?"), time: (\w+),\n.*?\n\s+got: ?(.*)')
_FAILED_RULE = re.compile(r"rule: (\S+), time: (\S+), err: (.*)")
_SAMPLE = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} ([^\s,]+)')
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')

Labels = tuple[tuple[str, str], ...]
"""Names and values, the series' name as ``__name__``."""

Answers = dict[int, dict[Labels, float]]
"""What a query gives after each evaluation of the rules, by second."""


class Evaluation(NamedTuple):
    """
    What is evaluated.

    Args:
        series: The values of each series by name and labels: a number, `STALE` or `NOTHING` for each step.
        steps: How many values each series has.
        step: Seconds between two values.
        interval: Seconds between two evaluations of the rules.
        groups: The rules. What a group records, later groups see at the same moment.
        queries: What is asked after each evaluation.
    """

    series: Mapping[str, Sequence[str]]
    steps: int
    step: float
    interval: int
    groups: Sequence[Group]
    queries: Sequence[str]

    @property
    def moments(self) -> range:
        """The seconds at which the rules are evaluated."""
        return range(0, max(int((self.steps - 1) * self.step) + 1, 1), self.interval)


def evaluate(tool: Promtool, evaluation: Evaluation) -> dict[str, Answers]:
    """
    Return what the queries give, by the query.

    Raises:
        ToolError: A rule cannot be evaluated over these series, or promtool prints what is not understood.
    """
    return evaluate_all(tool, [evaluation])[0]


def evaluate_all(
    tool: Promtool, evaluations: Sequence[Evaluation], waiting: Waiting = lambda _seconds: None
) -> list[dict[str, Answers]]:
    """
    Evaluate several at once, each in a process of its own; return what `evaluate` does of each.

    Raises:
        ToolError: As of `evaluate`.
    """
    paths = [_write(tool.folder / f"evaluation{number}", each) for number, each in enumerate(evaluations)]
    ended = tool.run_all([("test", "rules", path) for path in paths], waiting)
    return [_answers(each, run.printed) for each, run in zip(evaluations, ended, strict=True)]


def _write(folder: Path, evaluation: Evaluation) -> Path:
    """Write the files of an evaluation; return the one that is given to promtool."""
    folder.mkdir(exist_ok=True)
    groups = [{"name": str(number), "rules": group["rules"]} for number, group in enumerate(evaluation.groups)]
    (folder / "rules.json").write_text(json.dumps({"groups": groups}))  # JSON is YAML, and written sooner.
    test = {
        "interval": f"{round(evaluation.step * 1000)}ms",
        "input_series": [{"series": name, "values": values_text(each)} for name, each in evaluation.series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": f"{moment}s", "exp_samples": [_NEVER]}
            for query in evaluation.queries
            for moment in evaluation.moments
        ],
    }
    document = {
        "rule_files": ["rules.json"],
        "evaluation_interval": f"{evaluation.interval}s",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [test],
    }
    path = folder / "test.json"
    path.write_text(json.dumps(document))
    return path


def values_text(values: Iterable[str]) -> str:
    """Return values as promtool reads them, equal ones together: ``1+0x3`` for four times 1."""
    return " ".join(_run_text(value, sum(1 for _ in run)) for value, run in groupby(values))


def _run_text(value: str, count: int) -> str:
    if count == 1 or value == STALE:
        return " ".join([value] * count)
    if value == NOTHING:
        return f"_x{count}"
    return f"{value}+0x{count - 1}" if value[-1].isdigit() else " ".join([value] * count)


def _answers(evaluation: Evaluation, printed: str) -> dict[str, Answers]:
    failed = _FAILED_RULE.search(printed)
    if failed is not None:
        raise ToolError(f"the rule {printable(failed[1])} cannot be evaluated: {printable(failed[3])}")
    found = {
        (json.loads(query), int(duration_seconds(moment))): dict(_samples(got))
        for query, moment, got in _GOT.findall(printed)
    }
    asked = {(query, moment) for query in evaluation.queries for moment in evaluation.moments}
    if found.keys() != asked:
        raise ToolError(f"promtool prints what is not understood: {printable(printed[:_LONGEST_OUTPUT])}")
    return {query: {moment: found[query, moment] for moment in evaluation.moments} for query in evaluation.queries}


def _samples(text: str) -> Iterator[tuple[Labels, float]]:
    for labels, value in _SAMPLE.findall(text):
        # Go quotes a text as Python does.
        yield tuple((name, ast.literal_eval(quoted)) for name, quoted in _LABEL.findall(labels)), float(value)
