# SPDX-License-Identifier: Apache-2.0
"""Which alerts of some sets of rules would have fired over a source, and from when to when."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vllm_watch.analysis.backtest.durations import duration_seconds
from vllm_watch.analysis.backtest.evaluation import FIRING, PENDING, Answers, Evaluation, evaluate_all
from vllm_watch.analysis.backtest.expressions import ANY_NAME, selected_names
from vllm_watch.analysis.backtest.fired import Fired, intervals
from vllm_watch.analysis.backtest.judgement import PRESENCE, looking_further, not_judged, without_calendar
from vllm_watch.analysis.backtest.model import Alert, SetResult, SourceResult
from vllm_watch.analysis.backtest.promtool import Promtool, Waiting
from vllm_watch.analysis.backtest.rule_set import RuleSet
from vllm_watch.analysis.backtest.subject import Subject


_QUERIES = (FIRING, PENDING)

INTERVAL = 15
"""Seconds between two evaluations of a group that names no interval, as ``alerts/prometheus/prometheus.yml`` has it."""


def selected_by(sets: Collection[RuleSet]) -> frozenset[str]:
    """Return the names of the series that are needed to evaluate some sets of rules and to judge them."""
    selected = {name for rules in sets for rule in rules.rules for name in selected_names(rule["expr"])}
    recorded = {name for rules in sets for name in rules.recorded}
    return frozenset(selected - recorded - {ANY_NAME, "ALERTS", "ALERTS_FOR_STATE"} | {PRESENCE})


def backtest(
    tool: Promtool, subject: Subject, sets: Sequence[RuleSet], *, are_shipped: bool, waiting: Waiting = lambda _: None
) -> SourceResult:
    """
    Evaluate sets of rules over a source, all at once.

    Args:
        tool: What evaluates them.
        subject: The source.
        sets: The sets.
        are_shipped: Whether their rules are the package's, only with other thresholds.
        waiting: Called now and then meanwhile.

    Raises:
        ToolError: A rule cannot be evaluated.
    """
    interval = min(min(_intervals(rules)) for rules in sets)
    series = subject.in_virtual_time
    evaluations = [
        Evaluation(series, subject.grid.steps, subject.step, interval, without_calendar(rules).groups, _QUERIES)
        for rules in sets
    ]
    results = tuple(
        _result(subject, rules, answers, are_shipped=are_shipped)
        for rules, answers in zip(sets, evaluate_all(tool, evaluations, waiting), strict=True)
    )
    return SourceResult(
        subject.name,
        subject.start,
        subject.end,
        subject.step,
        interval,
        max(max(_intervals(rules)) for rules in sets),
        subject.gaps,
        subject.warnings,
        results,
    )


def _intervals(rules: RuleSet) -> list[int]:
    """Return how many seconds are between two evaluations of each group with alerts."""
    groups = [group for group in rules.groups if any("alert" in rule for rule in group["rules"])]
    return [max(round(duration_seconds(group.get("interval", f"{INTERVAL}s"))), 1) for group in groups] or [INTERVAL]


def _result(subject: Subject, rules: RuleSet, answers: dict[str, Answers], *, are_shipped: bool) -> SetResult:
    firing, pending = list(intervals(answers[FIRING])), list(intervals(answers[PENDING]))
    before = {_key(each, each.end): each for each in pending if each.end is not None}
    alerts: list[Alert] = []
    for each in firing:
        waited = before.pop(_key(each, each.start), None)
        alerts += _alert(subject, each, waited)
    only = [each for each in pending if each.end is None or _key(each, each.end) in before]
    fired = {each.alertname for each in alerts}
    return SetResult(
        rules.name,
        tuple(alerts),
        tuple(found for each in only for found in _alert(subject, each, None)),
        tuple(not_judged(rules, subject, fired, is_shipped=are_shipped)),
        tuple(looking_further(rules, subject)),
    )


def _key(fired: Fired, moment: int) -> tuple[object, ...]:
    return fired.alert, fired.severity, tuple(sorted(fired.labels.items())), moment


def _alert(subject: Subject, fired: Fired, waited: Fired | None) -> Iterator[Alert]:
    """Yield an alert with its times; nothing for one that had ended when the time began that was asked for."""
    lead = subject.lead * subject.step
    if fired.end is not None and fired.end <= lead:
        return
    yield Alert(
        fired.alert,
        fired.severity,
        fired.labels,
        subject.at(max(fired.start, lead)),
        None if fired.end is None else subject.at(fired.end),
        None if waited is None else subject.at(waited.start),
        began_before=fired.start < lead,
    )
