# SPDX-License-Identifier: Apache-2.0
"""
Which alerts would have fired over a source, from when to when, and which cannot be judged.

That an alert did not fire is no finding if the source lacks what it watches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vllm_watch.analysis.backtest.expressions import (
    ANY_NAME,
    duration_seconds,
    offset_back,
    reads_calendar,
    selected_names,
)
from vllm_watch.analysis.backtest.fired import (
    ALWAYS_FIRING,
    Alert,
    NotJudged,
    SourceResult,
    intervals,
)
from vllm_watch.analysis.backtest.promtool import FIRING, PENDING, Evaluation, Promtool, evaluate
from vllm_watch.analysis.backtest.rule_set import RuleSet, needed
from vllm_watch.analysis.backtest.series_grid import Subject
from vllm_watch.daemon.catalog.alert_needs import AlertNeeds, Need, alert_needs
from vllm_watch.daemon.catalog.number_texts import duration
from vllm_watch.daemon.catalog.reasons import BY_SOURCE
from vllm_watch.daemon.catalog.series import DAEMON, PREFIX, SERIES


INTERVAL = 15
"""Seconds between two evaluations of a group that names no interval, as ``alerts/prometheus/prometheus.yml`` has it."""

PRESENCE = f"{PREFIX}source_up"
"""Its labels tell which sources a server has."""

_GPUS = f"{PREFIX}server_gpu_info"
"""Each GPU that is known of a server has it, whoever reads the GPU."""

_OF_DAEMON = frozenset(series.name for series in DAEMON.series)
_NO_DAEMON = "a log or a recording shows nothing of vllm-watch itself"
_CALENDAR = "it depends on the date or the time of day, and promtool evaluates all rules in 1970"


def selected_by(rules: RuleSet) -> frozenset[str]:
    """Return the names of the series that are needed to evaluate rules and to judge them."""
    selected = {name for rule in rules.rules for name in selected_names(rule["expr"])}
    return frozenset(selected - rules.recorded.keys() - {ANY_NAME, "ALERTS", "ALERTS_FOR_STATE"} | {PRESENCE})


def backtest(tool: Promtool, subject: Subject, rules: RuleSet, *, are_shipped: bool) -> SourceResult:
    """
    Evaluate rules over a source; `are_shipped` is whether they are the package's.

    Raises:
        ToolError: A rule cannot be evaluated.
    """
    interval, groups = _interval(rules), without_calendar(rules).groups
    asked = Evaluation(subject.in_virtual_time, subject.grid.steps, subject.step, interval, groups, (FIRING, PENDING))
    (answers,) = evaluate(tool, [asked])
    firing, pending = list(intervals(answers[FIRING])), list(intervals(answers[PENDING]))
    waits = {_key(wait, wait.end): wait for wait in pending if wait.end is not None}
    alerts: list[Alert] = []
    for fired in firing:
        alerts += _alert(subject, fired, waits.pop(_key(fired, fired.start), None))
    only_pending = [wait for wait in pending if wait.end is None or _key(wait, wait.end) in waits]
    return SourceResult(
        *(subject.name, subject.start, subject.end, subject.step, interval, subject.gaps, subject.warnings),
        tuple(alerts),
        tuple(alert for wait in only_pending for alert in _alert(subject, wait, None)),
        tuple(not_judged(rules, subject, {alert.alertname for alert in alerts}, is_shipped=are_shipped)),
    )


def _interval(rules: RuleSet) -> int:
    """Return the fewest seconds between two evaluations of a group with alerts: all are evaluated that often."""
    groups = [group for group in rules.groups if any("alert" in rule for rule in group["rules"])]
    intervals = (max(round(duration_seconds(group.get("interval", f"{INTERVAL}s"))), 1) for group in groups)
    return min(intervals, default=INTERVAL)


def _key(alert: Alert, moment: float) -> tuple[object, ...]:
    return alert.alertname, alert.severity, tuple(sorted(alert.labels.items())), moment


def _alert(subject: Subject, fired: Alert, waited: Alert | None) -> Iterator[Alert]:
    """Yield an alert with its times; nothing for one that had ended when the time began that was asked for."""
    lead = subject.lead * subject.step
    if fired.end is None or fired.end > lead:
        yield fired._replace(
            start=subject.at(max(fired.start, lead)),
            end=None if fired.end is None else subject.at(fired.end),
            pending_since=None if waited is None else subject.at(waited.start),
            began_before=fired.start < lead,
        )


def without_calendar(rules: RuleSet) -> RuleSet:
    """Return a set of rules without the alerts that depend on the date or the time of day."""
    wrong = set(_of_calendar(rules))
    return rules._replace(groups=tuple(needed(rules.groups, {rule["alert"] for rule in rules.alerts} - wrong)))


def not_judged(rules: RuleSet, subject: Subject, fired: Collection[str], *, is_shipped: bool) -> Iterator[NotJudged]:
    """Yield the alerts of which it says nothing that they did not fire; of the package's is known what they need."""
    calendar = set(_of_calendar(rules))
    there = set(_needs_met(subject))
    said: set[str] = set()  # An alert of two severities has two rules.
    for rule in rules.alerts:
        name = rule["alert"]
        if name in fired or name in ALWAYS_FIRING or name in said:
            continue
        unknown = NotJudged(name, str(rule.get("labels", {}).get("severity", "")), "")
        lacking: NotJudged | None = None
        if name in calendar:
            lacking = unknown._replace(reason=_CALENDAR)
        elif is_shipped and name in alert_needs():
            lacking = _lacking(unknown, alert_needs()[name], subject, there)
        elif absent := _not_there(rule, rules.recorded, subject):
            lacking = _without_series(unknown, absent)
        lacking = lacking or _too_short(unknown, rule, rules.recorded, subject)
        if lacking is not None:
            said.add(name)
            yield lacking


