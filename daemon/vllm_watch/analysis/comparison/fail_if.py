# SPDX-License-Identifier: Apache-2.0
"""
Rules of ``--fail-if``: ``ttft_ms.p99 > +10%`` fails if the metric is shown to have risen by more than 10 %.

A rule fails only if the whole 95 % interval is beyond the limit. What was not measured fails nothing, and neither does
an interval that holds the limit: that is said, with what is missing.
"""

from __future__ import annotations

import re

from typing import NamedTuple

from vllm_watch.analysis.comparison.comparison_model import Comparison, Row
from vllm_watch.analysis.comparison.metrics import BY_NAME
from vllm_watch.daemon.support.errors import UsageError


_RULE = re.compile(r"\s*(?P<metric>[a-z0-9_.]+)\s*(?P<relation>[<>])\s*(?P<limit>[+-]?\d+(?:\.\d+)?)\s*%\s*", re.ASCII)


_DIRECTIONS = {
    True: "of this metric more is better: write < and a limit such as -5%",
    False: "of this metric less is better: write > and a limit such as +10%",
}


class Rule(NamedTuple):
    """A limit of a metric's change in per cent: beyond it is above if `is_upper`, else below."""

    metric: str
    is_upper: bool
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {'>' if self.is_upper else '<'} {self.limit:+g}%"


class Outcome(NamedTuple):
    """What became of a rule, in a sentence."""

    has_failed: bool
    text: str


def parse_rule(text: str) -> Rule:
    """
    Read a rule.

    Raises:
        UsageError: It is none, names a metric that is not compared, or would fail for an improvement.
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise UsageError(f"--fail-if {text!r}: expected a metric, < or >, and per cent, such as 'ttft_ms.p99 > +10%'")
    if found["metric"] not in BY_NAME:
        raise UsageError(f"--fail-if {text!r}: no metric {found['metric']}; known are {', '.join(BY_NAME)}")
    rule = Rule(found["metric"], found["relation"] == ">", float(found["limit"]))
    if rule.is_upper == BY_NAME[rule.metric].higher_is_better:
        raise UsageError(f"--fail-if {text!r}: that is an improvement; {_DIRECTIONS[rule.is_upper]}")
    return rule


def check_rule(rule: Rule, comparison: Comparison) -> Outcome:
    """Return whether a comparison breaks a rule."""
    where = f"{rule} ({comparison.candidate} against {comparison.baseline})"
    row = next((row for row in comparison.metrics if row.metric == rule.metric), None)
    if row is None:
        why = " ".join(comparison.reasons) if not comparison.comparable else "Not both sides have this metric."
        return Outcome(has_failed=False, text=f"nothing was measured: {where}: {why}")
    if row.percent is None:
        return Outcome(has_failed=False, text=f"nothing was measured: {where}: {row.note}")
    measured = f"{row.percent:+.1f} % ({_bound(row.low)} to {_bound(row.high)} %)"
    if _is_beyond(rule, row):
        return Outcome(has_failed=True, text=f"failed: {where}: {measured}")
    if _is_within(rule, row):
        return Outcome(has_failed=False, text=f"passed: {where}: {measured}")
    return Outcome(has_failed=False, text=f"not shown: {where}: {measured} includes the limit; more runs are needed")


def _is_beyond(rule: Rule, row: Row) -> bool:
    if rule.is_upper:
        return row.low is not None and row.low > rule.limit
    return row.high is not None and row.high < rule.limit


def _is_within(rule: Rule, row: Row) -> bool:
    if rule.is_upper:
        return row.high is not None and row.high <= rule.limit
    return row.low is not None and row.low >= rule.limit


def _bound(percent: float | None) -> str:
    return "open" if percent is None else f"{percent:+.1f}"