def _too_short(
    unknown: NotJudged, rule: Mapping[str, Any], recorded: Mapping[str, str], subject: Subject
) -> NotJudged | None:
    waits, past = str(rule.get("for", "0s")), offset_back(rule["expr"], recorded)
    if duration_seconds(waits) >= subject.seconds:
        return unknown._replace(reason=f"it waits {waits} before it fires, longer than the values last")
    if past >= subject.seconds + subject.lead * subject.step:
        return unknown._replace(reason=f"it compares with what was {duration(past)} before, when there are no values")
    return None


def _of_calendar(rules: RuleSet) -> Iterator[str]:
    for rule in rules.alerts:
        below = RuleSet((), tuple(needed(rules.groups, {rule["alert"]})))
        if any(reads_calendar(each["expr"]) for each in below.rules):
            yield rule["alert"]


def _needs_met(subject: Subject) -> Iterator[Need]:
    names = subject.names
    for series in SERIES.values():
        full = f"{series.full_name}_count" if series.type == "histogram" else series.full_name
        if (full, "") in names:
            yield Need(series.name)
        yield from (Need(series.name, source) for source in BY_SOURCE if (full, source) in names)
    yield Need("engine_stall_info")  # It is there while an engine is stalled.
    if (PRESENCE, "log") in names:
        yield Need("engine_state", "log")


def _lacking(unknown: NotJudged, needs: AlertNeeds, subject: Subject, there: Collection[Need]) -> NotJudged | None:
    """Return why nothing can be said of an alert of the package for want of series; `None` if it lacks none."""
    if not subject.has_daemon and all(need.series in _OF_DAEMON for way in needs.ways for need in way):
        return unknown._replace(reason=_NO_DAEMON)
    flags = needs.unknown_flags(there)
    if flags:
        names = f"{' and '.join(flags)} {'is' if len(flags) == 1 else 'are'}"
        return unknown._replace(reason=f"{names} not known", unknown=tuple(flags))
    missing = needs.missing(there)
    reasons = [reason for need in missing if (reason := _reason(need, subject)) is not None]
    if needs.several_engines and subject.engines <= 1:
        reasons.append("there is one engine")
    if reasons:
        return unknown._replace(reason=" and ".join(dict.fromkeys(reasons)))
    return _without_series(unknown, [SERIES[need.series].full_name for need in missing]) if missing else None


def _without_series(unknown: NotJudged, names: Sequence[str]) -> NotJudged:
    return unknown._replace(reason=" and ".join(f"there is no series {name}" for name in names))


def _reason(need: Need, subject: Subject) -> str | None:
    series = SERIES[need.series]
    read = {source for name, source in subject.names if name == PRESENCE and source}
    if series.origins == ("probe",):
        return "no probe was made"
    if "gpu" in (series.feature, need.source) and (_GPUS, "") not in subject.names:
        return "no GPUs were read"
    if series.combine == "all" and {"log", "metrics"} <= set(series.origins) and not {"log", "metrics"} <= read:
        return "only one of log and /metrics was read"
    if series.feature == "slo" and "metrics" in read:
        return "no slo is configured" if subject.has_daemon else "no objective is given (--objective)"
    if "log" in (need.source, series.origins[0]) and "log" not in read:
        return "no log was read"
    is_of_metrics = "metrics" in series.origins and "metrics" not in read and "log" not in series.origins
    return "no /metrics was read" if is_of_metrics or series.feature == "slo" else None


def _not_there(rule: Mapping[str, Any], recorded: Mapping[str, str], subject: Subject) -> list[str]:
    """Return which series a user's rule selects, directly or through what is recorded, that are not there."""
    there = {name for name, _ in subject.names}
    pending, seen = [str(rule["expr"])], set[str]()
    while pending:
        new = selected_names(pending.pop()) - seen
        seen |= new
        pending += [recorded[name] for name in new & recorded.keys()]
    return sorted(seen - recorded.keys() - there - {ANY_NAME, "ALERTS", "ALERTS_FOR_STATE"})
